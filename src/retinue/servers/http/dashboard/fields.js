// The fields of a task, and the options of a start.

import { html, Button, Icon } from "./ui.js";
import { roundDuration, toolNames } from "./format.js";
import { Line } from "./untrusted-text.js";

const MAX_DEPTH = 64; // levels: the run itself is the first, its child runs the second
const MAX_MINUTES = 7 * 24 * 60; // a week: no run may take longer

export function TaskFields({ task, title, isFirst, known, onChange, onRemove }) {
  const agents = known?.agents ?? [];
  const chosen = agents.find((one) => one.name === task.agent);
  return html`
    <fieldset class="task-fields">
      <legend class=${title ? "" : "unseen"}>${title || "Task"}</legend>
      ${
        onRemove &&
        html`<${Button} icon="close" kind="quiet remove" label=${`Remove ${title.toLowerCase()}`} onClick=${onRemove} />`
      }
      <label class="field">
        <span>Agent</span>
        <select autofocus=${isFirst} required value=${task.agent} onChange=${(event) => onChange({ agent: event.target.value })}>
          <option value="" disabled selected=${!task.agent}>${known ? "Choose an agent" : "Loading…"}</option>
          ${agents.map(
            (one) => html`
              <option key=${one.name} value=${one.name} disabled=${!one.runnable} selected=${one.name === task.agent}>
                ${one.runnable ? one.name : `${one.name} (cannot run)`}
              </option>
            `,
          )}
        </select>
      </label>
      ${chosen && html`<${Definition} agent=${chosen} />`}
      <label class="field">
        <span>Task</span>
        <textarea
          required
          rows=${title ? 2 : 4}
          value=${task.task}
          placeholder="What should it do?"
          onInput=${(event) => onChange({ task: event.target.value })}
        />
      </label>
    </fieldset>
  `;
}

// The definition of the selected agent, to show what the run will be allowed to do.
function Definition({ agent }) {
  const facts = [
    `tools: ${toolNames(agent.tools)}`,
    agent.readonly && "read-only",
    agent.delegates && "delegates if Max depth is 2 or more",
    agent.model,
    agent.engine,
    agent.timeout && `at most ${roundDuration(agent.timeout)}`,
  ].filter(Boolean);
  return html`
    <p class="definition">
      <${Line} text=${agent.description} />
      <br />
      <span class="muted"><${Line} text=${facts.join(" · ")} /></span>
    </p>
  `;
}

export function Options({ known, more, onChange }) {
  const engines = known?.engines ?? [];
  const text = (name) => ({ value: more[name] ?? "", onInput: (event) => onChange({ [name]: event.target.value }) });
  return html`
    <details class="options">
      <summary><${Icon} name="chevron" />Options</summary>
      <div class="grid">
        <label class="field">
          <span>Engine</span>
          <select value=${more.engine ?? ""} onChange=${(event) => onChange({ engine: event.target.value })}>
            <option value="">${known?.auto ? `As defined, else ${known.auto}` : "As defined"}</option>
            ${engines.map(
              (one) => html`
                <option key=${one.name} value=${one.name} disabled=${!one.available}>
                  ${one.available ? one.name : `${one.name} (not available)`}
                </option>
              `,
            )}
          </select>
        </label>
        <label class="field">
          <span>Model</span>
          <input type="text" placeholder="as defined" spellcheck=${false} ...${text("model")} />
        </label>
        <label class="field">
          <span>Timeout, minutes</span>
          <input type="number" min="0.1" max=${MAX_MINUTES} step="any" placeholder="as defined" ...${text("timeout")} />
        </label>
        <label class="field">
          <span>Max turns</span>
          <input type="number" min="1" step="1" placeholder="no limit" ...${text("maxTurns")} />
        </label>
        <label class="field">
          <span>Max depth</span>
          <input type="number" min="1" max=${MAX_DEPTH} step="1" placeholder="default" ...${text("maxDepth")} />
        </label>
        <label class="field">
          <span>Sandbox</span>
          <select value=${more.sandbox ?? ""} onChange=${(event) => onChange({ sandbox: event.target.value })}>
            <option value="">As configured</option>
            <option value="workspace">Workspace: only its folder</option>
            <option value="strict">Strict: no network, either</option>
          </select>
        </label>
        <label class="field">
          <span>Folder</span>
          <input type="text" placeholder=${known?.cwd ?? ""} spellcheck=${false} ...${text("cwd")} />
        </label>
      </div>
    </details>
  `;
}
