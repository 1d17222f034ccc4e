// The timeline: a bar per run from request to end, with its cost.

import { html, memoWithHooks, useState, Button, Empty, State } from "./ui.js";
import { useNow, useThrottled } from "./signal.js";
import { cost, totalCost, count, duration, elapsed, appearance, plural, wholeSeconds, tokens } from "./format.js";
import { Line } from "./untrusted-text.js";
import { isLive } from "./store.js";
import { plainText } from "./text.js";

const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400];
const MAX_TICKS = 6;
const LANES_PER_PAGE = 200; // drawn at first and with each "more": live lanes are redrawn every second
const LEGEND = { wait: "queued", running: "running", completed: "completed", stopped: "cancelled", error: "failed" };

export function Timeline({ rows, current }) {
  return html`<${Lanes} rows=${useThrottled(rows, 500)} current=${current} />`;
}

const Lanes = memoWithHooks(({ rows, current }) => {
  const now = useNow(rows.some(isLive));
  const [most, show] = useState(LANES_PER_PAGE);
  if (rows.length === 0) return html`<${Empty} title="No run to show." />`;
  const { from, span } = timeRange(rows, now);
  const base = Math.min(...rows.map((row) => row.depth));
  const used = rows.reduce((sum, row) => sum + (tokens(row.usage) ?? 0), 0);
  const marks = ticks(span);
  const kinds = new Set(rows.flatMap((row) => [waitingSeconds(row, now) > span / 200 && "wait", kindOf(row)]));
  return html`
    <section class="timeline" aria-label="Timeline" style=${{ "--step": `${((marks[1] ?? span) / span) * 100}%` }}>
      <p class="sum">
        ${`${plural(rows.length, "run")} over ${duration(span)}, ${count(used)} tokens, ${cost(totalCost(rows))}`}
      </p>
      <div class="axis" aria-hidden="true">
        <span />
        <div class="track">
          ${marks.map((at) => html`<i key=${at} style=${{ left: `${(at / span) * 100}%` }}>${tick(at)}</i>`)}
        </div>
        <span class="number">time</span>
        <span class="number">tokens</span>
        <span class="number">cost</span>
      </div>
      <ol>
        ${rows.slice(0, most).map(
          (row) => html`
            <${Bar}
              key=${row.run}
              row=${row}
              from=${from}
              span=${span}
              now=${now}
              depth=${row.depth - base}
              isCurrent=${row.run === current}
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
        ${Object.entries(LEGEND)
          .filter(([kind]) => kinds.has(kind))
          .map(([kind, word]) => html`<span key=${kind}><i class="key ${kind}" />${word}</span>`)}
      </p>
    </section>
  `;
});

function Bar({ row, from, span, now, depth, isCurrent }) {
  const end = row.ended ?? now;
  const start = row.started ?? end;
  const share = (seconds) => `${(Math.max(0, seconds) / span) * 100}%`;
  const took = elapsed(row, now);
  return html`
    <li>
      <a
        href=${`#/runs/${row.run}?tab=timeline`}
        data-nav
        aria-current=${isCurrent ? "true" : undefined}
        class="lane"
      >
        <span class="who" style=${{ "--depth": Math.min(depth, 6) }}>
          <${State} row=${row} iconOnly />
          <${Line} text=${row.name} />
        </span>
        <span class="track" title=${plainText(row.task)}>
          <i class="wait" style=${{ left: share(row.created - from), width: share(start - row.created) }} />
          ${
            row.started != null &&
            html`<i class="work ${kindOf(row)}" style=${{ left: share(start - from), width: share(end - start) }} />`
          }
        </span>
        <span class="number">${isLive(row) ? wholeSeconds(took) : duration(took)}</span>
        <span class="number">${count(tokens(row.usage))}</span>
        <span class="number">${cost(row.usage?.cost)}</span>
      </a>
    </li>
  `;
}

// Returns the color class of a bar.
function kindOf(row) {
  const kind = appearance(row);
  return kind === "late" ? "error" : kind === "queued" ? "wait" : kind;
}

function waitingSeconds(row, now) {
  return (row.started ?? row.ended ?? now) - row.created;
}

// Returns the range from the first request to the last end, or to now; never 0, because it is a divisor.
function timeRange(rows, now) {
  const from = Math.min(...rows.map((row) => row.created));
  const to = Math.max(...rows.map((row) => row.ended ?? (isLive(row) ? now : row.created)));
  return { from, span: Math.max(to - from, 0.1) };
}

function ticks(span) {
  const step = STEPS.find((one) => span / one <= MAX_TICKS) ?? Math.ceil(span / MAX_TICKS / 86_400) * 86_400;
  return Array.from({ length: Math.floor(span / step) + 1 }, (_, index) => index * step).filter(
    (at) => at < span * 0.96,
  );
}

function tick(at) {
  return at === 0
    ? "0"
    : at < 1
      ? `${at.toFixed(1)}s`
      : duration(at).replace(".0s", "s").replace(" 00s", "").replace(" 00m", "");
}
