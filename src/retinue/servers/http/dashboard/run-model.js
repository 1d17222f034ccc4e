// The model of one run: detail, transcript and tree, loaded once and updated from the stream.

import { get, runPath } from "./api.js";
import { createSignal } from "./signal.js";
import { Transcript } from "./transcript-model.js";
import { stateLabel } from "./format.js";
import { treeAround, isLive } from "./store.js";
import { openStream, retryUntilReachable } from "./stream.js";
import { announce } from "./live-region.js";

const PAGE_SIZE = 2000; // events
const DETAIL_INTERVAL = 2000; // milliseconds between two requests for the detail of a live run
const DETAIL_EVENTS = new Set([
  "tool_returned",
  "message_ended",
  "model_changed",
  "notice",
  "deadline_extended",
  "finalized",
  "run_ended",
]);

export function createRunModel(id) {
  const snapshot = createSignal({ detail: null, tree: [], transcript: null, error: null, isComplete: false });
  let opening = null;
  let close = () => {};
  let timer = 0;

  function open() {
    opening = new AbortController();
    load(opening.signal);
    return () => {
      opening.abort();
      clearTimeout(timer);
      close();
    };
  }

  async function load(signal) {
    const transcript = new Transcript();
    const read = (rest, query) => retryUntilReachable(() => get(runPath(id, rest), query, signal), signal);
    try {
      // The cursor is read first: events during loading are sent again by the stream and applied once.
      const first = await read("/events", { limit: PAGE_SIZE });
      const [detail, tree] = await Promise.all([read(""), read("/tree")]);
      addEvents(transcript, first.events);
      snapshot.set({ detail, tree: treeAround(detail, tree.runs), transcript, error: null, isComplete: !first.next });
      for (let next = first.next; next != null;) {
        const page = await read("/events", { after: next, limit: PAGE_SIZE });
        addEvents(transcript, page.events);
        next = page.next;
        snapshot.set((now) => ({ ...now, isComplete: next == null }));
      }
      if (signal.aborted) return;
      const on = (kind, data) => handleMessage(transcript, detail.run, kind, data);
      close = openStream({ root: detail.root, deltas: true }, first.cursor, {
        on,
        onResync: () => load(signal),
      });
    } catch (error) {
      if (!signal.aborted) snapshot.set((now) => ({ ...now, error }));
    }
  }

  function handleMessage(transcript, run, kind, data) {
    if (kind === "delta") {
      if (data.run !== run) return;
      transcript.write(data);
    }
    const event = kind === "happened" && data.event.run === run ? data.event : null;
    if (event && transcript.add(event) && DETAIL_EVENTS.has(event.type))
      refreshDetail(event.type === "run_ended" ? 0 : DETAIL_INTERVAL);
    const row = kind === "row" ? data : data.row;
    if (row) handleRow(row, run);
    snapshot.set((now) => now); // the transcript changed in place: draw again
  }

  function handleRow(row, run) {
    const { detail, tree } = snapshot.get();
    if (row.session === detail.session && row.run !== run) return; // the session continues in another run
    const known = tree.findIndex((one) => one.run === row.run);
    const next = known < 0 ? treeAround(row, tree) : tree.with(known, row);
    const own = row.run === run;
    if (own && detail.state !== row.state) announce([`${row.name}: ${stateLabel(row)}`]);
    snapshot.set((now) => ({ ...now, tree: next, detail: own ? { ...now.detail, ...row } : now.detail }));
  }

  // Loads the detail again: files, times and actual values are not derived from events here.
  function refreshDetail(delay = 0) {
    if (timer && delay) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      timer = 0;
      // The stream reports a lost connection.
      const detail = await get(runPath(id), {}, opening.signal).catch(() => null);
      if (detail) snapshot.set((now) => ({ ...now, detail: latestDetail(now.detail, detail) }));
    }, delay);
  }

  return { snapshot, open, refreshDetail };
}

function addEvents(transcript, events) {
  for (const event of events) transcript.add(event);
}

// Ignores a response from before the end of the run.
function latestDetail(before, after) {
  return isLive(after) && !isLive(before) ? before : after;
}
