// One Retinue process, and the lines to and from it. What they mean stands in retinue/servers/bridge/messages.py.

import { spawn } from "node:child_process";

const STARTING = 20_000; // milliseconds until it says which tools there are
const STOPPING = 15_000; // until a call that was cancelled has answered: longer than Retinue itself waits for its agents
const ENDING = 5_000; // until it has ended when it is told to
const SAID_LAST = 2_000; // characters of what it wrote to stderr

export function openBridge([program, ...args], cwd) {
  const waiting = new Map(); // what was asked and not yet answered, by id
  const restored = new Set(); // sessions that were sent to it
  let asked = 0;
  let longest = Infinity; // bytes of a line
  let complaint = ""; // the end of its stderr
  let rest = "";

  const child = spawn(program, args, { cwd, stdio: ["pipe", "pipe", "pipe"], windowsHide: true });
  const ended = new Promise((resolve) => child.once("close", resolve).once("error", resolve));
  const bridge = { isOpen: true, ask, restore, end };

  child.once("error", (error) => {
    fail(`Retinue could not be started (${program}: ${error.message}). Install it, then run \`retinue install pi\` again.`);
  });
  child.once("close", (code, signal) => {
    const why = complaint.trim().split("\n").at(-1);
    fail(`Retinue has ended (${signal ?? `exit code ${code}`}): ${why || "what ran is kept, see `retinue sessions`."}`);
  });
  child.stdin.on("error", () => {}); // it has ended, which is told by `close`
  child.stderr.setEncoding("utf8").on("data", (text) => {
    complaint = (complaint + text).slice(-SAID_LAST);
  });
  child.stdout.setEncoding("utf8").on("data", (text) => {
    const lines = (rest + text).split("\n"); // not readline: U+2028 and its like are legal inside JSON strings
    rest = lines.pop();
    for (const line of lines) heard(line);
  });

  function heard(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      child.kill(); // not Retinue, or not one that can be understood: `close` tells
      return;
    }
    if (typeof message !== "object" || message === null) return;
    if (message.type === "hello") longest = message.maxLineBytes;
    const one = waiting.get(message.id);
    try {
      if (message.type === "partial") one?.onPartial?.(message);
      else if (message.type === "started" || message.type === "ended") one?.onSession?.(message.session);
      else if (message.type === "refused") one?.reject(new Error(message.message));
      else if (message.type === "tools" || message.type === "result") one?.resolve(message);
    } catch (error) {
      one.reject(error); // uncaught, it would end pi
    }
  }

  function fail(sentence) {
    bridge.isOpen = false;
    for (const one of waiting.values()) one.reject(new Error(sentence));
  }

  function send(message) {
    const line = `${JSON.stringify(message)}\n`;
    if (Buffer.byteLength(line) > longest)
      throw new Error("The input is too long. Put long material into a file and name the file.");
    child.stdin.write(line);
  }

  // The answer. A call lives until it is answered; when `signal` says so it is cancelled, and still answered.
  async function ask(message, { signal, onPartial, onSession } = {}) {
    if (!bridge.isOpen) throw new Error("Retinue has ended. Try again: it is started anew.");
    const id = String((asked += 1));
    let timer;
    const cancel = () => {
      send({ type: "cancel", id });
      timer = patience(STOPPING);
    };
    const patience = (time) =>
      setTimeout(() => waiting.get(id)?.reject(new Error("Retinue does not answer. What ran is kept: retinue sessions.")), time);
    try {
      return await new Promise((resolve, reject) => {
        waiting.set(id, { resolve, reject, onPartial, onSession });
        if (message.type === "tools") timer = patience(STARTING);
        send({ ...message, id });
        if (signal?.aborted) cancel();
        else signal?.addEventListener("abort", cancel, { once: true });
      });
    } finally {
      waiting.delete(id);
      clearTimeout(timer);
      signal?.removeEventListener("abort", cancel);
    }
  }

  // Gives Retinue the runs of a session from pi's own log, in case its store lacks them. Once; never answered.
  function restore(runs) {
    const [{ sessionId }] = runs;
    if (restored.has(sessionId)) return;
    restored.add(sessionId);
    for (let from = 0; from < runs.length; from += 1) {
      try {
        send({ type: "restore", sessions: runs.slice(from) });
        return;
      } catch {
        // too long, or nested too deeply: tried without the oldest run
      }
    }
  }

  // Asks it to stop what runs, to answer and to end. Without the message it would take pi for crashed.
  async function end() {
    bridge.isOpen = false;
    child.stdin.end(`${JSON.stringify({ type: "shutdown" })}\n`);
    const timers = ["SIGTERM", "SIGKILL"].map((signal, at) => setTimeout(() => child.kill(signal), ENDING * (at + 1)));
    await ended;
    timers.forEach(clearTimeout);
  }

  return bridge;
}
