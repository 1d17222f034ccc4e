// Whether there is a server, and whether it knows us: what the banner says. A stream, where one is open, knows best.

import { useEffect } from "./vendor/preact.js";
import { cell } from "./signal.js";

export const connection = cell({ state: "open", since: Date.now() / 1000 }); // open, lost or signedOut

let streams = 0;

export function streamOpened() {
  streams += 1;
}

export function streamClosed() {
  streams -= 1;
}

export function become(state) {
  const before = connection.get().state;
  const isKnown = before === state || (before === "signedOut" && state === "lost"); // the reason, not its echo
  if (!isKnown) connection.set({ state, since: Date.now() / 1000 });
}

// What a single answer tells: that there is none, that it is not for us, or that all is well.
export function answered(status) {
  if (status === 0) become("lost");
  else if (status === 401) become("signedOut");
  else if (streams === 0) become("open");
}

// Calls back whenever a server that was gone, or did not know us, is there again.
export function useReturn(act) {
  useEffect(() => {
    let before = connection.get().state;
    return connection.watch(() => {
      const { state } = connection.get();
      if (before !== "open" && state === "open") act();
      before = state;
    });
  }, []);
}
