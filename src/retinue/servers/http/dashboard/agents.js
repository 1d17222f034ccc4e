// The list of agents: source, tools, shadowed definitions, problems and trust.

import { html, useEffect, useRef, useState, Button, Empty, Failed, Icon, loading } from "./ui.js";
import { get } from "./api.js";
import { useReconnected } from "./connection.js";
import { plural } from "./format.js";
import { Refusal } from "./use-request.js";
import { Block, Line } from "./untrusted-text.js";
import { plainText } from "./text.js";
import { Terms, Trust, TRUST } from "./trust.js";

export function Agents({ name, onStart }) {
  const [found, set] = useState(null);
  const [trusting, trust] = useState(null);
  const load = () => get("/agents").then(set, (error) => set({ error }));
  useEffect(() => void load(), []);
  useReconnected(load);
  if (!found) return loading();
  if (found.error) return html`<main id="main" tabindex="-1"><${Failed} error=${found.error} again=${load} /></main>`;
  const { agents, problems, cwd } = found;
  return html`
    <main id="main" tabindex="-1" class="agents">
      <header class="about">
        <div class="titles">
          <h1>Agents</h1>
          <span class="muted">
            found from${" "}
            <${Line} text=${cwd} kind="mono" />
          </span>
        </div>
      </header>
      ${problems.length > 0 && html`<${Problems} problems=${problems} />`}
      ${
        agents.length === 0 &&
        html`
          <${Empty} title="No agents found.">
            <p>
              <code>retinue agents new NAME</code>
              ${" "}creates one.
            </p>
          <//>
        `
      }
      <ul class="catalog">
        ${agents.map(
          (agent) => html`
            <${Agent}
              key=${`${agent.layer} ${agent.name}`}
              agent=${agent}
              isOpen=${agent.name === name}
              onStart=${onStart}
              onTrust=${() => trust(agent)}
            />
          `,
        )}
      </ul>
      ${trusting && html`<${Trust} agent=${trusting} onClose=${() => trust(null)} onDone=${load} />`}
    </main>
  `;
}

function Agent({ agent, isOpen, onStart, onTrust }) {
  const [detail, know] = useState(null);
  const element = useRef();
  useEffect(() => void (isOpen && element.current.scrollIntoView()), [isOpen]);
  const toggle = (event) => {
    if (event.currentTarget.open && !detail)
      get(`/agents/${encodeURIComponent(agent.name)}`).then(know, (error) => know({ error }));
  };
  const isDoubtful = agent.trust === "untrusted" || agent.trust === "changed";
  return html`
    <li class="agent ${agent.runnable ? "" : "off"}" ref=${element}>
      <details open=${isOpen} onToggle=${toggle}>
        <summary data-nav>
          <${Icon} name="chevron" />
          <span class="name"><${Line} text=${agent.name} /></span>
          <span class="gist"><${Line} text=${agent.description} /></span>
          <span class="tags">
            ${
              agent.problems.length > 0 &&
              html`
                <span class="tag warn">
                  <${Icon} name="warning" />
                  ${plural(agent.problems.length, "problem")}
                </span>
              `
            }
            ${
              isDoubtful &&
              html`
                <span class="tag warn">
                  <${Icon} name="warning" />
                  ${TRUST[agent.trust]}
                </span>
              `
            }
            ${!agent.enabled && html`<span class="tag">disabled</span>`}
            ${agent.shadowed.length > 0 && html`<span class="tag">shadows ${agent.shadowed.length}</span>`}
            <span class="tag">${plainText(agent.layer)}</span>
          </span>
        </summary>
        <div class="inside">
          ${agent.why && html`<p class="failure caution"><${Line} text=${agent.why} /></p>`}
          ${agent.problems.map((text) => html`<p class="failure caution" key=${text}><${Line} text=${text} /></p>`)}
          <${Terms} agent=${agent} />
          <div class="acts">
            ${
              agent.runnable &&
              html`<${Button} kind="primary" icon="plus" onClick=${() => onStart(agent.name)}>New run<//>`
            }
            ${isDoubtful && html`<${Button} kind="primary" onClick=${onTrust}>Review and approve…<//>`}
          </div>
          ${
            detail?.body &&
            html`
              <h2 class="minor">Prompt</h2>
              <${Block} text=${detail.body} language="prose" kind="output" />
            `
          }
          ${detail?.error && html`<${Refusal} failure=${detail.error} />`}
        </div>
      </details>
    </li>
  `;
}

function Problems({ problems }) {
  return html`
    <section class="failure">
      <b>${`${plural(problems.length, "file")} could not be read as an agent.`}</b>
      <ul class="plain-list">
        ${problems.map(
          (one) => html`
            <li key=${one.file}>
              <${Line} text=${one.file} kind="mono" />
              ${": "}
              <${Line} text=${one.message} />
            </li>
          `,
        )}
      </ul>
    </section>
  `;
}
