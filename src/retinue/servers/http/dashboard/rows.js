// The row of a run in a list: state, agent, task, activity or result, and its figures.

import { html, memo, Elapsed, Icon } from "./ui.js";
import { useNow } from "./signal.js";
import { appearance, cost, count, dateTime, firstLine, lastFolders, plural, stateLabel, timeAgo, tokens } from "./format.js";
import { Line } from "./untrusted-text.js";
import { plainText } from "./text.js";

// Where a search found its text, if the row does not show it anyway.
const MATCHES = {
  answer: "In an answer",
  failure: "In a failure",
  tool_call: "In a tool call",
  tool_output: "In tool output",
};

// The link is name and task and covers the whole row; other cells are outside of it, so that they are read out, too.
// A run that is alone in its group has no heading with its directory.
// `awaited` is the number of child runs that it waits for.
// `below` is the number of its descendants in the list; `onToggle(session)` hides or shows them.
export const Row = memo(({ row, depth = 0, isAlone = false, isCurrent = false, awaited = 0, below = 0, isClosed = false, onToggle }) => {
  const found = MATCHES[row.match?.field];
  const about = found ? row.match.snippet : describeActivity(row, awaited);
  const model = row.model === row.engine ? "" : row.model;
  const on = [isAlone && lastFolders(row.cwd), row.engine, model].filter(Boolean);
  return html`
    <li aria-level=${depth + 1} class="row ${row.state} ${appearance(row)}" style=${{ "--depth": Math.min(depth, 6) }}>
      ${
        onToggle &&
        html`
          <button
            type="button"
            class="branch"
            aria-expanded=${!isClosed}
            aria-label=${`${plural(below, "child run")} of ${plainText(row.name)}`}
            onClick=${() => onToggle(row.session)}
          >
            <${Icon} name="chevron" />
          </button>
        `
      }
      <span class="state ${appearance(row)}"><${Icon} name=${appearance(row)} /></span>
      <a ref=${isCurrent ? reveal : undefined} class="what" href=${`#/runs/${row.run}`} data-nav aria-current=${isCurrent ? "page" : undefined}>
        <span class="name"><${Line} text=${row.name} /></span>
        <span class="aloud">${`, ${stateLabel(row).toLowerCase()}, `}</span>
        <span class="task"><${Line} text=${row.task} /></span>
      </a>
      <span class="doing">
        ${row.state !== "completed" && html`<b class="word">${stateLabel(row)}</b>${" "}`}
        ${found && !isClosed && html`<b class="word">${found}</b>${" "}`}
        <${Line} text=${isClosed ? `${plural(below, "child run")} hidden` : about} />
      </span>
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

// Scrolls the row of the run that is open into the list beside it, once.
function reveal(link) {
  if (!link) return;
  requestAnimationFrame(() => {
    const list = link.closest("aside"); // once the row is on the page
    if (!list) return;
    const { top, bottom } = link.getBoundingClientRect();
    const frame = list.getBoundingClientRect();
    if (top < frame.top || bottom > frame.bottom) list.scrollTop += top - frame.top - frame.height / 3;
  });
}

function describeActivity(row, awaited) {
  if (row.failure) return firstLine(row.failure.message);
  return row.state === "running" && awaited > 0 ? `waiting for ${plural(awaited, "child run")}` : row.doing || row.preview;
}

function RelativeTime({ time }) {
  const now = useNow(Date.now() / 1000 - time < 3600);
  return html`<time title=${dateTime(time)}>${timeAgo(time, now)}</time>`;
}
