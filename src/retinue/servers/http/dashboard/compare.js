// Two runs side by side: figures with their difference, tools and answers.

import { html, useEffect, useState, Dialog, Failed, loading, State } from "./ui.js";
import { get, runPath } from "./api.js";
import { cost, count, dateTime, duration, timeAgo, tokens, UNKNOWN } from "./format.js";
import { Markdown, MarkdownSwitch } from "./markdown.js";
import { go } from "./route.js";
import { Refusal } from "./use-request.js";
import { TaskText } from "./run-details.js";
import { Block, Line } from "./untrusted-text.js";

const CANDIDATES = 30; // runs of the same agent to choose from

export function Compare({ ids }) {
  const [found, set] = useState(null);
  const load = () => {
    const both = Promise.all(ids.map((id) => get(runPath(id))));
    both.then((details) => set({ details }), (error) => set({ error }));
  };
  useEffect(load, ids);
  if (!found) return loading();
  if (found.error) return html`<main id="main" tabindex="-1"><${Failed} error=${found.error} again=${load} /></main>`;
  const { details } = found;
  return html`
    <main id="main" tabindex="-1" class="compare">
      <header class="about">
        <div class="titles"><h1>Compare two runs</h1></div>
        <${MarkdownSwitch} />
      </header>
      <${Figures} details=${details} />
      <div class="sides">
        ${details.map(
          (detail, index) => html`
            <section class="card side" key=${index} aria-label=${`Answer of run ${"AB"[index]}`}>
              <h2>${"AB"[index]}: <${Line} text=${detail.name} /></h2>
              <${TaskText} text=${detail.taskText} label=${`Task of run ${"AB"[index]}`} />
              <hr />
              ${
                detail.failure
                  ? html`<div class="failure"><${Block} text=${detail.failure.message} language="plain" /></div>`
                  : html`<${Markdown} text=${detail.answer?.text || "No answer."} kind="words" />`
              }
            </section>
          `,
        )}
      </div>
    </main>
  `;
}

function Figures({ details }) {
  const [one, other] = details;
  const tools = [...new Set(details.flatMap(({ toolsUsed = [] }) => toolsUsed.map((tool) => tool.name)))];
  const calls = (detail, name) => detail.toolsUsed?.find((tool) => tool.name === name)?.count ?? 0;
  const rows = [
    ["Time", (detail) => detail.elapsed, duration],
    ["Tokens", (detail) => tokens(detail.usage), count],
    ["Cost", (detail) => detail.usage?.cost, cost],
    ["Turns", (detail) => detail.turns, count],
    ["Tool calls", (detail) => detail.tools, count],
    ["Files touched", (detail) => detail.filesTouched?.length ?? 0, count],
    ...tools.map((name) => [html`<span class="mono"><${Line} text=${name} /></span>`, (detail) => calls(detail, name), count]),
  ];
  return html`
    <section class="card">
      <table class="figures">
        <thead>
          <tr>
            <th scope="col"><span class="unseen">Figure</span></th>
            ${details.map(
              (detail, index) => html`
                <th scope="col" key=${index}>
                  <a href=${`#/runs/${detail.run}`}>${"AB"[index]}: <${Line} text=${detail.name} /></a>
                  <div><${State} row=${detail} /></div>
                  <div class="muted wide-only">${dateTime(detail.created)}</div>
                  <div class="muted"><${Line} text=${[...new Set([detail.engine, detail.model])].filter(Boolean).join(" · ")} /></div>
                </th>
              `,
            )}
            <th scope="col">Difference</th>
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            ([name, value, format], index) => html`
              <tr key=${index}>
                <th scope="row">${name}</th>
                <td>${format(value(one))}</td>
                <td>${format(value(other))}</td>
                <td class="muted">${difference(value(one), value(other), format)}</td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </section>
  `;
}

// Returns the change from the first to the second value, also in percent.
export function difference(one, other, format) {
  if (one == null || other == null) return UNKNOWN;
  if (format(one) === format(other)) return "same";
  const sign = other > one ? "+" : "−";
  const share = one > 0 ? ` (${sign}${Math.round((Math.abs(other - one) / one) * 100)} %)` : "";
  return `${sign}${format(Math.abs(other - one))}${share}`;
}

// Lets the user choose the other run: of the same agent, those with the same task first.
export function ChooseOther({ row, onClose }) {
  const [found, set] = useState(null);
  useEffect(() => {
    get("/runs", { agent: row.agent, limit: CANDIDATES }).then(
      ({ runs }) => set(runs.filter((one) => one.run !== row.run)),
      (error) => set({ error }),
    );
  }, []);
  const isSame = (one) => one.task === row.task;
  const sorted = found?.error ? [] : [...(found ?? [])].sort((one, other) => isSame(other) - isSame(one));
  const choose = (one) => {
    onClose();
    go(`/compare/${row.run}/${one.run}`);
  };
  return html`
    <${Dialog} title="Compare with" onClose=${onClose} wide>
      <${Refusal} failure=${found?.error} />
      ${found?.length === 0 && html`<p class="muted">There is no other run of this agent.</p>`}
      <ul class="palette">
        ${sorted.map(
          (one) => html`
            <li key=${one.run}>
              <button type="button" class="candidate" onClick=${() => choose(one)}>
                <span class="run-choice"><${State} row=${one} iconOnly /><${Line} text=${one.task} /></span>
                <span class="muted">${isSame(one) ? "same task · " : ""}${timeAgo(one.created, Date.now() / 1000)}</span>
              </button>
            </li>
          `,
        )}
      </ul>
    <//>
  `;
}
