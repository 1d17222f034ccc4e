// The details tab: time and cost, declared and actual values, attempts, files, notices.

import { html, Part } from "./ui.js";
import { useNow } from "./signal.js";
import { DeclaredVsActual } from "./declared-vs-actual.js";
import { Worktree } from "./worktree.js";
import { clock, cost, count, duration, firstLine, dateTime, plural, shortId } from "./format.js";
import { Line, Pairs } from "./untrusted-text.js";
import { isLive } from "./store.js";
import { plainText } from "./text.js";

const TIME_LABELS = { queued: "Queued", model: "Model", tools: "Tools", other: "Other" };

export function Details({ detail, isInTool }) {
  return html`
    <div class="details">
      <${Spent} detail=${detail} isInTool=${isInTool} />
      <${DeclaredVsActual} detail=${detail} />
      <${Attempts} detail=${detail} />
      <${Tools} detail=${detail} />
      <${Worktree} detail=${detail} />
      <${Files} files=${detail.filesTouched ?? []} />
      <${Notices} detail=${detail} />
      <${Location} detail=${detail} />
    </div>
  `;
}

function Spent({ detail, isInTool }) {
  const spent = timesUntilNow(detail, isInTool, useNow(isLive(detail)));
  const times = Object.entries(TIME_LABELS).map(([key, word]) => [key, word, spent[key] ?? 0]);
  const sum = times.reduce((all, [, , seconds]) => all + seconds, 0) || 1;
  return html`
    <${Part} title="Time and cost">
      <div class="stack" aria-hidden="true">
        ${times.map(
          ([key, , seconds]) => html`<i key=${key} class=${key} style=${{ width: `${(seconds / sum) * 100}%` }} />`,
        )}
      </div>
      <table class="sums">
        <tbody>
          ${times.map(
            ([key, word, seconds]) => html`
              <tr key=${key}>
                <th scope="row">
                  <span class="key ${key}" aria-hidden="true" />${word}</th>
                <td>${duration(seconds)}</td>
                <td class="muted">${Math.round((seconds / sum) * 100)} %</td>
              </tr>
            `,
          )}
          <tr>
            <th scope="row">Tokens</th>
            <td>${count(spent.tokens)}</td>
            <td />
          </tr>
          <tr>
            <th scope="row">Cost</th>
            <td>${cost(spent.cost)}</td>
            <td class="muted">${spent.nestedCost != null && `${cost(spent.nestedCost)} in child runs`}</td>
          </tr>
        </tbody>
      </table>
    <//>
  `;
}

// The server counts up to the last event; adds the time since then to the current activity.
export function timesUntilNow({ spent = {}, state, created }, isInTool, now) {
  if (!isLive({ state })) return spent;
  const counted = Object.keys(TIME_LABELS).reduce((sum, key) => sum + (spent[key] ?? 0), 0);
  const doing = state === "queued" ? "queued" : isInTool ? "tools" : "model";
  return { ...spent, [doing]: (spent[doing] ?? 0) + Math.max(0, now - created - counted) };
}

function Attempts({ detail: { attempts = [], fallbacks = [] } }) {
  if (attempts.length < 2 && fallbacks.length === 0) return null;
  return html`
    <${Part} title="Attempts">
      <ol class="plain-list">
        ${attempts.map(
          (one) => html`
            <li key=${one.number}>
              <b>${one.number}</b>
              ${` ${plainText([one.reason, one.model].filter(Boolean).join(", "))} `}
              <span class="muted">${one.started && clock(one.started)}</span>
              ${one.failure && html`<div class="bad"><${Line} text=${firstLine(one.failure.message)} /></div>`}
            </li>
          `,
        )}
      </ol>
      ${fallbacks.length > 0 && html`<h3 class="minor">Fallbacks</h3>`}
      <ol class="plain-list">
        ${fallbacks.map(
          (one) => html`
            <li key=${one.time}>
              <${Line} text=${`${one.from ?? "?"} → ${one.to}`} />
              <span class="muted">${` (${plainText(one.reason)})`}</span>
            </li>
          `,
        )}
      </ol>
    <//>
  `;
}

function Tools({ detail: { toolsUsed = [] } }) {
  if (toolsUsed.length === 0) return null;
  const most = Math.max(...toolsUsed.map((one) => one.count));
  return html`
    <${Part} title="Tools used">
      <table class="sums">
        <tbody>
          ${toolsUsed.map(
            (one) => html`
              <tr key=${one.name}>
                <th scope="row"><${Line} text=${one.name} kind="mono" /></th>
                <td class="meter">
                  <span class="bar" aria-hidden="true"><i style=${{ width: `${(one.count / most) * 100}%` }} /></span>
                </td>
                <td>${plural(one.count, "call")}</td>
                <td class="muted">${duration(one.seconds)}</td>
                <td class="bad">${one.errors > 0 && `${one.errors} failed`}</td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    <//>
  `;
}

function Files({ files }) {
  if (files.length === 0) return null;
  return html`
    <${Part} title=${`Files touched (${files.length})`}>
      <ul class="plain-list files">
        ${files.map(
          (one) => html`
            <li key=${`${one.how} ${one.path}`}>
              <span class="how ${one.how}">${plainText(one.how)}</span>
              <${Line} text=${one.path} kind="mono" />
              ${one.count > 1 && html`<span class="muted">×${one.count}</span>`}
            </li>
          `,
        )}
      </ul>
    <//>
  `;
}

function Notices({ detail: { notices = [] } }) {
  if (notices.length === 0) return null;
  return html`
    <${Part} title="Notices">
      <ul class="plain-list">
        ${notices.map((one) => html`<li key=${`${one.time} ${one.code}`}><${Line} text=${one.message} /></li>`)}
      </ul>
    <//>
  `;
}

function Location({ detail }) {
  const rows = [
    ["Run", detail.run],
    ["Session", detail.session],
    ["Root", detail.root],
    ["Toolset", detail.surface],
    ["Directory", detail.cwd],
    ["Queued at", dateTime(detail.created)],
    detail.owner && [
      "Process",
      `process ${detail.owner.pid}${detail.owner.here ? " (this server)" : ` on ${detail.owner.host}`}`,
    ],
  ];
  return html`
    <${Part} title="Location">
      <${Pairs} rows=${rows} kind="mono" />
      <p class="muted">
        In a terminal:${" "}
        <code>${`retinue sessions show ${shortId(detail.session)}`}</code>
      </p>
    <//>
  `;
}
