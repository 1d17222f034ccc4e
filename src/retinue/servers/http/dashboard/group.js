// A conversation: its title with totals, and its runs as a tree whose branches collapse.

import { html, memoWithHooks, useEffect, Icon } from "./ui.js";
import { cost, count, dateTime, duration, lastFolders, plural, stateSummary, timeAgo, tokens, totalCost } from "./format.js";
import { Row } from "./rows.js";
import { appearance } from "./format.js";
import { createSignal, useNow, useSignal } from "./signal.js";
import { isLive, visibleRows } from "./store.js";
import { plainText } from "./text.js";
import { Line } from "./untrusted-text.js";

const MAX_OPEN_ROWS = 6; // an ended conversation with more runs is collapsed at first

// What the user, or a live run, opened and closed; kept while the page is open, so that going back shows the same.
const openGroups = new Map();
const closedBranches = new Set();
export const folding = createSignal(0); // changes with each of them

function refold() {
  folding.set((times) => times + 1);
}

// Opens or closes every conversation, with all of its branches.
export function foldAll(groups, isOpen) {
  for (const { root } of groups) openGroups.set(root, isOpen);
  if (isOpen) closedBranches.clear();
  refold();
}

export function isTree({ runs, more }) {
  return runs.length > 1 || more > 0;
}

export function isGroupOpen({ root, runs, more }, isFiltered, current) {
  const isOpen = openGroups.get(root);
  return isOpen ?? (runs.some((row) => isLive(row) || row.run === current) || isFiltered || runs.length + more <= MAX_OPEN_ROWS);
}

export const Group = memoWithHooks(({ group, isFiltered, current }) => {
  useSignal(folding);
  const { root, runs, more } = group;
  const live = runs.some(isLive);
  useEffect(() => {
    if (live) openGroups.set(root, openGroups.get(root) ?? true); // a conversation that was live stays as it is
  }, [live]);
  const hasTree = isTree(group);
  const isOpen = !hasTree || isGroupOpen(group, isFiltered, current);
  const toggle = () => refold(openGroups.set(root, !isOpen));
  const toggleBranch = (session) => {
    if (!closedBranches.delete(session)) closedBranches.add(session);
    refold();
  };
  const base = Math.min(...runs.map((row) => row.depth));
  const shown = isOpen ? visibleRows(runs, closedBranches) : [];
  return html`
    <section
      class="group ${hasTree ? "tree" : ""}"
      role="group"
      aria-label=${`${plural(runs.length + more, "run")}, first: ${plainText(runs[0].name)}`}
    >
      ${hasTree && html`<${Heading} group=${group} isOpen=${isOpen} isFiltered=${isFiltered} onToggle=${toggle} />`}
      ${
        isOpen &&
        html`
          <ul>
            ${shown.map(
              ({ row, awaited, below, isClosed }) => html`
                <${Row}
                  key=${row.run}
                  row=${row}
                  depth=${row.depth - base}
                  isAlone=${!hasTree}
                  isCurrent=${row.run === current}
                  awaited=${awaited}
                  below=${below}
                  isClosed=${isClosed}
                  onToggle=${below ? toggleBranch : undefined}
                />
              `,
            )}
          </ul>
        `
      }
      ${isOpen && more > 0 && html`<p class="rest muted">and ${plural(more, "older run")}</p>`}
    </section>
  `;
});

function Heading({ group, isOpen, isFiltered, onToggle }) {
  const { runs, more } = group;
  const [first] = runs;
  const live = runs.find(isLive);
  const keys = (event) => {
    const wanted = { ArrowRight: true, ArrowLeft: false }[event.key];
    if (wanted === undefined || wanted === isOpen) return;
    event.preventDefault();
    onToggle();
  };
  const kind = appearance(live ?? first);
  return html`
    <div class="heading">
      <h2>
        <button type="button" class="fold-button" data-nav aria-expanded=${isOpen} onClick=${onToggle} onKeyDown=${keys}>
          <${Icon} name="chevron" />
          <span class="state ${kind}"><${Icon} name=${kind} /></span>
          <span class="title"><${Line} text=${first.task || first.name} /></span>
        </button>
      </h2>
      <${Totals} runs=${runs} more=${more} total=${isFiltered ? group.total : undefined} />
    </div>
  `;
}

function Totals({ runs, more, total }) {
  const [first] = runs;
  const isRunning = runs.some(isLive);
  const now = useNow(isRunning || Date.now() / 1000 - first.created < 3600);
  const end = isRunning ? now : Math.max(...runs.map((row) => row.ended ?? row.created));
  const used = runs.reduce((sum, row) => sum + (tokens(row.usage) ?? 0), 0);
  const spent = totalCost(runs);
  const parts = [
    total > runs.length ? `${runs.length} of ${plural(total, "run")} shown` : plural(runs.length + more, "run"),
    ...stateSummary(runs),
    duration(end - Math.min(...runs.map((row) => row.created))),
    used > 0 && `${count(used)} tokens`,
    spent != null && cost(spent),
  ].filter(Boolean);
  return html`
    <p class="totals">
      <span>${parts.map((part, index) => html`${index > 0 && " · "}${part.kind ? html`<b class=${part.kind}>${part.text}</b>` : part}`)}</span>
      <span class="where" title=${plainText(first.cwd)}><${Line} text=${lastFolders(first.cwd)} /></span>
      <time title=${dateTime(first.created)}>${timeAgo(first.created, now)}</time>
    </p>
  `;
}
