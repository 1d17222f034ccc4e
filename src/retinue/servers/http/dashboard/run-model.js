// One run as the page shows it: its detail, its transcript and its tree, loaded once and kept up to date by the stream.

import { get, runPath } from "./api.js";
import { cell } from "./signal.js";
import { Transcript } from "./transcript-model.js";
import { stateWord } from "./format.js";
import { around, isLive } from "./store.js";
import { openStream, untilReached } from "./stream.js";
import { announce } from "./live-region.js";

const PAGE = 2000; // events
const AGAIN = 2000; // milliseconds between two looks at the detail of a run that goes on
const TELLING = new Set([
  "tool_returned",
  "message_ended",
  "model_changed",
  "notice",
  "deadline_extended",
  "finalized",
  "run_ended",
]);

export function runModel(id) {
  const picture = cell({ detail: null, tree: [], transcript: null, error: null, isComplete: false });
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
    const read = (rest, query) => untilReached(() => get(runPath(id, rest), query, signal), signal);
    try {
      // The cursor is taken first: what happens while the rest is loaded comes again by the stream, and is taken once.
      const first = await read("/events", { limit: PAGE });
      const [detail, tree] = await Promise.all([read(""), read("/tree")]);
      take(transcript, first.events);
      picture.set({ detail, tree: around(detail, tree.runs), transcript, error: null, isComplete: !first.next });
      for (let next = first.next; next != null;) {
        const page = await read("/events", { after: next, limit: PAGE });
        take(transcript, page.events);
        next = page.next;
        picture.set((now) => ({ ...now, isComplete: next == null }));
      }
      if (signal.aborted) return;
      const on = (kind, data) => heard(transcript, detail.run, kind, data);
      close = openStream({ root: detail.root, deltas: true }, first.cursor, {
        on,
        onResync: () => load(signal),
      });
    } catch (error) {
      if (!signal.aborted) picture.set((now) => ({ ...now, error }));
    }
  }

  function heard(transcript, run, kind, data) {
    if (kind === "delta") {
      if (data.run !== run) return;
      transcript.write(data);
    }
    if (kind === "happened" && data.event.run === run && transcript.add(data.event) && TELLING.has(data.event.type)) {
      lookAgain(data.event.type === "run_ended" ? 0 : AGAIN);
    }
    const row = kind === "row" ? data : data.row;
    if (row) rowed(row, run);
    picture.set((now) => now); // the transcript changed in place: draw
  }

  function rowed(row, run) {
    const { detail, tree } = picture.get();
    if (row.session === detail.session && row.run !== run) return; // it goes on in another run
    const known = tree.findIndex((one) => one.run === row.run);
    const next = known < 0 ? around(row, tree) : tree.with(known, row);
    const own = row.run === run;
    if (own && detail.state !== row.state) announce([`${row.name}: ${stateWord(row)}`]);
    picture.set((now) => ({ ...now, tree: next, detail: own ? { ...now.detail, ...row } : now.detail }));
  }

  // The detail has what events do not add up to here: files, where the time went, declared against actual.
  function lookAgain(delay = 0) {
    if (timer && delay) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      timer = 0;
      const detail = await get(runPath(id), {}, opening.signal).catch(() => null); // the stream says if nobody is there
      if (detail) picture.set((now) => ({ ...now, detail: newer(now.detail, detail) }));
    }, delay);
  }

  return { picture, open, lookAgain };
}

function take(transcript, events) {
  for (const event of events) transcript.add(event);
}

// An answer that was on its way when the run ended does not bring it back to life.
function newer(before, after) {
  return isLive(after) && !isLive(before) ? before : after;
}
