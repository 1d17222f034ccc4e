// A value that views watch. However often it changes, they are told once per frame.

import { useEffect, useLayoutEffect, useReducer } from "./vendor/preact.js";

export function cell(value) {
  const watchers = new Set();
  let asked = false;

  function tell() {
    asked = false;
    for (const watcher of [...watchers]) watcher();
  }

  return {
    get: () => value,
    set(next) {
      value = typeof next === "function" ? next(value) : next;
      if (asked) return;
      asked = true;
      requestAnimationFrame(tell);
    },
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

export function useCell(one) {
  const [, again] = useReducer((times) => times + 1, 0);
  useLayoutEffect(() => one.watch(again), [one]); // at once: what is set before a paint must not be missed
  return one.get();
}

// The time in seconds, told every second to whoever shows something that is going on.
const now = cell(Date.now() / 1000);
let watching = 0;
let timer = 0;

export function useNow(isLive = true) {
  const [, again] = useReducer((times) => times + 1, 0);
  useEffect(() => {
    if (!isLive) return undefined;
    if (watching++ === 0) timer = setInterval(() => now.set(Date.now() / 1000), 1000);
    const stop = now.watch(again);
    return () => {
      stop();
      if (--watching === 0) clearInterval(timer);
    };
  }, [isLive]);
  return Date.now() / 1000;
}
