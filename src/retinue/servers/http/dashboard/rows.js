// A root conversation and its runs, one row each, parents before children.

import { html, memo, memoWithHooks, useEffect, useState, Button, Elapsed, Icon } from "./ui.js";
import { useNow } from "./signal.js";
import { appearance, cost, count, dateTime, firstLine, lastFolders } from "./format.js";
import { plural, stateLabel, timeAgo, tokens, totalCost } from "./format.js";
import { Line } from "./untrusted-text.js";
import { isLive } from "./store.js";
import { plainText } from "./text.js";

const COLLAPSED_ROWS = 12; // visible rows of an ended root until it is expanded

export const Group = memoWithHooks(({ group }) => {
  const { runs, more } = group;
  const live = runs.filter(isLive).length;
  const [isOpen, open] = useState(live > 0); // a root that was live on the screen stays expanded
  useEffect(() => void (live > 0 && open(true)), [live > 0]);
  const shown = isOpen || live > 0 || runs.length <= COLLAPSED_ROWS + 2 ? runs : runs.slice(0, COLLAPSED_ROWS);
  const base = Math.min(...runs.map((row) => row.depth));
  return html`
    <section class="group" role="group" aria-label=${`${plural(runs.length + more, "run")}, first: ${plainText(runs[0].name)}`}>
      ${runs.length > 1 && html`<${Heading} runs=${runs} more=${more} live=${live} />`}
      <ul>
        ${shown.map(
          (row) => html`<${Row} key=${row.run} row=${row} depth=${row.depth - base} isAlone=${runs.length === 1} />`,
        )}
      </ul>
      ${
        shown.length < runs.length &&
        html`
          <p class="rest"><${Button} kind="quiet" onClick=${() => open(true)}>${runs.length - shown.length} more<//></p>
        `
      }
      ${more > 0 && shown.length === runs.length && html`<p class="rest muted">and ${plural(more, "older run")}</p>`}
    </section>
  `;
});

function Heading({ runs, more, live }) {
  const [first] = runs;
  const spent = totalCost(runs);
  const parts = [plural(runs.length + more, "run"), live > 0 && `${live} live`, spent != null && cost(spent)].filter(
    Boolean,
  );
  return html`
    <h2 class="heading">
      <span>
        <${RelativeTime} time=${first.created} />
        ${parts.map((part) => ` · ${part}`)}
      </span>
      <span class="where" title=${plainText(first.cwd)}><${Line} text=${lastFolders(first.cwd)} /></span>
    </h2>
  `;
}

// The link is name and task and covers the whole row; other cells are outside of it, so that they are read out, too.
// A run that is alone in its group has no heading with its directory.
export const Row = memo(({ row, depth = 0, isAlone = false }) => {
  const about = row.failure ? firstLine(row.failure.message) : row.doing || row.preview;
  const model = row.model === row.engine ? "" : row.model;
  const on = [isAlone && lastFolders(row.cwd), row.engine, model].filter(Boolean);
  return html`
    <li aria-level=${depth + 1} class="row ${row.state} ${appearance(row)}" style=${{ "--depth": Math.min(depth, 6) }}>
      <span class="state ${appearance(row)}"><${Icon} name=${appearance(row)} /></span>
      <a class="what" href=${`#/runs/${row.run}`} data-nav>
        <span class="name"><${Line} text=${row.name} /></span>
        <span class="aloud">${`, ${stateLabel(row).toLowerCase()}, `}</span>
        <span class="task"><${Line} text=${row.task} /></span>
      </a>
      <span class="doing"><${Line} text=${about} /></span>
      <span class="engine">${on.map((word, index) => html`${index > 0 && " · "}<${Line} text=${word} />`)}</span>
      <span class="time"><${Elapsed} row=${row} /></span>
      <span class="number tools">
        ${
          row.tools > 0 &&
          html`
            ${count(row.tools)}
            <small>${row.tools === 1 ? "tool" : "tools"}</small>
          `
        }
      </span>
      <span class="number tokens">
        ${
          tokens(row.usage) &&
          html`
            ${count(tokens(row.usage))}
            <small>tok</small>
          `
        }
      </span>
      <span class="number cost">${row.usage?.cost != null && cost(row.usage.cost)}</span>
      <span class="when"><${RelativeTime} time=${row.ended ?? row.created} /></span>
    </li>
  `;
});

function RelativeTime({ time }) {
  const now = useNow(Date.now() / 1000 - time < 3600);
  return html`<time title=${dateTime(time)}>${timeAgo(time, now)}</time>`;
}
