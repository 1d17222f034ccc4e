// The usage view: cost, tokens and failures of today and of the last days, by day, agent and model.

import { html, useEffect, useState, Empty, Failed, loading } from "./ui.js";
import { get } from "./api.js";
import { useReconnected } from "./connection.js";
import { cost, count, dayLabel, plural } from "./format.js";
import { query, setQuery } from "./route.js";
import { plainText } from "./text.js";
import { Line } from "./untrusted-text.js";

const RANGES = { 7: "7 days", 30: "30 days", 90: "90 days" };
const REFRESH_INTERVAL = 30_000; // milliseconds

export function Usage() {
  const [days, setDays] = useState(() => (query().days in RANGES ? query().days : "7"));
  const [found, set] = useState(null);
  const load = () =>
    get("/statistics", { days, utcOffset: -new Date().getTimezoneOffset() }).then(set, (error) => set({ error }));
  useEffect(() => {
    load();
    const timer = setInterval(() => !document.hidden && load(), REFRESH_INTERVAL);
    return () => clearInterval(timer);
  }, [days]);
  useReconnected(load);
  const choose = (next) => {
    setQuery(next === "7" ? {} : { days: next });
    setDays(next);
  };
  if (!found) return loading();
  if (found.error) return html`<main id="main" tabindex="-1"><${Failed} error=${found.error} again=${load} /></main>`;
  const range = sumUsage(found.days);
  return html`
    <main id="main" tabindex="-1" class="usage">
      <header class="about">
        <div class="titles"><h1>Usage</h1></div>
        <fieldset class="modes">
          <legend class="unseen">Range</legend>
          ${Object.entries(RANGES).map(
            ([value, word]) => html`
              <label key=${value}>
                <input type="radio" name="range" checked=${value === days} onChange=${() => choose(value)} />
                <span>${word}</span>
              </label>
            `,
          )}
        </fieldset>
      </header>
      <div class="sums-row">
        <${Sum} title="Today" usage=${found.days.at(-1)} />
        <${Sum} title=${`Last ${RANGES[days]}`} usage=${range} />
      </div>
      ${range.runs === 0 && html`<${Empty} title=${`Nothing ran in the last ${RANGES[days]}.`} />`}
      <${UsageTable}
        title="By day"
        rows=${range.runs === 0 ? [] : found.days.map((day) => ({ ...day, name: dayLabel(day.day), link: `#/?day=${day.day}` })).reverse()}
      />
      <div class="pair">
        <${UsageTable}
          title="By agent"
          rows=${found.agents.map((one) => ({ ...one, link: `#/?agent=${encodeURIComponent(one.name)}&age=${days}` }))}
        />
        <${UsageTable}
          title="By model"
          rows=${found.models.map((one) => ({ ...one, link: `#/?model=${encodeURIComponent(one.name)}&age=${days}` }))}
        />
      </div>
      <p class="muted">Counted by the latest run of each session, on the day it last changed. Failed includes timed out and cancelled.</p>
    </main>
  `;
}

function Sum({ title, usage }) {
  const facts = [
    ["Cost", spent(usage)],
    ["Runs", count(usage.runs)],
    ["Failed", usage.failed ? `${count(usage.failed)} (${share(usage)} %)` : "0", usage.failed > 0 ? "bad" : ""],
    ["Tokens", count(usage.tokens)],
  ];
  return html`
    <section class="card sum-card">
      <h2>${title}</h2>
      <dl>
        ${facts.map(
          ([name, value, kind]) => html`
            <div key=${name}>
              <dt>${name}</dt>
              <dd class=${kind ?? ""}>${value}</dd>
            </div>
          `,
        )}
      </dl>
      ${usage.unpriced > 0 && html`<p class="muted">${`${plural(usage.unpriced, "run")} at an unknown price`}</p>`}
    </section>
  `;
}

function UsageTable({ title, rows }) {
  if (rows.length === 0) return null;
  const most = Math.max(...rows.map((row) => row.runs), 1);
  const dearest = Math.max(...rows.map((row) => row.cost), 1e-9);
  return html`
    <section class="card usage-table">
      <h2>${title}</h2>
      <table>
        <thead>
          <tr>
            <th scope="col">${title.slice(3, 4).toUpperCase()}${title.slice(4)}</th>
            <th scope="col">Runs</th>
            <th scope="col" class="wide-only"><span class="unseen">Share of runs, failed ones marked</span></th>
            <th scope="col">Failed</th>
            <th scope="col">Tokens</th>
            <th scope="col" class="wide-only"><span class="unseen">Share of cost</span></th>
            <th scope="col">Cost</th>
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            (row) => html`
              <tr key=${row.name}>
                <th scope="row" title=${plainText(row.name)}><a href=${row.link} data-nav><${Line} text=${row.name} /></a></th>
                <td>${count(row.runs)}</td>
                <td class="wide-only"><${Bar} share=${row.runs / most} failed=${row.failed / (row.runs || 1)} /></td>
                <td class=${row.failed ? "bad" : "muted"}>${count(row.failed)}</td>
                <td>${count(row.tokens)}</td>
                <td class="wide-only"><${Bar} share=${row.cost / dearest} kind="money" /></td>
                <td>${spent(row)}</td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </section>
  `;
}

function Bar({ share: part, failed = 0, kind = "" }) {
  return html`
    <span class="usage-bar ${kind}" aria-hidden="true">
      <i style=${{ width: `${part * (1 - failed) * 100}%` }} />
      <i class="failed" style=${{ width: `${part * failed * 100}%` }} />
    </span>
  `;
}

export function sumUsage(rows) {
  const sum = { runs: 0, failed: 0, tokens: 0, cost: 0, unpriced: 0 };
  for (const row of rows) for (const name of Object.keys(sum)) sum[name] += row[name];
  return sum;
}

// The cost as far as it is known: with a plus where the price of some runs is not.
function spent({ cost: dollars, unpriced }) {
  if (unpriced > 0) return dollars > 0 ? `${cost(dollars)}+` : cost(null);
  return cost(dollars);
}

function share({ failed, runs }) {
  return Math.round((failed / runs) * 100);
}
