// The timeline: a lane per run with its model and tool spans, a card for each, and zoom.

import { html, memoWithHooks, useEffect, useRef, useState, Button, Empty, State } from "./ui.js";
import { get, runPath } from "./api.js";
import { useNow, useThrottled } from "./signal.js";
import { appearance, cost, count, duration, elapsed, plural, tokens, totalCost, wholeSeconds } from "./format.js";
import { isLive } from "./store.js";
import { Card } from "./timeline-card.js";
import { pan, place, select, spanAt, spanPaths, sumByKind, tickLabel, ticks, timeRange, zoom } from "./timeline-model.js";
import { Line } from "./untrusted-text.js";

const LANES_PER_PAGE = 200; // drawn at first and with each "more": live lanes are redrawn every second
const SPANS_INTERVAL = 2000; // milliseconds between two requests for the spans of a live conversation
const DRAG_MARGIN = 4; // pixels that still count as a click
const LEGEND = { model: "model", tool: "tool", child: "child runs", failed: "failed", wait: "queued" };
const ZOOM_KEYS = { "+": 0.5, "=": 0.5, "-": 2 };

export function Timeline({ rows, current }) {
  return html`<${Lanes} rows=${useThrottled(rows, 500)} current=${current} />`;
}

const Lanes = memoWithHooks(({ rows, current }) => {
  const live = rows.some(isLive);
  const now = useNow(live);
  const spans = useSpans(current, live, rows.length);
  const [most, show] = useState(LANES_PER_PAGE);
  const [chosen, choose] = useState(null);
  const [card, showCard] = useState(null);
  if (rows.length === 0) return html`<${Empty} title="No run to show." />`;
  const whole = timeRange(rows, now);
  const view = chosen ?? whole;
  const base = Math.min(...rows.map((row) => row.depth));
  const marks = ticks(view, whole.from);
  const shown = card && rows.find((row) => row.run === card.run);
  const keys = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in ZOOM_KEYS) choose(zoom(chosen, whole, ZOOM_KEYS[event.key]));
    else if (event.key === "0") choose(null);
    else if (event.key === "ArrowRight" && chosen) choose(pan(chosen, whole, 0.25));
    else if (event.key === "ArrowLeft" && chosen) choose(pan(chosen, whole, -0.25));
    else if (event.key === "Escape" && card) showCard(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`
    <section class="timeline" aria-label="Timeline" onKeyDown=${keys} onMouseLeave=${() => showCard(null)}>
      <div class="timeline-head">
        <p class="sum">${describeSums(rows, spans, whole, now)}</p>
        <${Zoom} isZoomed=${chosen !== null} onZoom=${(factor) => choose(factor ? zoom(chosen, whole, factor) : null)} />
      </div>
      <div class="axis" aria-hidden="true">
        <span />
        <div class="track">
          ${marks.map(({ at, share }) => html`<i key=${at} style=${{ left: `${share * 100}%` }}>${tickLabel(at)}</i>`)}
        </div>
        <span class="number">Time</span>
        <span class="number">Tokens</span>
        <span class="number">Cost</span>
      </div>
      <ol>
        ${rows.slice(0, most).map(
          (row) => html`
            <${Lane}
              key=${row.run}
              row=${row}
              spans=${spans.get(row.run) ?? NO_SPANS}
              view=${view}
              marks=${marks}
              now=${now}
              depth=${row.depth - base}
              isCurrent=${row.run === current}
              isShown=${card?.run === row.run}
              onCard=${showCard}
              onSelect=${(one, other) => choose(select(one, other, whole) ?? chosen)}
            />
          `,
        )}
      </ol>
      ${
        rows.length > most &&
        html`
          <p class="rest">
            <${Button} kind="quiet" onClick=${() => show(most + LANES_PER_PAGE)}>${plural(rows.length - most, "more run")}<//>
          </p>
        `
      }
      <p class="legend muted" aria-hidden="true">
        ${Object.entries(LEGEND).map(([kind, word]) => html`<span key=${kind}><i class="key ${kind}" />${word}</span>`)}
        <span class="hint">Drag across a lane to zoom</span>
      </p>
      ${shown && html`<${Card} at=${card} row=${shown} spans=${spans.get(card.run) ?? NO_SPANS} now=${now} />`}
    </section>
  `;
});

const NO_SPANS = [];

