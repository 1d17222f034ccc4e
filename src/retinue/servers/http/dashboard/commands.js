// The commands of the current page: what the palette lists, the keys start and the help explains.

import { useLayoutEffect } from "./vendor/preact.js";
import { createSignal } from "./signal.js";

export const commands = createSignal([]);
const groups = new Set();

// Offers commands, `{label, run, key}`, while the caller is on the screen; `values` are what they depend on.
export function useCommands(list, values) {
  // A layout effect: keys work as soon as the page is visible.
  useLayoutEffect(() => {
    groups.add(list);
    commands.set([...groups].flat());
    return () => {
      groups.delete(list);
      commands.set([...groups].flat());
    };
  }, values);
}

// Returns the command of a key; of several the one that was offered last.
export function commandFor(key) {
  return commands.get().findLast((one) => one.key === key);
}
