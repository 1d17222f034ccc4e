// The filters of the activity: their names in the URL, the query of the server, and rows that match. Pure functions.

import { outcome } from "./format.js";
import { isLive } from "./store.js";

export const NAMES = ["q", "outcome", "live", "agent", "engine", "model", "cwd", "age", "day", "minCost", "minElapsed"];
export const NO_TEXT_INDEX = "Searched every record, which takes longer: the server has no full-text index.";
const DAY = 86_400; // seconds
const OLD_STATES = { queued: "queued", running: "running", completed: "completed", error: "failed" };

// Returns the filters in the query of a URL; `state` is the name in older links.
export function parseFilters(query) {
  const found = Object.fromEntries(NAMES.map((name) => [name, query[name]]));
  return dropEmpty({ ...found, outcome: found.outcome ?? OLD_STATES[query.state] });
}

export function dropEmpty(filters) {
  return Object.fromEntries(Object.entries(filters).filter(([, value]) => value));
}

export function isEqual(one, other) {
  return NAMES.every((name) => one[name] === other[name]);
}

// Returns the query that the server understands: dates become times.
export function toQuery({ age, day, ...rest }, now = Date.now() / 1000) {
  const midnight = day ? new Date(`${day}T00:00`).getTime() / 1000 : NaN;
  if (Number.isFinite(midnight)) return { ...rest, since: midnight, until: nextMidnight(midnight) };
  return Number(age) > 0 ? { ...rest, since: Math.floor(now - Number(age) * DAY) } : rest;
}

// Days have 23 to 25 hours.
function nextMidnight(midnight) {
  const date = new Date(midnight * 1000);
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() + 1).getTime() / 1000;
}

// Returns a predicate for rows that match the filters, as the server applies them.
export function filterPredicate(filters) {
  const { agent, engine, model, cwd, live, q, outcome: wanted, minCost, minElapsed, since, until } = toQuery(filters);
  const words = (q ?? "").trim().toLowerCase();
  return (row) => {
    const changed = row.ended ?? Date.now() / 1000;
    return (
      (!wanted || outcome(row) === wanted) &&
      (!agent || row.agent === agent) &&
      (!engine || row.engine === engine) &&
      (!model || row.model === model) &&
      (!cwd || row.cwd === cwd) &&
      (!live || isLive(row)) &&
      (!minCost || (row.usage?.cost ?? -1) >= Number(minCost)) &&
      (!minElapsed || (row.elapsed ?? -1) >= Number(minElapsed)) &&
      (!since || changed >= since) &&
      (!until || changed < until) &&
      (!words || [row.name, row.agent, row.task, row.preview].some((text) => text?.toLowerCase().includes(words)))
    );
  };
}
