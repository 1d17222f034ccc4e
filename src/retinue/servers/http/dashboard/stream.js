// The event stream: one connection that comes back by itself and goes on after the last message it had.

import { address, get } from "./api.js";
import { become, streamClosed, streamOpened } from "./connection.js";

const PATIENCE = [500, 1000, 2000, 4000, 8000]; // milliseconds before each try; the last one is repeated
const OUT_OF_SIGHT = 30_000; // then a page nobody looks at gives its connection back: a browser has six per server
const KINDS = ["happened", "row", "delta"];
const NOW = "retinue:reconnect"; // someone does not want to wait

// Opens the stream after a cursor. `on(kind, data)` gets its messages, `onResync()` is called when the server no longer
// has what came after the cursor: the caller loads its picture again and opens another stream. Returns how to close it.
export function openStream(query, cursor, { on, onResync }) {
  let source = null;
  let last = cursor;
  let failures = 0;
  let timer = 0;
  let hiding = 0;
  let isClosed = false;

  function connect() {
    clearTimeout(timer);
    source?.close();
    source = new EventSource(address("/events", { ...query, after: last }));
    source.onopen = () => {
      failures = 0;
      become("open");
    };
    source.onerror = lost;
    for (const kind of KINDS) source.addEventListener(kind, (message) => heard(kind, message));
    source.addEventListener("resync", () => {
      close();
      onResync();
    });
  }

  function heard(kind, message) {
    if (message.lastEventId) last = message.lastEventId;
    on(kind, JSON.parse(message.data));
  }

  function lost() {
    source.close(); // our own patience, not the browser's: it gives up for good at the first answer that is no stream
    become("lost");
    timer = setTimeout(connect, PATIENCE[Math.min(failures++, PATIENCE.length - 1)]);
  }

  function looked() {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(() => source.close(), OUT_OF_SIGHT);
    else if (source.readyState === EventSource.CLOSED) connect();
  }

  function close() {
    if (isClosed) return;
    isClosed = true;
    clearTimeout(timer);
    clearTimeout(hiding);
    source.close();
    streamClosed();
    document.removeEventListener("visibilitychange", looked);
    window.removeEventListener("online", connect);
    window.removeEventListener(NOW, connect);
  }

  document.addEventListener("visibilitychange", looked);
  window.addEventListener("online", connect);
  window.addEventListener(NOW, connect);
  streamOpened();
  connect();
  return close;
}

// Asks until there is a server: as long as nobody answers, the picture on the screen stays and the banner says so.
export async function untilReached(ask, signal) {
  for (let failures = 0; ; failures += 1) {
    try {
      return await ask();
    } catch (error) {
      if (error.code !== "unreachable" || signal.aborted) throw error;
      await pause(PATIENCE[Math.min(failures, PATIENCE.length - 1)], signal);
    }
  }
}

// Asks whether there is a server until one answers: a page without a stream would not notice, and a stream cannot tell
// one that wants a sign-in from none. Returns how to stop.
export function keepAsking() {
  const stopping = new AbortController();
  untilReached(() => get("/health", {}, stopping.signal), stopping.signal).catch(() => {}); // `connection` has heard it
  return () => stopping.abort();
}

export function reconnect() {
  window.dispatchEvent(new Event(NOW));
}

// Waits, or less if the person cannot.
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const stop = () => {
      clearTimeout(timer);
      window.removeEventListener(NOW, stop);
      signal.removeEventListener("abort", stop);
      resolve();
    };
    const timer = setTimeout(stop, milliseconds);
    window.addEventListener(NOW, stop);
    signal.addEventListener("abort", stop);
  });
}
