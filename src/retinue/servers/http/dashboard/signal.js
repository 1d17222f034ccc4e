// A value that views watch. However often it changes, they are told once per frame, and less often where drawing takes
// long: two thirds of the time are left for whoever types and scrolls.

import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "./vendor/preact.js";

const FRAME = 16; // milliseconds

export function cell(value) {
  const watchers = new Set();
  let asked = false;
  let next = 0; // not to be told before

  function tell() {
    const began = performance.now();
    asked = false;
    for (const watcher of [...watchers]) watcher();
    setTimeout(() => (next = performance.now() + 2 * (performance.now() - began))); // what they drew is on the screen
  }

  function ask() {
    const wait = next - performance.now();
    if (wait > FRAME) setTimeout(requestAnimationFrame, wait, tell);
    else requestAnimationFrame(tell);
  }

  return {
    get: () => value,
    set(next) {
      value = typeof next === "function" ? next(value) : next;
      if (asked) return;
      asked = true;
      ask();
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

// A value that changes often, as it was at most so many milliseconds ago: for views that take long to draw.
export function useSlowly(value, milliseconds) {
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
