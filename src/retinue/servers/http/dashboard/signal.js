// Observable values. Watchers are notified once per frame at most, and less often where drawing takes long: two thirds
// of the time are left for typing and scrolling.

import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "./vendor/preact.js";

const FRAME = 16; // milliseconds

export function createSignal(value) {
  const watchers = new Set();
  let isScheduled = false;
  let next = 0; // earliest time of the next notification

  function notify() {
    const began = performance.now();
    isScheduled = false;
    for (const watcher of [...watchers]) watcher();
    setTimeout(() => (next = performance.now() + 2 * (performance.now() - began))); // after painting
  }

  function schedule() {
    const wait = next - performance.now();
    if (wait > FRAME) setTimeout(requestAnimationFrame, wait, notify);
    else requestAnimationFrame(notify);
  }

  return {
    get: () => value,
    set(next) {
      value = typeof next === "function" ? next(value) : next;
      if (isScheduled) return;
      isScheduled = true;
      schedule();
    },
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

export function useSignal(signal) {
  const [, again] = useReducer((times) => times + 1, 0);
  useLayoutEffect(() => signal.watch(again), [signal]); // before the first paint: no change may be missed
  return signal.get();
}

// Returns a frequently changing value, at most so many milliseconds old, for views that take long to draw.
export function useThrottled(value, milliseconds) {
  const [shown, show] = useState(value);
  const latest = useRef(value);
  const timer = useRef(0);
  latest.current = value;
  if (value !== shown && !timer.current)
    timer.current = setTimeout(() => {
      timer.current = 0;
      show(latest.current);
    }, milliseconds);
  useEffect(() => () => clearTimeout(timer.current), []);
  return shown;
}

// The time in seconds, updated every second while a view of something live is mounted.
const now = createSignal(Date.now() / 1000);
let watcherCount = 0;
let timer = 0;

export function useNow(isLive = true) {
  const [, again] = useReducer((times) => times + 1, 0);
  useEffect(() => {
    if (!isLive) return undefined;
    if (watcherCount++ === 0) timer = setInterval(() => now.set(Date.now() / 1000), 1000);
    const stop = now.watch(again);
    return () => {
      stop();
      if (--watcherCount === 0) clearInterval(timer);
    };
  }, [isLive]);
  return Date.now() / 1000;
}