// Returns the spans of each run, loaded again while one of them is live.
function useSpans(run, live, count) {
  const [spans, set] = useState(new Map());
  useEffect(() => {
    const stopping = new AbortController();
    const load = () =>
      get(runPath(run, "/timeline"), {}, stopping.signal).then(
        (found) => set(new Map(found.runs.map((one) => [one.run, one.spans]))),
        () => {}, // the lanes are shown without spans
      );
    load();
    const timer = live && setInterval(load, SPANS_INTERVAL);
    return () => {
      stopping.abort();
      clearInterval(timer);
    };
  }, [run, live, count]);
  return spans;
}

function describeSums(rows, spans, whole, now) {
  const used = rows.reduce((sum, row) => sum + (tokens(row.usage) ?? 0), 0);
  const { model, tool } = sumByKind([...spans.values()].flat(), now);
  const parts = [
    `${plural(rows.length, "run")} over ${duration(whole.span)}`,
    model + tool > 0 && `models ${duration(model)}, tools ${duration(tool)}`,
    `${count(used)} tokens`,
    cost(totalCost(rows)),
  ];
  return parts.filter(Boolean).join(" · ");
}

function Zoom({ isZoomed, onZoom }) {
  return html`
    <div class="zoom" role="group" aria-label="Zoom">
      <${Button} kind="quiet" icon="minus" label="Zoom out" disabled=${!isZoomed} onClick=${() => onZoom(2)} />
      <${Button} kind="quiet" icon="plus" label="Zoom in" onClick=${() => onZoom(0.5)} />
      <${Button} kind="quiet" disabled=${!isZoomed} onClick=${() => onZoom(0)}>Fit<//>
    </div>
  `;
}

function Lane({ row, spans, view, marks, now, depth, isCurrent, isShown, onCard, onSelect }) {
  const drag = useRef(null);
  const end = row.ended ?? now;
  const start = row.started ?? end;
  const wait = place(row.created, start, view);
  const work = row.started != null && place(start, end, view);
  const paths = spanPaths(spans, view, now);
  const took = elapsed(row, now);
  const timeAt = (event) => {
    const { left, width } = event.currentTarget.querySelector(".track").getBoundingClientRect();
    return view.from + ((event.clientX - left) / width) * view.span;
  };
  const reveal = (event) => {
    const { x, y, bottom } = event.currentTarget.getBoundingClientRect();
    const isPointer = event.type === "mousemove";
    const span = isPointer ? spanAt(spans, timeAt(event), now) : null;
    onCard({ run: row.run, span, x: isPointer ? event.clientX + 12 : x + 24, y, bottom });
  };
  const press = (event) => (drag.current = { x: event.clientX, time: timeAt(event) });
  const release = (event) => {
    const began = drag.current;
    if (!began || Math.abs(event.clientX - began.x) <= DRAG_MARGIN) return;
    event.preventDefault(); // it was no click
    onSelect(began.time, timeAt(event));
  };
  return html`
    <li>
      <a
        href=${`#/runs/${row.run}?tab=timeline`}
        data-nav
        draggable=${false}
        aria-current=${isCurrent ? "true" : undefined}
        aria-describedby=${isShown ? "lane-card" : undefined}
        class="lane"
        onFocus=${reveal}
        onBlur=${() => onCard(null)}
        onMouseMove=${reveal}
        onMouseDown=${press}
        onClick=${release}
      >
        <span class="who" style=${{ "--depth": Math.min(depth, 6) }}>
          <${State} row=${row} iconOnly />
          <span class="label"><b><${Line} text=${row.name} /></b> <${Line} text=${row.task} /></span>
        </span>
        <span class="track">
          ${marks.map(({ at, share }) => html`<i key=${at} class="tick" style=${{ left: `${share * 100}%` }} />`)}
          ${wait && html`<i class="wait" style=${wait} />`}
          ${work && html`<i class="work ${appearance(row)}" style=${work} />`}
          <svg viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true">
            ${Object.entries(paths).map(([kind, path]) => path && html`<path key=${kind} class=${kind} d=${path} />`)}
          </svg>
        </span>
        <span class="number">${isLive(row) ? wholeSeconds(took) : duration(took)}</span>
        <span class="number used">${count(tokens(row.usage))}</span>
        <span class="number">${cost(row.usage?.cost)}</span>
      </a>
    </li>
  `;
}
