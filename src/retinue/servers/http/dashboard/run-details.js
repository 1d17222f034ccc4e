// The header of a run: breadcrumbs, key facts, task and failure.

import { html, useState, Elapsed } from "./ui.js";
import { FailurePanel } from "./failure.js";
import { cost, count, plural, sandboxOf, shortId, tokens } from "./format.js";
import { Markdown } from "./markdown.js";
import { Line } from "./untrusted-text.js";
import { isLive } from "./store.js";
import { describeChanges, hasWorktree } from "./worktree.js";

export function Breadcrumbs({ detail }) {
  const others = (detail.runs ?? []).filter((one) => one.run !== detail.run);
  const place = (detail.runs ?? []).findIndex((one) => one.run === detail.run) + 1;
  return html`
    <nav class="trail" aria-label="Parents of this run">
      <a href="#/">Activity</a>
      ${(detail.ancestors ?? []).map(
        (one) => html`
          <span aria-hidden="true">/</span>
          <a href=${`#/runs/${one.run}`}><${Line} text=${one.name ?? one.agent} /></a>
        `,
      )}
      <span aria-hidden="true">/</span>
      <span class="mono">${shortId(detail.run)}</span>
      ${
        others.length > 0 &&
        html`
          <span class="session muted">
            ${`run ${place} of ${others.length + 1} in its session:`}
            ${detail.runs.map((one, index) =>
              one.run === detail.run
                ? html`<b>${index + 1}</b>`
                : html`
                    <a href=${`#/runs/${one.run}`} aria-label=${`Run ${index + 1} of this session`}>${index + 1}</a>
                  `,
            )}
          </span>
        `
      }
    </nav>
  `;
}

const LONG_FACTS = new Set(["Model", "Worktree"]); // two columns wide on a phone

export function Facts({ detail, tree }) {
  const below = tree.filter((row) => row.parentRun === detail.run);
  const live = below.filter(isLive).length;
  const facts = [
    ["Agent", html`<a href=${`#/agents/${encodeURIComponent(detail.agent)}`}><${Line} text=${detail.agent} /></a>`],
    ["Engine", html`<${Line} text=${detail.engine} />`],
    detail.model && detail.model !== detail.engine && ["Model", html`<${Line} text=${detail.model} />`],
    ["Time", html`<${Elapsed} row=${detail} />`],
    ["Tools", count(detail.tools)],
    ["Tokens", count(tokens(detail.usage))],
    ["Cost", cost(detail.usage?.cost)],
    sandboxOf(detail) && ["Sandbox", html`<${Line} text=${sandboxOf(detail).mode} />`],
    hasWorktree(detail) && ["Worktree", html`<${Line} text=${describeChanges(detail)} />`],
    below.length > 0 && ["Child runs", `${below.length}${live > 0 ? ` (${live} running)` : ""}`],
  ];
  return html`
    <dl class="facts">
      ${facts.filter(Boolean).map(
        ([name, value]) => html`
          <div key=${name} class=${LONG_FACTS.has(name) ? "long" : ""}>
            <dt>${name}</dt>
            <dd>${value}</dd>
          </div>
        `,
      )}
    </dl>
  `;
}

export function TaskAndFailure({ detail, onResume }) {
  return html`
    <${TaskText} text=${detail.taskText ?? detail.task} />
    ${detail.failure && html`<${FailurePanel} detail=${detail} onResume=${onResume} />`}
  `;
}

// A long task is collapsed.
export function TaskText({ text: task, label = "Task" }) {
  const isLong = task.length > 400 || task.split("\n").length > 4;
  const [isOpen, open] = useState(false);
  return html`
    <section class="asked ${isLong && !isOpen ? "folded" : ""}" aria-label=${label}>
      <${Markdown} text=${task} />
      ${
        isLong &&
        html`
          <button type="button" class="link" aria-expanded=${isOpen} onClick=${() => open(!isOpen)}>
            ${isOpen ? "Less" : "Show the whole task"}
          </button>
        `
      }
    </section>
  `;
}
