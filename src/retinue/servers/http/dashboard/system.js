// The system view: engines, settings with their sources, and the state of the server.

import { html, useEffect, useState, Failed, Icon, loading, State } from "./ui.js";
import { get } from "./api.js";
import { useReconnected } from "./connection.js";
import { count, dateTime, roundDuration } from "./format.js";
import { plainText } from "./text.js";
import { CodeLine, Line, Pairs } from "./untrusted-text.js";

const ABILITIES = { steers: "steer", resumes: "resume", nests: "delegate" };

export function System() {
  const [found, set] = useState(null);
  const load = () =>
    Promise.all([get("/engines"), get("/settings"), get("/health")]).then(
      ([engines, settings, health]) => set({ engines, settings, health }),
      (error) => set({ error }),
    );
  useEffect(() => void load(), []);
  useReconnected(load);
  if (!found) return loading();
  if (found.error) return html`<main id="main" tabindex="-1"><${Failed} error=${found.error} again=${load} /></main>`;
  return html`
    <main id="main" tabindex="-1" class="system">
      <header class="about">
        <div class="titles"><h1>System</h1></div>
      </header>
      <${Engines} ...${found.engines} />
      <${Settings} ...${found.settings} />
      <${Health} health=${found.health} />
    </main>
  `;
}

function Engines({ engines, auto }) {
  return html`
    <section class="card">
      <h2>Engines</h2>
      <table class="wide-table engines">
        <thead>
          <tr>
            <th scope="col">Engine</th>
            <th scope="col">State</th>
            <th scope="col">Can</th>
            <th scope="col">About</th>
          </tr>
        </thead>
        <tbody>
          ${engines.map(
            (one) => html`
              <tr key=${one.name}>
                <th scope="row">
                  <${Line} text=${one.name} />
                  ${
                    one.name === auto &&
                    html`
                      ${" "}
                      <span class="tag">auto</span>
                    `
                  }
                </th>
                <td>
                  <${State} row=${{ state: one.available ? "completed" : "error", failure: null }} iconOnly />
                  ${one.available ? " ready" : " not available"}
                </td>
                <td>${Object.keys(ABILITIES).filter((what) => one[what]).map((what) => ABILITIES[what]).join(", ") || "—"}</td>
                <td><${CodeLine} text=${one.why ?? one.about} /></td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </section>
  `;
}

function Settings({ settings, problems }) {
  const changed = settings.filter((one) => !one.source.startsWith("default"));
  return html`
    <section class="card">
      <h2>Settings</h2>
      ${problems.map(
        (one) => html`<p class="failure" key=${one.message}><${Line} text=${`${one.file}: ${one.message}`} /></p>`,
      )}
      ${
        changed.length > 0
          ? html`<${SettingTable} rows=${changed} />`
          : html`<p class="muted">Every setting has its default.</p>`
      }
      <p class="muted">
        Change a setting with ${" "}<code>retinue config set timeout 1800</code>, or with a variable such as
        ${" "}<code>RETINUE_TIMEOUT=1800</code>. The file of a project may only tighten limits.
      </p>
      <details class="fold">
        <summary data-nav>
          <${Icon} name="chevron" />
          <span class="name">${`Defaults (${settings.length - changed.length})`}</span>
        </summary>
        <${SettingTable} rows=${settings.filter((one) => !changed.includes(one))} />
      </details>
    </section>
  `;
}

function SettingTable({ rows }) {
  return html`
    <table class="wide-table settings">
      <thead>
        <tr>
          <th scope="col">Setting</th>
          <th scope="col">Value</th>
          <th scope="col">Meaning</th>
          <th scope="col">From</th>
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          (one) => html`
            <tr key=${one.name}>
              <th scope="row" class="mono"><${Line} text=${one.name} /></th>
              <td class="mono">
                <${Line} text=${formatValue(one)} />
                ${isChanged(one) && html`<span class="muted">${` (default ${plainText(formatValue({ ...one, value: one.default }))})`}</span>`}
              </td>
              <td><${CodeLine} text=${one.note} /></td>
              <td class="muted"><${Line} text=${one.source} /></td>
            </tr>
          `,
        )}
      </tbody>
    </table>
  `;
}

function isChanged({ value, default: other }) {
  return JSON.stringify(value) !== JSON.stringify(other);
}

function Health({ health }) {
  const facts = [
    ["Version", health.version],
    ["Process", health.pid],
    ["Since", dateTime(health.started)],
    ["State folder", health.state],
    ["Live runs", count(health.live)],
    ["Watchers", count(health.watchers)],
  ];
  return html`
    <section class="card">
      <h2>Server</h2>
      <${Pairs} rows=${facts} />
    </section>
  `;
}

// Returns a value with its unit.
function formatValue({ value, note }) {
  if (value === null) return "—";
  if (typeof value === "number" && note.startsWith("seconds")) return value ? roundDuration(value) : "off";
  return typeof value === "string" ? value : JSON.stringify(value);
}
