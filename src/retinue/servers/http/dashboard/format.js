// Formats numbers, times and names for people. Pure functions; an unknown value is "—", never zero.

export const UNKNOWN = "—";
const WORKTREE = /\/worktrees\/([^/]+)-[0-9a-f]{8}\/([0-9a-f]{8})(?:\/|$)/;
const NO_SANDBOX = { mode: "off" };

export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return UNKNOWN;
  const whole = Math.max(0, seconds);
  if (whole < 9.95) return `${whole.toFixed(1)}s`;
  const rounded = Math.round(whole);
  if (rounded < 60) return `${rounded}s`;
  if (rounded < 3600) return `${Math.floor(rounded / 60)}m ${two(rounded % 60)}s`;
  return `${Math.floor(rounded / 3600)}h ${two(Math.floor((rounded % 3600) / 60))}m`;
}

// Formats a limit as a round number: "30m", not "30m 00s".
export function roundDuration(seconds) {
  if (!seconds) return UNKNOWN;
  if (seconds < 60) return `${Math.round(seconds)}s`;
  if (seconds % 60 || seconds < 3600) return seconds % 60 ? duration(seconds) : `${seconds / 60}m`;
  return seconds % 3600 ? duration(seconds) : `${seconds / 3600}h`;
}

// Formats the time of a running run in whole seconds: tenths would change with every update.
export function wholeSeconds(seconds) {
  return seconds == null ? UNKNOWN : duration(seconds < 10 ? Math.floor(seconds) : seconds).replace(/\.0s$/, "s");
}

export function count(number) {
  if (number == null) return UNKNOWN;
  if (number < 1000) return String(number);
  const [unit, name] = number < 999_500 ? [1e3, "k"] : number < 999_500_000 ? [1e6, "M"] : [1e9, "G"];
  const scaled = number / unit;
  return `${scaled < 9.95 ? scaled.toFixed(1) : Math.round(scaled)}${name}`;
}

export function cost(dollars) {
  if (dollars == null) return UNKNOWN;
  if (dollars === 0) return "$0";
  if (dollars < 0.001) return "<$0.001";
  return `$${dollars.toFixed(dollars < 0.1 ? 3 : 2)}`;
}

export function bytes(number) {
  if (number < 1024) return `${number} B`;
  if (number < 1024 ** 2) return `${Math.round(number / 1024)} KB`;
  return `${(number / 1024 ** 2).toFixed(1)} MB`;
}

// Returns the sandbox of a run: as it was planned until the run has ended; null if it is not known.
export function sandboxOf({ declared, actual }) {
  if (actual) return actual.sandbox ?? NO_SANDBOX;
  return declared && (declared.sandbox ?? NO_SANDBOX);
}

// Returns a sandbox with what enforces it; without a report there is none.
export function sandboxText(report) {
  return report && report.mode !== "off" ? `${report.mode} (${report.mechanism})` : "off";
}

// Returns what was changed in a worktree.
export function changesText({ files, insertions, deletions }) {
  return `${plural(files, "file")} changed, +${insertions} −${deletions}`;
}

export function tokens(usage) {
  const sum = ["input", "output", "cacheRead", "cacheWrite"].reduce((all, key) => all + (usage?.[key] ?? 0), 0);
  return sum || null;
}

// Returns the cost of several runs together, as far as it is known.
export function totalCost(rows) {
  const known = rows.map((row) => row.usage?.cost).filter((one) => one != null);
  return known.length ? known.reduce((sum, one) => sum + one, 0) : null;
}

export function clock(time) {
  return time == null ? UNKNOWN : new Date(time * 1000).toLocaleTimeString("en-GB");
}

export function dateTime(time) {
  return time == null ? UNKNOWN : `${day(time)}, ${clock(time)}`;
}

function day(time) {
  return new Date(time * 1000).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}

// Formats a day such as "2026-11-19".
export function dayLabel(iso) {
  return new Date(`${iso}T12:00`).toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short" });
}

// Formats how long ago a time was, short enough for a column.
export function timeAgo(time, now) {
  const seconds = Math.max(0, now - time);
  if (seconds < 10) return "now";
  if (seconds < 60) return `${Math.floor(seconds)}s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h ago`;
  if (seconds < 7 * 86_400) return `${Math.floor(seconds / 86_400)}d ago`;
  return day(time);
}

export function plural(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

// Returns the end of a path, which distinguishes folders; of a worktree of ours its repository.
export function lastFolders(path) {
  const [, repository, id] = WORKTREE.exec(path ?? "") ?? [];
  if (id) return `${repository} (worktree ${id})`;
  return String(path ?? "").split("/").filter(Boolean).slice(-2).join("/") || "/";
}

export function shortId(id) {
  return String(id ?? "").slice(0, 8);
}

// Returns the seconds of a run: final when it has ended, counted from its start while it runs, unknown while queued.
export function elapsed(row, now) {
  if (row.state === "running" && row.started != null) return Math.max(0, now - row.started);
  return row.elapsed ?? (row.started != null && row.ended != null ? row.ended - row.started : null);
}

const STATES = new Set(["queued", "running", "completed", "error"]);

export const OUTCOMES = {
  queued: "Queued",
  running: "Running",
  completed: "Completed",
  failed: "Failed",
  timed_out: "Timed out",
  cancelled: "Cancelled",
  interrupted: "Interrupted",
};

// Endings that are not the agent's failure, by code: their icon and their outcome.
const ENDS = {
  aborted: ["stopped", "cancelled"],
  interrupted: ["stopped", "interrupted"],
  timeout: ["late", "timed_out"],
  idle_timeout: ["late", "timed_out"],
};

// Returns the outcome of a run, as the server names it.
export function outcome(row) {
  return ENDS[row.failure?.code]?.[1] ?? (row.state === "error" ? "failed" : row.state);
}

// Returns the icon of a run: its state or, if it did not complete, whether it was stopped, timed out or failed.
export function appearance(row) {
  return ENDS[row.failure?.code]?.[0] ?? (STATES.has(row.state) ? row.state : "queued");
}

// Returns the state of a run in a word.
export function stateLabel(row) {
  return OUTCOMES[outcome(row)] ?? row.state;
}

// Returns how many runs are in each state that needs attention, with the class of its color.
export function stateSummary(rows) {
  const counts = new Map();
  for (const row of rows) {
    if (row.state === "completed") continue;
    const kind = appearance(row);
    const label = stateLabel(row).toLowerCase();
    counts.set(label, { kind, number: (counts.get(label)?.number ?? 0) + 1 });
  }
  return [...counts].map(([label, { kind, number }]) => ({ kind, text: `${number} ${label}` }));
}

// Returns the title of a failure.
export function failureLabel({ code }) {
  return OUTCOMES[ENDS[code]?.[1]] ?? `Failed: ${String(code).replaceAll("_", " ")}`;
}

// Returns the first line of a message; the lines below say what was kept and what to do.
export function firstLine(message) {
  return message.split("\n", 1)[0];
}

// Formats the tools of a definition; without a list, the agent has the tools of its caller.
export function toolNames(tools) {
  return tools == null ? "inherited" : tools.join(", ") || "none";
}

function two(number) {
  return String(number).padStart(2, "0");
}
