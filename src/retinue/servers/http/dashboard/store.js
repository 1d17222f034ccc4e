// The activity as a fold: groups of rows, and what a row that arrives changes in them. Pure; unchanged parts keep their
// identity, so that only what changed is drawn again.

import { stateWord } from "./format.js";

export function isLive(row) {
  return row.state === "queued" || row.state === "running";
}

// The groups after some rows arrived, in the order they came. What is on the screen stays where it is; a root that was
// not there comes first. With a filter, a new row is shown only if it matches; one that is shown already stays, until
// its session goes on: a session is listed once, by its latest run.
export function withRows(before, arrived, matches = () => true) {
  const latest = new Map(arrived.map((row) => [row.session, row]));
  const isOver = (row) => latest.has(row.session) && isEarlier(row, latest.get(row.session));
  const rows = arrived.filter((row) => !isOver(row));
  const groups = withoutRows(before, isOver);
  const places = new Map(groups.map((group, index) => [group.root, index]));
  const changed = new Map();
  const fresh = new Map();
  for (const row of rows) {
    const place = places.get(row.root);
    const group = changed.get(row.root) ?? (place === undefined ? fresh.get(row.root) : groups[place]);
    const next = withRow(group ?? { root: row.root, runs: [], more: 0 }, row, matches);
    if (next === group || next.runs.length === 0) continue;
    (place === undefined ? fresh : changed).set(row.root, next);
  }
  if (changed.size === 0 && fresh.size === 0) return groups;
  const kept = groups.map((group) => changed.get(group.root) ?? group);
  return [...[...fresh.values()].reverse(), ...kept];
}

function withoutRows(groups, isOver) {
  if (!groups.some((group) => group.runs.some(isOver))) return groups;
  return groups
    .map((group) => ({ ...group, runs: group.runs.filter((row) => !isOver(row)) }))
    .filter((group) => group.runs.length > 0);
}

// Whether a row is of a run of the same session before that of the other.
function isEarlier(row, other) {
  return row.run !== other.run && row.created <= other.created;
}

function withRow(group, row, matches) {
  const index = group.runs.findIndex((one) => one.run === row.run);
  if (index < 0 && !matches(row)) return group;
  const runs = index < 0 ? inTreeOrder([...group.runs, row]) : group.runs.with(index, row);
  return { ...group, runs };
}

// Parents before their children, older before newer beside each other. A run whose parent is not here stands on top. A
// session is listed by its latest run, and has below it what any of its runs asked for.
export function inTreeOrder(rows) {
  const here = new Set(rows.map((row) => row.session));
  const below = new Map();
  for (const row of rows) {
    const above = row.parentSession;
    const parent = here.has(above) && above !== row.session ? above : null;
    below.set(parent, [...(below.get(parent) ?? []), row]);
  }
  for (const list of below.values()) list.sort((one, other) => one.created - other.created);
  const found = new Set();
  const open = [...(below.get(null) ?? [])].reverse();
  while (open.length) {
    const row = open.pop();
    found.add(row);
    open.push(...[...(below.get(row.session) ?? [])].reverse());
  }
  return [...new Set([...found, ...rows])]; // who names each other as parents, as only a damaged record can, is shown too
}

// The tree around a run, with that run in the place of others of its session.
export function around(run, rows) {
  return inTreeOrder([...rows.filter((row) => row.session !== run.session), run]);
}

// More groups from an older page, without those that are here already.
export function withOlder(groups, older) {
  const here = new Set(groups.map((group) => group.root));
  return [...groups, ...older.filter((group) => !here.has(group.root))];
}

// Whether a row is what the filters ask for, as the server understands them.
export function matching({ state, agent, engine, live, q }) {
  const words = (q ?? "").trim().toLowerCase();
  return (row) =>
    (!state || row.state === state) &&
    (!agent || row.agent === agent) &&
    (!engine || row.engine === engine) &&
    (!live || isLive(row)) &&
    (!words || [row.name, row.agent, row.task, row.preview].some((text) => text?.toLowerCase().includes(words)));
}

// What became of each run that changed its state, in words to be read out.
export function announcements(before, after) {
  const states = new Map(before.flatMap((group) => group.runs).map((row) => [row.run, row.state]));
  return after
    .flatMap((group) => group.runs)
    .filter((row) => states.get(row.run) !== row.state && (states.has(row.run) || row.state === "running"))
    .map((row) => `${row.name}: ${stateWord(row)}`);
}
