// The activity: every run under the root conversation that asked for it, newest first, as it changes.

import { html, useEffect, useRef, useState, Button, Empty, Failed } from "./ui.js";
import { get } from "./api.js";
import { cell, useCell } from "./signal.js";
import { Filters, useFilters } from "./filters.js";
import { Group } from "./rows.js";
import { announcements, matching, withOlder, withRows } from "./store.js";
import { openStream, untilReached } from "./stream.js";
import { announce } from "./live-region.js";

const PAGE = 30; // roots
const AT_ONCE = 8; // roots that are drawn in one frame

export function Activity({ onNew }) {
  const [filters, setFilters] = useFilters();
  const model = useRef(null);
  model.current ??= activityModel();
  const { groups, next, error, isLoading } = useCell(model.current.picture);
  useEffect(() => model.current.open(filters), [filters]);
  const most = useGradually(groups?.length ?? 0, filters);
  const isFiltered = Object.values(filters).some(Boolean);
  return html`
    <main id="main" tabindex="-1" class="activity" aria-busy=${isLoading}>
      <h1 class="unseen">Activity</h1>
      <${Filters} filters=${filters} onChange=${setFilters} />
      ${error && html`<${Failed} heading="p" error=${error} again=${() => model.current.open(filters)} />`}
      ${groups?.slice(0, most).map((group) => html`<${Group} key=${group.root} group=${group} />`)}
      ${
        groups?.length === 0 &&
        !error &&
        html`<${Nothing} isFiltered=${isFiltered} onNew=${onNew} onClear=${() => setFilters({})} />`
      }
      ${!groups && !error && html`<${Skeleton} />`}
      ${next && html`<p class="older"><${Button} onClick=${model.current.older} disabled=${isLoading}>Older<//></p>`}
    </main>
  `;
}

// How many roots are drawn by now: a few at first, and a few more with every frame, so that no frame takes long.
function useGradually(length, list) {
  const drawn = useRef({});
  if (drawn.current.list !== list) drawn.current = { list, most: AT_ONCE };
  const [, again] = useState(0);
  const { most } = drawn.current;
  useEffect(() => {
    if (most >= length) return undefined;
    const frame = requestAnimationFrame(() => again((drawn.current.most = most + AT_ONCE)));
    return () => cancelAnimationFrame(frame);
  }, [most, length]);
  return most;
}

// What the view shows, kept up to date by the stream. Rows that arrive are taken in once per frame, the last of each.
function activityModel() {
  const picture = cell({ groups: null, next: null, error: null, isLoading: true });
  const arrived = new Map();
  let filters = {};
  let close = () => {};
  let opening = null;

  function open(wanted) {
    filters = wanted;
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
    picture.set((now) => ({ ...now, isLoading: true, error: null }));
    try {
      const { groups, next, cursor } = await page({}, signal);
      arrived.clear();
      picture.set({ groups, next, error: null, isLoading: false });
      close = openStream({ rows: true }, cursor, { on: heard, onResync: () => load(signal) });
    } catch (error) {
      if (!signal.aborted) picture.set((now) => ({ ...now, error, isLoading: false }));
    }
  }

  function heard(kind, row) {
    if (kind !== "row") return;
    if (arrived.size === 0) requestAnimationFrame(take);
    arrived.delete(row.run); // so that it stands where it came last
    arrived.set(row.run, row);
  }

  function take() {
    const { groups } = picture.get();
    const after = withRows(groups, [...arrived.values()], matching(filters));
    arrived.clear();
    announce(announcements(groups, after));
    picture.set((now) => ({ ...now, groups: after }));
  }

  async function older() {
    const { signal } = opening; // what comes after the filters were changed belongs to another list
    picture.set((now) => ({ ...now, isLoading: true }));
    try {
      const { groups, next } = await page({ before: picture.get().next }, signal);
      picture.set((now) => ({ ...now, groups: withOlder(now.groups, groups), next, isLoading: false }));
    } catch (error) {
      if (!signal.aborted) picture.set((now) => ({ ...now, error, isLoading: false }));
    }
  }

  function page(more, signal) {
    return untilReached(() => get("/activity", { limit: PAGE, ...filters, ...more }, signal), signal);
  }

  return { picture, open, older };
}

function Nothing({ isFiltered, onNew, onClear }) {
  if (isFiltered)
    return html`<${Empty} title="No run matches."><${Button} onClick=${onClear}>Clear the filters<//><//>`;
  return html`
    <${Empty} title="Nothing has run yet.">
      <p>Ask an agent something, here or in a terminal:</p>
      <p><code>retinue run explorer "Where is the configuration read?"</code></p>
      <${Button} kind="primary" icon="plus" onClick=${onNew}>New run<//>
    <//>
  `;
}

function Skeleton() {
  return html`<div class="skeleton" aria-hidden="true">${[1, 2, 3, 4].map((key) => html`<i key=${key} />`)}</div>`;
}
