// The card of a lane in the timeline: who, what, how long, tokens and cost; shown by pointer and by focus.

import { html, State } from "./ui.js";
import { cost, count, duration, elapsed, tokens } from "./format.js";
import { longestSpans } from "./timeline-model.js";
import { Line } from "./untrusted-text.js";

const WIDTH = 340; // pixels
const MARGIN = 8;

// `at` is {span, x, y, bottom}: the span under the pointer, and where to show the card.
export function Card({ at, row, spans, now }) {
  const { span } = at;
  const below = at.bottom + 260 < window.innerHeight;
  const style = {
    left: `${Math.max(MARGIN, Math.min(at.x, window.innerWidth - WIDTH - 2 * MARGIN))}px`,
    ...(below ? { top: `${at.bottom + 6}px` } : { bottom: `${window.innerHeight - at.y + 6}px` }),
  };
  const { input, output, cacheRead, cacheWrite } = row.usage ?? {};
  const facts = [
    ["Time", duration(elapsed(row, now))],
    row.started != null && row.started - row.created > 0.1 && ["Queued", duration(row.started - row.created)],
    ["Tokens", count(tokens(row.usage))],
    tokens(row.usage) && ["", `${count(input)} in · ${count(output)} out · ${count((cacheRead ?? 0) + (cacheWrite ?? 0))} cache`],
    ["Cost", cost(row.usage?.cost)],
    row.model && ["Model", html`<${Line} text=${row.model} />`],
  ].filter(Boolean);
  return html`
    <div class="hover-card" role="tooltip" id="lane-card" style=${style}>
      <p class="card-title">
        <b><${Line} text=${row.name} /></b>
        <${State} row=${row} />
      </p>
      <p class="card-task"><${Line} text=${row.task} /></p>
      ${span && html`<p class="card-span"><${SpanLine} span=${span} now=${now} /></p>`}
      <dl>
        ${facts.map(
          ([name, value], index) => html`
            <div key=${index}>
              <dt>${name}</dt>
              <dd>${value}</dd>
            </div>
          `,
        )}
      </dl>
      ${
        !span &&
        spans.length > 0 &&
        html`
          <p class="muted">Longest steps</p>
          <ul>${longestSpans(spans, now).map((one) => html`<li key=${one.started}><${SpanLine} span=${one} now=${now} /></li>`)}</ul>
        `
      }
    </div>
  `;
}

function SpanLine({ span, now }) {
  const figures = [
    duration((span.ended ?? now) - span.started),
    span.tokens > 0 && `${count(span.tokens)} tokens`,
    span.cost != null && cost(span.cost),
    span.failed && "failed",
  ].filter(Boolean);
  return html`
    <i class="key ${span.failed ? "failed" : span.kind}" aria-hidden="true" />
    <${Line} text=${span.label || span.name} />
    <span class="muted">${` ${figures.join(" · ")}`}</span>
  `;
}
