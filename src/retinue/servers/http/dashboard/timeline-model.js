// The geometry of the timeline: ranges, ticks and spans within the visible part. Pure functions.

import { duration } from "./format.js";
import { isLive } from "./store.js";

const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400];
const MAX_TICKS = 6;
const MIN_SPAN = 0.05; // seconds of the narrowest view
const WIDTH = 1000; // units of a lane's drawing
const HEIGHTS = { model: [0, 12], tool: [3, 6], child: [5, 2], failed: [3, 6] }; // top and height: not told apart by color alone

// Returns the range from the first request to the last end, or to now; never 0, because it is a divisor.
export function timeRange(rows, now) {
  const from = Math.min(...rows.map((row) => row.created));
  const to = Math.max(...rows.map((row) => row.ended ?? (isLive(row) ? now : row.created)));
  return { from, span: Math.max(to - from, 0.1) };
}

// Returns the view after zooming by a factor around a point, a share of the view; null is the whole range.
export function zoom(view, whole, factor, around = 0.5) {
  const current = view ?? whole;
  const span = Math.max(current.span * factor, MIN_SPAN);
  if (span >= whole.span) return null;
  return clampView({ from: current.from + (current.span - span) * around, span }, whole);
}

// Returns the view moved by a share of its width.
export function pan(view, whole, share) {
  return view && clampView({ from: view.from + view.span * share, span: view.span }, whole);
}

// Returns the view of two times, in either order; null if they are too close together.
export function select(one, other, whole) {
  const from = Math.min(one, other);
  const span = Math.abs(one - other);
  return span < MIN_SPAN ? null : clampView({ from, span }, whole);
}

function clampView({ from, span }, whole) {
  return { from: Math.max(whole.from, Math.min(from, whole.from + whole.span - span)), span };
}

export function ticks({ from, span }, origin) {
  const step = STEPS.find((one) => span / one <= MAX_TICKS) ?? Math.ceil(span / MAX_TICKS / 86_400) * 86_400;
  const first = Math.ceil((from - origin) / step - 1e-9);
  return Array.from({ length: Math.floor(span / step) + 2 }, (_, index) => (first + index) * step)
    .map((at) => ({ at, share: (origin + at - from) / span }))
    .filter(({ share }) => share >= -1e-9 && share < 0.96);
}

export function tickLabel(at) {
  if (at < 1e-9) return "0";
  if (at < 1) return `${Number(at.toFixed(2))}s`;
  return duration(at).replace(".0s", "s").replace(" 00s", "").replace(" 00m", "");
}

// Returns left edge and width of a period in percent of the view; null if it is outside.
export function place(start, end, view) {
  const left = Math.max(0, (start - view.from) / view.span);
  const right = Math.min(1, (end - view.from) / view.span);
  return right <= 0 || left >= 1 || right < left ? null : { left: `${left * 100}%`, width: `${(right - left) * 100}%` };
}

export function spanKind({ kind, failed }) {
  return failed ? "failed" : kind;
}

// Returns one path for the spans of each kind: a lane has few elements, however many spans.
export function spanPaths(spans, view, now) {
  const paths = { model: "", tool: "", child: "", failed: "" };
  for (const span of spans) {
    const left = ((span.started - view.from) / view.span) * WIDTH;
    const right = (((span.ended ?? now) - view.from) / view.span) * WIDTH;
    if (right < 0 || left > WIDTH) continue;
    const from = Math.max(0, left);
    const width = Math.max(Math.min(right, WIDTH) - from, 1);
    const [top, height] = HEIGHTS[spanKind(span)];
    paths[spanKind(span)] += `M${round(from)} ${top}h${round(width)}v${height}h${round(-width)}z`;
  }
  return paths;
}

// Returns the span at a time: the one that began last.
export function spanAt(spans, time, now) {
  return spans.findLast((span) => span.started <= time && time <= (span.ended ?? now)) ?? null;
}

// Returns the longest spans, longest first.
export function longestSpans(spans, now, most = 4) {
  const length = (span) => (span.ended ?? now) - span.started;
  return [...spans].sort((one, other) => length(other) - length(one)).slice(0, most);
}

// Returns the seconds of each kind of span, summed over runs. What a run waits for child runs is theirs.
export function sumByKind(spans, now) {
  const sums = { model: 0, tool: 0, child: 0 };
  for (const { kind, started, ended } of spans) sums[kind] += (ended ?? now) - started;
  return sums;
}

function round(number) {
  return Math.round(number * 10) / 10;
}
