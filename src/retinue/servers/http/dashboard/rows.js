// A root conversation and its runs: a row each, parents before children.

import { html, memo, memoWithHooks, useEffect, useState, Button, Elapsed, Icon } from "./ui.js";
import { useNow } from "./signal.js";
import { ago, cost, costOf, count, firstLine, folder, look, moment, plural, stateWord, tokens } from "./format.js";
import { Line } from "./untrusted-text.js";
import { isLive } from "./store.js";
import { plain } from "./text.js";

const FOLDED = 12; // rows of a root that has ended, before the rest is asked for

export const Group = memoWithHooks(({ group }) => {
  const { runs, more } = group;
  const live = runs.filter(isLive).length;
  const [isOpen, open] = useState(live > 0); // what was seen at work is not folded when it ends
  useEffect(() => void (live > 0 && open(true)), [live > 0]);
  const shown = isOpen || live > 0 || runs.length <= FOLDED + 2 ? runs : runs.slice(0, FOLDED);
  const base = Math.min(...runs.map((row) => row.depth));
  return html`
    <section class="group" role="group" aria-label=${`${plural(runs.length + more, "run")}, first: ${plain(runs[0].name)}`}>
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
  const spent = costOf(runs);
  const parts = [plural(runs.length + more, "run"), live > 0 && `${live} live`, spent != null && cost(spent)].filter(
    Boolean,
  );
  return html`
    <h2 class="heading">
      <span>
        <${When} time=${first.created} />
        ${parts.map((part) => ` · ${part}`)}
      </span>
      <span class="where" title=${plain(first.cwd)}><${Line} text=${folder(first.cwd)} /></span>
    </h2>
  `;
}

// Its link is its name and task, and reaches over all of the row; the rest stands beside it, so that it is read out, too.
// One that stands alone has no heading to say where it works.
export const Row = memo(({ row, depth = 0, isAlone = false }) => {
  const about = row.failure ? firstLine(row.failure.message) : row.doing || row.preview;
  const model = row.model === row.engine ? "" : row.model;
  const on = [isAlone && folder(row.cwd), row.engine, model].filter(Boolean);
  return html`
    <li aria-level=${depth + 1} class="row ${row.state} ${look(row)}" style=${{ "--depth": Math.min(depth, 6) }}>
      <span class="state ${look(row)}"><${Icon} name=${look(row)} /></span>
      <a class="what" href=${`#/runs/${row.run}`} data-nav>
        <span class="name"><${Line} text=${row.name} /></span>
        <span class="aloud">${`, ${stateWord(row).toLowerCase()}, `}</span>
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
      <span class="when"><${When} time=${row.ended ?? row.created} /></span>
    </li>
  `;
});

function When({ time }) {
  const now = useNow(Date.now() / 1000 - time < 3600);
  return html`<time title=${moment(time)}>${ago(time, now)}</time>`;
}
