// The system view: engines, settings with their sources, and the state of the server.

import { html, useEffect, useState, Failed, loading, State } from "./ui.js";
import { get } from "./api.js";
import { useReconnected } from "./connection.js";
import { count, dateTime } from "./format.js";
import { Line, Pairs } from "./untrusted-text.js";

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
                  ${one.available ? " ready" : " not there"}
                </td>
                <td>${["steers", "resumes", "nests"].filter((what) => one[what]).join(", ") || "—"}</td>
                <td><${Line} text=${one.why ?? one.about} /></td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </section>
  `;
}

function Settings({ settings, problems }) {
  return html`
    <section class="card">
      <h2>Settings</h2>
      ${problems.map(
        (one) => html`<p class="failure" key=${one.message}><${Line} text=${`${one.file}: ${one.message}`} /></p>`,
      )}
      <table class="wide-table">
        <thead>
          <tr>
            <th scope="col">Setting</th>
            <th scope="col">Value</th>
            <th scope="col">From</th>
          </tr>
        </thead>
        <tbody>
          ${settings.map(
            (one) => html`
              <tr key=${one.name}>
                <th scope="row" class="mono"><${Line} text=${one.name} /></th>
                <td class="mono"><${Line} text=${formatValue(one.value)} /></td>
                <td class=${one.source.startsWith("default") ? "muted" : ""}><${Line} text=${one.source} /></td>
              </tr>
            `,
          )}
        </tbody>
      </table>
    </section>
  `;
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

function formatValue(value) {
  return value === null ? "—" : typeof value === "string" ? value : JSON.stringify(value);
}
