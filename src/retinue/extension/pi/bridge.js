// One Retinue process and the messages to and from it; retinue/ipc/messages.py describes them.

import { spawn } from "node:child_process";

const START_TIMEOUT = 20_000; // milliseconds until it has listed its tools
const CANCEL_TIMEOUT = 15_000; // until a cancelled call has answered: longer than Retinue itself waits for its agents
const EXIT_TIMEOUT = 5_000; // until it has exited after a shutdown
const MAX_STDERR_CHARS = 2_000;

export function openBridge([program, ...args], cwd) {
  const pending = new Map(); // requests without an answer, by id
  const restored = new Set(); // ids of sessions that were sent to it
  let lastId = 0;
  let maxLineBytes = Infinity;
  let stderrTail = "";
  let rest = "";

  const child = spawn(program, args, { cwd, stdio: ["pipe", "pipe", "pipe"], windowsHide: true });
  const exited = new Promise((resolve) => child.once("close", resolve).once("error", resolve));
  const bridge = { isOpen: true, request, restore, close };

  child.once("error", (error) => {
    fail(`Retinue could not be started (${program}: ${error.message}). Install it, then run \`retinue install pi\` again.`);
  });
  child.once("close", (code, signal) => {
    const reason = stderrTail.trim().split("\n").at(-1)?.replace(/^error: /, "");
    fail(`Retinue has ended (${signal ?? `exit code ${code}`}): ${reason || "what ran is kept, see `retinue sessions`."}`);
  });
  child.stdin.on("error", () => {}); // it has exited, which `close` reports
  child.stderr.setEncoding("utf8").on("data", (text) => {
    stderrTail = (stderrTail + text).slice(-MAX_STDERR_CHARS);
  });
  child.stdout.setEncoding("utf8").on("data", (text) => {
    const lines = (rest + text).split("\n"); // not readline: U+2028 and its like are legal inside JSON strings
    rest = lines.pop();
    for (const line of lines) handleLine(line);
  });

  function handleLine(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      child.kill(); // not Retinue, or an incompatible one; `close` reports it
      return;
    }
    if (typeof message !== "object" || message === null) return;
    if (message.type === "hello") maxLineBytes = message.maxLineBytes;
    const sender = pending.get(message.id);
    try {
      if (message.type === "partial") sender?.onPartial?.(message);
      else if (message.type === "started" || message.type === "ended") sender?.onSession?.(message.session);
      else if (message.type === "refused") sender?.reject(new Error(message.message));
      else if (message.type === "tools" || message.type === "result") sender?.resolve(message);
    } catch (error) {
      sender.reject(error); // an uncaught error would end pi
    }
  }

  function fail(sentence) {
    bridge.isOpen = false;
    for (const { reject } of pending.values()) reject(new Error(sentence));
  }

  function send(message) {
    const line = `${JSON.stringify(message)}\n`;
    if (Buffer.byteLength(line) > maxLineBytes)
      throw new Error("The input is too long. Put long texts into a file and name the file.");
    child.stdin.write(line);
  }

  // Resolves with the answer. A call that `signal` aborts is cancelled, and still answered.
  async function request(message, { signal, onPartial, onSession } = {}) {
    if (!bridge.isOpen) throw new Error("Retinue has ended. Try again: it is started anew.");
    const id = String((lastId += 1));
    let timer;
    const cancel = () => {
      send({ type: "cancel", id });
      timer = rejectAfter(CANCEL_TIMEOUT);
    };
    const rejectAfter = (time) =>
      setTimeout(() => pending.get(id)?.reject(new Error("Retinue does not answer. What ran is kept: retinue sessions.")), time);
    try {
      return await new Promise((resolve, reject) => {
        pending.set(id, { resolve, reject, onPartial, onSession });
        if (message.type === "tools") timer = rejectAfter(START_TIMEOUT);
        send({ ...message, id });
        if (signal?.aborted) cancel();
        else signal?.addEventListener("abort", cancel, { once: true });
      });
    } finally {
      pending.delete(id);
      clearTimeout(timer);
      signal?.removeEventListener("abort", cancel);
    }
  }

  // Sends the runs of a session from pi's own log, in case Retinue's store lacks them. Once per session; not answered.
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

  // Stops all calls and waits for the exit. Without the message, Retinue would record pi as crashed.
  async function close() {
    bridge.isOpen = false;
    child.stdin.end(`${JSON.stringify({ type: "shutdown" })}\n`);
    const timers = ["SIGTERM", "SIGKILL"].map((signal, index) =>
      setTimeout(() => child.kill(signal), EXIT_TIMEOUT * (index + 1)),
    );
    await exited;
    timers.forEach(clearTimeout);
  }

  return bridge;
}
