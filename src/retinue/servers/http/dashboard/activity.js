// The activity: all runs, grouped by root conversation, newest first, updated live.

import { html, useEffect, useRef, useState, Button, Copy, Empty, Failed, Icon } from "./ui.js";
import { get } from "./api.js";
import { useCommands } from "./commands.js";
import { createSignal, useSignal } from "./signal.js";
import { Filters, useFilters } from "./filters.js";
import { NO_TEXT_INDEX, filterPredicate, toQuery } from "./filters-model.js";
import { foldAll, folding, Group, isGroupOpen, isTree } from "./group.js";
import { announcements, appendOlder, mergeRows } from "./store.js";
import { openStream, retryUntilReachable } from "./stream.js";
import { announce } from "./live-region.js";

const FIRST_COMMAND = 'retinue run explorer "Where is the configuration read?"';
const PAGE_SIZE = 30; // roots
const ROOTS_PER_FRAME = 8; // roots added to the list per frame

let lastFilters = {}; // of the list, for the list beside a run

// The view of all runs or, with the run that is open, the list beside it.
export function Activity({ onNew, current }) {
  const [ownFilters, setFilters] = useFilters();
  if (!current) lastFilters = ownFilters;
  const filters = lastFilters;
  const model = useRef(null);
  model.current ??= createActivityModel();
  const { groups, next, error, isLoading, indexing, scansRecords } = useSignal(model.current.snapshot);
  useEffect(() => model.current.open(filters), [filters]);
  const most = useGradualCount(groups?.length ?? 0, filters);
  const isFiltered = Object.values(filters).some(Boolean);
  const fold = useFolding(groups ?? [], isFiltered, current);
  const [Frame, frame] = current
    ? ["aside", { "aria-label": "Runs" }]
    : ["main", { id: "main", tabindex: "-1", "aria-busy": isLoading }];
  return html`
    <${Frame} class="activity" ...${frame}>
      ${!current && html`<h1 class="unseen">Activity</h1>`}
      ${!current && html`<${Filters} filters=${filters} onChange=${setFilters} isIndexing=${indexing != null || !groups}>${fold && html`<${Button} kind="fold-all" onClick=${fold.run}>${fold.label}<//>`}<//>`}
      ${indexing && html`<${Indexing} ...${indexing} isSearch=${Boolean(filters.q)} />`}
      ${!indexing && scansRecords && html`<p class="indexing" role="status">${NO_TEXT_INDEX}</p>`}
      ${error && html`<${Failed} heading="p" error=${error} again=${() => model.current.open(filters)} />`}
      ${groups?.slice(0, most).map((group) => html`<${Group} key=${group.root} group=${group} isFiltered=${isFiltered} current=${current} />`)}
      ${
        groups?.length === 0 &&
        !error &&
        !indexing &&
        html`<${NoRuns} isFiltered=${isFiltered} onNew=${onNew} onClear=${() => setFilters({})} />`
      }
      ${!groups && !error && html`<${Skeleton} />`}
      ${next && html`<p class="older"><${Button} onClick=${model.current.older} disabled=${isLoading}>Older<//></p>`}
    <//>
  `;
}

// Returns the command that opens or closes all conversations; null without one of several runs.
function useFolding(groups, isFiltered, current) {
  useSignal(folding);
  const trees = groups.filter(isTree);
  const isOpen = trees.some((group) => isGroupOpen(group, isFiltered, current));
  const label = isOpen ? "Collapse all" : "Expand all";
  const command = trees.length > 0 && { label, key: "z", run: () => foldAll(trees, !isOpen) };
  useCommands(command ? [command] : [], [groups, isOpen]);
  return command || null;
}

// Returns how many roots to draw: a few at first and more with every frame, so that no frame takes long.
function useGradualCount(length, list) {
  const drawn = useRef({});
  if (drawn.current.list !== list) drawn.current = { list, most: ROOTS_PER_FRAME };
  const [, again] = useState(0);
  const { most } = drawn.current;
  useEffect(() => {
    if (most >= length) return undefined;
    const frame = requestAnimationFrame(() => again((drawn.current.most = most + ROOTS_PER_FRAME)));
    return () => cancelAnimationFrame(frame);
  }, [most, length]);
  return most;
}

// The list and its updates from the stream. Arriving rows are applied once per frame, the last row of each run.
function createActivityModel() {
  const snapshot = createSignal({ groups: null, next: null, error: null, isLoading: true });
  const arrived = new Map();
  let filters = {};
  let close = () => {};
  let opening = null;

  function open(newFilters) {
    filters = newFilters;
    opening?.abort();
    close();
    opening = new AbortController();
    load(opening.signal);
    return () => {
      opening.abort();
      close();
    };
  }

  async function load(signal) {
    snapshot.set((now) => ({ ...now, isLoading: true, error: null }));
    try {
      const { groups, next, cursor, indexing, scansRecords } = await page({}, signal);
      arrived.clear();
      snapshot.set({ groups, next, indexing, scansRecords, error: null, isLoading: false });
      close = openStream({ rows: true }, cursor, { on: handleMessage, onResync: () => load(signal) });
      if (indexing) await loadRest(signal);
    } catch (error) {
      if (!signal.aborted) snapshot.set((now) => ({ ...now, error, isLoading: false }));
    }
  }

  // Loads the first page again while the server reads older sessions; each answer is a step of its work.
  async function loadRest(signal) {
    for (let indexing = true; indexing && !signal.aborted;) {
      const found = await page({}, signal);
      const { groups, next, scansRecords } = found;
      indexing = found.indexing;
      snapshot.set((now) => ({ ...now, groups, next, indexing, scansRecords }));
    }
  }

  function handleMessage(kind, row) {
    if (kind !== "row") return;
    if (arrived.size === 0) requestAnimationFrame(applyRows);
    arrived.delete(row.run); // keeps the order of the last arrivals
    arrived.set(row.run, row);
  }

  function applyRows() {
    const { groups } = snapshot.get();
    const after = mergeRows(groups, [...arrived.values()], filterPredicate(filters));
    arrived.clear();
    announce(announcements(groups, after));
    snapshot.set((now) => ({ ...now, groups: after }));
  }

  async function older() {
    const { signal } = opening; // results for other filters must be ignored
    snapshot.set((now) => ({ ...now, isLoading: true }));
    try {
      const { groups, next } = await page({ before: snapshot.get().next }, signal);
      snapshot.set((now) => ({ ...now, groups: appendOlder(now.groups, groups), next, isLoading: false }));
    } catch (error) {
      if (!signal.aborted) snapshot.set((now) => ({ ...now, error, isLoading: false }));
    }
  }

  function page(more, signal) {
    return retryUntilReachable(() => get("/activity", { limit: PAGE_SIZE, partial: true, ...toQuery(filters), ...more }, signal), signal);
  }

  return { snapshot, open, older };
}

function NoRuns({ isFiltered, onNew, onClear }) {
  if (isFiltered)
    return html`<${Empty} title="No run matches."><${Button} onClick=${onClear}>Clear the filters<//><//>`;
  return html`
    <${Empty} title="Nothing has run yet.">
      <p>Ask an agent something, here or in a terminal:</p>
      <p><code>${FIRST_COMMAND}</code> <${Copy} text=${() => FIRST_COMMAND} /></p>
      <${Button} kind="primary" icon="plus" onClick=${onNew}>New run<//>
    <//>
  `;
}

function Indexing({ done, total, isSearch }) {
  const [shown, all] = [done, total].map((number) => number.toLocaleString("en"));
  const text = isSearch
    ? `Reading ${shown} of ${all} sessions for the first search…`
    : `Indexing ${shown} of ${all} sessions… The latest are listed first.`;
  return html`
    <p class="indexing" role="status">
      <${Icon} name="running" />
      <span>${text}</span>
      <progress value=${done} max=${total} aria-label="Indexed sessions" />
    </p>
  `;
}

function Skeleton() {
  return html`
    <p class="indexing" role="status"><${Icon} name="running" /> Loading sessions…</p>
    <div class="skeleton" aria-hidden="true">${[1, 2, 3, 4].map((key) => html`<i key=${key} />`)}</div>
  `;
}
