// The event stream: a connection that reconnects and continues after the last received message.

import { address, get } from "./api.js";
import { setConnectionState, streamClosed, streamOpened } from "./connection.js";

const RETRY_DELAYS = [500, 1000, 2000, 4000, 8000]; // milliseconds before each retry; the last one is repeated
const HIDDEN_TIMEOUT = 30_000; // milliseconds until a hidden page closes its connection: a browser has six per server
const KINDS = ["happened", "row", "delta"];
const RECONNECT_EVENT = "retinue:reconnect"; // the user does not want to wait

// Opens the stream after a cursor and returns a function that closes it. `on(kind, data)` receives its messages;
// `onResync()` is called when the server no longer has the events after the cursor: the caller loads everything again
// and opens another stream.
export function openStream(query, cursor, { on, onResync }) {
  let source = null;
  let last = cursor;
  let failures = 0;
  let timer = 0;
  let hiddenTimer = 0;
  let isClosed = false;

  function connect() {
    clearTimeout(timer);
    source?.close();
    source = new EventSource(address("/events", { ...query, after: last }));
    source.onopen = () => {
      failures = 0;
      setConnectionState("open");
    };
    source.onerror = handleError;
    for (const kind of KINDS) source.addEventListener(kind, (message) => handleMessage(kind, message));
    source.addEventListener("resync", () => {
      close();
      onResync();
    });
  }

  function handleMessage(kind, message) {
    if (message.lastEventId) last = message.lastEventId;
    on(kind, JSON.parse(message.data));
  }

  function handleError() {
    source.close(); // we retry ourselves: the browser gives up at the first response that is not a stream
    setConnectionState("lost");
    timer = setTimeout(connect, RETRY_DELAYS[Math.min(failures++, RETRY_DELAYS.length - 1)]);
  }

  function handleVisibility() {
    clearTimeout(hiddenTimer);
    if (document.hidden) hiddenTimer = setTimeout(() => source.close(), HIDDEN_TIMEOUT);
    else if (source.readyState === EventSource.CLOSED) connect();
  }

  function close() {
    if (isClosed) return;
    isClosed = true;
    clearTimeout(timer);
    clearTimeout(hiddenTimer);
    source.close();
    streamClosed();
    document.removeEventListener("visibilitychange", handleVisibility);
    window.removeEventListener("online", connect);
    window.removeEventListener(RECONNECT_EVENT, connect);
  }

  document.addEventListener("visibilitychange", handleVisibility);
  window.addEventListener("online", connect);
  window.addEventListener(RECONNECT_EVENT, connect);
  streamOpened();
  connect();
  return close;
}

// Repeats a request until the server is reachable; meanwhile the screen stays and the banner shows the lost connection.
export async function retryUntilReachable(ask, signal) {
  for (let failures = 0; ; failures += 1) {
    try {
      return await ask();
    } catch (error) {
      if (error.code !== "unreachable" || signal.aborted) throw error;
      await pause(RETRY_DELAYS[Math.min(failures, RETRY_DELAYS.length - 1)], signal);
    }
  }
}

// Requests the health until the server answers: a page without a stream would not notice it otherwise, and a stream
// cannot distinguish a required sign-in from a missing server. Returns a stop function.
export function pollHealth() {
  const stopping = new AbortController();
  const ask = () => get("/health", {}, stopping.signal);
  retryUntilReachable(ask, stopping.signal).catch(() => {}); // `connection` was updated
  return () => stopping.abort();
}

export function reconnect() {
  window.dispatchEvent(new Event(RECONNECT_EVENT));
}

// Waits, but not longer than until the user asks to reconnect.
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const stop = () => {
      clearTimeout(timer);
      window.removeEventListener(RECONNECT_EVENT, stop);
      signal.removeEventListener("abort", stop);
      resolve();
    };
    const timer = setTimeout(stop, milliseconds);
    window.addEventListener(RECONNECT_EVENT, stop);
    signal.addEventListener("abort", stop);
  });
}
