// The groups of the activity and how arriving rows change them. Pure functions; unchanged parts keep their identity, so
// that only changed parts are drawn again.

import { stateLabel } from "./format.js";

export function isLive(row) {
  return row.state === "queued" || row.state === "running";
}

// Returns the groups after rows arrived. Groups on the screen keep their place; new roots come first. With a filter, a
// new row is added only if it matches; a row that is shown stays until its session continues in another run, because a
// session is listed once, by its latest run.
export function mergeRows(before, arrived, matches = () => true) {
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

// Returns whether a row is an earlier run of the same session than the other.
function isEarlier(row, other) {
  return row.run !== other.run && row.created <= other.created;
}

function withRow(group, row, matches) {
  const index = group.runs.findIndex((one) => one.run === row.run);
  if (index < 0 && !matches(row)) return group;
  const runs = index < 0 ? sortAsTree([...group.runs, row]) : group.runs.with(index, row);
  const total = group.total === undefined ? undefined : group.total + (index < 0 ? 1 : 0);
  return { ...group, runs, total };
}

// Sorts parents before children and older before newer siblings. A run whose parent is missing is at the top. A session
// is listed by its latest run, with the child runs of all its runs below it.
export function sortAsTree(rows) {
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
  return [...new Set([...found, ...rows])]; // rows with cyclic parents, from damaged records, come last
}

// Returns the number of child runs that each run waits for.
export function countAwaited(rows) {
  const awaited = new Map();
  for (const row of rows) if (isLive(row) && row.parentRun) awaited.set(row.parentRun, (awaited.get(row.parentRun) ?? 0) + 1);
  return awaited;
}

// Returns the rows that are not below a closed one, each with the number of its descendants and of the child runs that
// it waits for.
export function visibleRows(rows, closed) {
  const awaited = countAwaited(rows);
  const parents = new Map(rows.map((row) => [row.session, row.parentSession]));
  const below = new Map();
  const hidden = new Set();
  for (const row of rows) {
    let above = row.parentSession;
    for (let level = 0; parents.has(above) && above !== row.session && level < rows.length; level += 1) {
      below.set(above, (below.get(above) ?? 0) + 1);
      if (closed.has(above)) hidden.add(row.session);
      above = parents.get(above);
    }
  }
  return rows
    .filter((row) => !hidden.has(row.session))
    .map((row) => ({ row, awaited: awaited.get(row.run) ?? 0, below: below.get(row.session) ?? 0, isClosed: below.has(row.session) && closed.has(row.session) }));
}

// Returns the tree with a run in place of other runs of its session.
export function treeAround(run, rows) {
  return sortAsTree([...rows.filter((row) => row.session !== run.session), run]);
}

// Appends the groups of an older page that are not listed yet.
export function appendOlder(groups, older) {
  const here = new Set(groups.map((group) => group.root));
  return [...groups, ...older.filter((group) => !here.has(group.root))];
}

// Returns an announcement for each run whose state changed.
export function announcements(before, after) {
  const states = new Map(before.flatMap((group) => group.runs).map((row) => [row.run, row.state]));
  return after
    .flatMap((group) => group.runs)
    .filter((row) => states.get(row.run) !== row.state && (states.has(row.run) || row.state === "running"))
    .map((row) => `${row.name}: ${stateLabel(row)}`);
}
