// The state of the connection, as the banner shows it. While an event stream is open, the stream determines it.

import { useEffect } from "./vendor/preact.js";
import { createSignal } from "./signal.js";

export const connection = createSignal({ state: "open", since: Date.now() / 1000 }); // open, lost or signedOut

let streams = 0;

export function streamOpened() {
  streams += 1;
}

export function streamClosed() {
  streams -= 1;
}

export function setConnectionState(state) {
  const before = connection.get().state;
  // A lost connection after a sign-out is its consequence.
  const isKnown = before === state || (before === "signedOut" && state === "lost");
  if (!isKnown) connection.set({ state, since: Date.now() / 1000 });
}

// Updates the state from one response: none (0), unauthorized (401), or any other.
export function noteResponse(status) {
  if (status === 0) setConnectionState("lost");
  else if (status === 401) setConnectionState("signedOut");
  else if (streams === 0) setConnectionState("open");
}

// Calls `act` whenever the connection is open again after it was lost or signed out.
export function useReconnected(act) {
  useEffect(() => {
    let before = connection.get().state;
    return connection.watch(() => {
      const { state } = connection.get();
      if (before !== "open" && state === "open") act();
      before = state;
    });
  }, []);
}
