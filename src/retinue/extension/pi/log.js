// The log of agents in pi's own session: an entry for each task when it starts and when it ends, with the session data
// and the call that started it, and the view of each call. Entries may come from any program: invalid ones are skipped.

import { plain } from "./drawing.js";

const SESSION_ENTRY = "pi-subagents"; // the name that pi's subagent extensions use
const VIEW_ENTRY = "pi-subagents-view";
const INTERRUPTED = "Session was interrupted (main agent session ended unexpectedly)";
const ICONS = new Map([
  ["running", "…"],
  ["completed", "✓"],
  ["error", "✗"],
]);
const SESSION_ID = /^[0-9A-Za-z-]{8,64}$/;
const MAX_MESSAGES = 1000; // per run
const MAX_RUNS = 10; // per session, the newest
const MAX_NAME = 200; // characters of a task's name
const MAX_ERROR = 1000;
const MAX_LISTED = 200; // sessions in the list, the newest
const MAX_VIEW = 256 * 1024; // characters of a stored view
const MAX_VIEW_LINES = 10_000;

export function createLog(pi) {
  const sessions = new Map(); // runs of each session, oldest first, by session id
  const calls = new Map(); // runs that each call started, by call id and session id
  const interrupted = new Map(); // lines of calls without a result, by call id: pi was killed in between
  const views = new Map(); // by call id
  const redraws = new Map(); // redraw functions of calls that were drawn before their view was known

  function append(type, data, onError) {
    try {
      pi.appendEntry(type, data);
    } catch (error) {
      onError(error);
    }
  }

  // Adds a run; a run that has ended replaces its own entry from the start.
  function put(run) {
    const runs = sessions.get(run.sessionId) ?? [];
    if (runs.at(-1)?.status === "running") runs.pop();
    sessions.delete(run.sessionId); // the newest session comes last
    sessions.set(run.sessionId, [...runs, run].slice(-MAX_RUNS));
    if (!run.toolCallId) return;
    if (!calls.has(run.toolCallId)) calls.set(run.toolCallId, new Map());
    calls.get(run.toolCallId).set(run.sessionId, run);
  }

  // Records a run as interrupted.
  function recordInterruption(run, onError) {
    const ended = { ...run, status: "error", exitCode: 1, errorMessage: INTERRUPTED };
    put(ended);
    append(SESSION_ENTRY, ended, onError);
  }

  function describe(call) {
    return [...(calls.get(call)?.values() ?? [])].map(formatRun);
  }

  return {
    // Loads the entries that earlier processes left in pi's session, and ends the tasks that were still running.
    load(entries, onError) {
      const answered = new Set();
      for (const entry of entries) {
        if (entry?.type === "message" && entry.message?.role === "toolResult") answered.add(entry.message.toolCallId);
        if (entry?.type !== "custom") continue;
        if (entry.customType === SESSION_ENTRY) {
          const run = readRun(entry.data);
          if (run) put(run);
        } else if (entry.customType === VIEW_ENTRY) {
          const view = readView(entry.data?.view);
          if (view && typeof entry.data.toolCallId === "string") views.set(entry.data.toolCallId, view);
        }
      }
      for (const runs of [...sessions.values()]) if (isRunning(runs)) recordInterruption(runs.at(-1), onError);
      for (const call of calls.keys()) if (!answered.has(call)) interrupted.set(call, describe(call));
      for (const [call, redraw] of redraws) if (views.has(call) || interrupted.has(call)) redraw();
      redraws.clear();
    },

    // Stores the data of a task that has started or ended.
    write(call, data, onError) {
      const entry = { ...data, toolCallId: call };
      const run = readRun(entry);
      if (!run) return;
      put(run);
      append(SESSION_ENTRY, entry, onError);
    },

    // Records the running tasks of a call as interrupted; returns a line for each task of the call.
    interrupt(call, onError) {
      for (const run of calls.get(call)?.values() ?? []) if (run.status === "running") recordInterruption(run, onError);
      return describe(call);
    },

    // Returns the lines of a call without a result; `redraw` is called once they are known.
    interruptedLines(call, redraw) {
      if (!interrupted.has(call) && redraw) redraws.set(call, redraw);
      return interrupted.get(call) ?? [];
    },

    // Returns the messages with a result for each interrupted call; undefined if every call has a result.
    completeMessages(messages) {
      if (interrupted.size === 0) return undefined;
      const answered = new Set(messages.map(({ toolCallId }) => toolCallId));
      return messages.flatMap((message) => {
        const blocks = message.role === "assistant" ? message.content : [];
        const unanswered = blocks.filter(({ type, id }) => type === "toolCall" && interrupted.has(id) && !answered.has(id));
        return [message, ...unanswered.map(({ id, name }) => makeResult(id, name, interrupted.get(id), message.timestamp))];
      });
    },

    // Returns the runs of each session that a call names and that is not running.
    findNamedSessions(params) {
      const text = JSON.stringify(params) ?? "";
      return [...sessions].filter(([id, runs]) => text.includes(id) && !isRunning(runs)).map(([, runs]) => runs);
    },

    setView(call, view) {
      if (view) views.set(call, view);
      else views.delete(call);
    },

    storeView(call, onError) {
      const view = views.get(call);
      if (!view) return;
      const isSmall = JSON.stringify(view).length <= MAX_VIEW;
      const stored = isSmall ? view : { ...view, expanded: view.lines };
      if (isSmall || JSON.stringify(stored).length <= MAX_VIEW) append(VIEW_ENTRY, { toolCallId: call, view: stored }, onError);
    },

    // Returns the view of a call; `redraw` is called once it is known.
    view(call, redraw) {
      if (!views.has(call) && redraw) redraws.set(call, redraw);
      return views.get(call);
    },

    list() {
      const newest = [...sessions.values()].slice(-MAX_LISTED);
      const more = sessions.size - newest.length;
      return [...(more ? [`(${more} earlier sessions)`] : []), ...newest.map((runs) => formatRun(runs.at(-1)))];
    },

    clear() {
      for (const map of [sessions, calls, interrupted, views, redraws]) map.clear();
    },
  };
}

