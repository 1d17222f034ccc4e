// What pi's own session remembers of the agents: an entry for each task when it starts and when it ends, with the
// serialized session data, and how each call was drawn. Entries may come from anywhere: those that are not whole are
// skipped.

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
const MAX_MESSAGES = 1000; // of a run
const MAX_RUNS = 10; // of a session, the newest
const MAX_NAME = 200; // characters of a task's name in the list
const MAX_ERROR = 1000;
const MAX_LISTED = 200; // sessions, the newest
const MAX_VIEW = 256 * 1024; // characters of a stored drawing
const MAX_VIEW_LINES = 10_000;

export function createLog(pi) {
  const sessions = new Map(); // the runs of each session, oldest first, by its id
  const calls = new Map(); // the sessions that run now, with the call that started each
  const views = new Map(); // how calls are drawn, by the id of the call
  const redraws = new Map(); // calls that were drawn before their view was known

  function append(type, data, onError) {
    try {
      pi.appendEntry(type, data);
    } catch (error) {
      onError(error);
    }
  }

  // The run that `data` describes; a run that ends takes the place of the same run when it started.
  function put(run) {
    const runs = sessions.get(run.sessionId) ?? [];
    if (runs.at(-1)?.status === "running") runs.pop();
    sessions.delete(run.sessionId); // the newest session comes last
    sessions.set(run.sessionId, [...runs, run].slice(-MAX_RUNS));
  }

  return {
    // Reads what earlier processes left in pi's session.
    recall(entries) {
      for (const entry of entries) {
        if (entry?.type !== "custom") continue;
        if (entry.customType === SESSION_ENTRY) {
          const run = readRun(entry.data);
          if (run) put(run);
        } else if (entry.customType === VIEW_ENTRY) {
          const view = readView(entry.data?.view);
          if (view && typeof entry.data.toolCallId === "string") views.set(entry.data.toolCallId, view);
        }
      }
      for (const runs of sessions.values()) {
        const last = runs.at(-1);
        if (last.status === "running") runs[runs.length - 1] = interrupted(last);
      }
      for (const [call, redraw] of redraws) if (views.has(call)) redraw();
      redraws.clear();
    },

    // Stores what a task is doing: it has started, or it has ended.
    write(call, data, onError) {
      const run = readRun(data);
      if (!run) return;
      put(run);
      if (run.status === "running") calls.set(run.sessionId, call);
      else calls.delete(run.sessionId);
      append(SESSION_ENTRY, data, onError);
    },

    // Ends the tasks of a call that nobody carries out any more; a line for each.
    interrupt(call, onError) {
      const ids = [...calls].filter(([, by]) => by === call).map(([id]) => id);
      for (const id of ids) {
        const run = interrupted(sessions.get(id).at(-1));
        put(run);
        calls.delete(id);
        append(SESSION_ENTRY, run, onError);
      }
      return ids.map((id) => line(sessions.get(id).at(-1)));
    },

    // The sessions that a call names and that do not run, each with its runs.
    named(params) {
      const text = JSON.stringify(params) ?? "";
      const ids = [...sessions.keys()].filter((id) => text.includes(id) && !calls.has(id));
      return ids.map((id) => sessions.get(id));
    },

    setView(call, view) {
      if (view) views.set(call, view);
      else views.delete(call);
    },

    storeView(call, onError) {
      const view = views.get(call);
      if (!view) return;
      const isSmall = JSON.stringify(view).length <= MAX_VIEW;
      const kept = isSmall ? view : { ...view, expanded: view.lines };
      if (isSmall || JSON.stringify(kept).length <= MAX_VIEW) append(VIEW_ENTRY, { toolCallId: call, view: kept }, onError);
    },

    // How a call is drawn; `redraw` is called once that is known.
    view(call, redraw) {
      if (!views.has(call) && redraw) redraws.set(call, redraw);
      return views.get(call);
    },

    list() {
      const newest = [...sessions.values()].slice(-MAX_LISTED);
      const more = sessions.size - newest.length;
      return [...(more ? [`(${more} earlier sessions)`] : []), ...newest.map((runs) => line(runs.at(-1)))];
    },

    clear() {
      for (const each of [sessions, calls, views, redraws]) each.clear();
    },
  };
}

function line({ status, taskName, errorMessage, sessionId }) {
  const outcome = status === "error" ? `error — ${plain(errorMessage ?? "unknown").slice(0, MAX_ERROR)}` : status;
  return `${ICONS.get(status)} ${plain(taskName).slice(0, MAX_NAME)}: ${outcome} (session: ${sessionId})`;
}

function interrupted(run) {
  return { ...run, status: "error", exitCode: 1, errorMessage: INTERRUPTED };
}

// The run in an entry, with the fields that are known; nothing if it is not one.
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