function formatRun({ status, taskName, errorMessage, sessionId }) {
  const outcome = status === "error" ? `error — ${plain(errorMessage ?? "unknown").slice(0, MAX_ERROR)}` : status;
  return `${ICONS.get(status)} ${plain(taskName).slice(0, MAX_NAME)}: ${outcome} (session: ${sessionId})`;
}

function isRunning(runs) {
  return runs.at(-1).status === "running";
}

function makeResult(toolCallId, toolName, lines, timestamp) {
  const content = [{ type: "text", text: lines.join("\n") }];
  return { role: "toolResult", toolCallId, toolName, content, isError: true, timestamp };
}

// Returns the run in an entry with its known fields; undefined if the entry is invalid.
function readRun(data) {
  if (typeof data !== "object" || data === null) return undefined;
  const { sessionId, taskName, prompt, status, messages } = data;
  if (![sessionId, taskName, prompt].every((text) => typeof text === "string")) return undefined;
  if (!SESSION_ID.test(sessionId) || !ICONS.has(status)) return undefined;
  if (!Array.isArray(messages) || messages.length > MAX_MESSAGES) return undefined;
  if (!messages.every((message) => typeof message?.role === "string")) return undefined;
  const text = (name) => (typeof data[name] === "string" ? data[name] : undefined);
  return {
    sessionId,
    toolCallId: text("toolCallId"),
    taskName,
    prompt,
    cwd: text("cwd"),
    profileName: text("profileName"),
    status,
    messages,
    exitCode: Number.isSafeInteger(data.exitCode) ? data.exitCode : undefined,
    model: text("model"),
    stopReason: text("stopReason"),
    errorMessage: text("errorMessage"),
    startedAt: Number.isFinite(data.startedAt) ? data.startedAt : undefined,
  };
}

function readView(view) {
  const lines = readLines(view?.lines);
  const expanded = readLines(view?.expanded);
  if (!lines || !expanded) return undefined;
  const { bodies, maxLines } = view;
  if (bodies === undefined) return { lines, expanded };
  const isBody = ({ start, end, earlier } = {}) =>
    [start, end, earlier].every(Number.isSafeInteger) && start > 0 && start <= end && end <= lines.length;
  if (!Array.isArray(bodies) || !bodies.every((body) => isBody(body ?? {}))) return undefined;
  return { lines, expanded, bodies, maxLines: Number.isSafeInteger(maxLines) ? maxLines : lines.length };
}

function readLines(lines) {
  if (!Array.isArray(lines) || lines.length > MAX_VIEW_LINES) return undefined;
  const isSpan = (span) => Array.isArray(span) && span.length === 2 && span.every((part) => typeof part === "string");
  if (!lines.every((spans) => Array.isArray(spans) && spans.every(isSpan))) return undefined;
  return lines.map((spans) => spans.map(([text, style]) => [plain(text), style]));
}
