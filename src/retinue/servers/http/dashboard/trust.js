// The permissions and the source of an agent, and the dialog that approves it.

import { html, useEffect, useState, Button, Dialog } from "./ui.js";
import { get, post } from "./api.js";
import { roundDuration, toolNames } from "./format.js";
import { Refusal, useRequest } from "./use-request.js";
import { Block, Pairs } from "./untrusted-text.js";

export const TRUST = { trusted: "approved", untrusted: "not approved", changed: "changed since approval" };

export function Terms({ agent }) {
  const facts = [
    ["Tools", `${toolNames(agent.tools)}${agent.readonly ? " (read-only)" : ""}`],
    agent.delegates && ["Delegates", "if Max depth allows it"],
    agent.deniedTools?.length > 0 && ["Denied tools", agent.deniedTools.join(", ")],
    ["Model", agent.model ?? "default of the engine"],
    ["Engine", agent.engine ?? "auto"],
    agent.timeout && ["Timeout", roundDuration(agent.timeout)],
    agent.skills?.length > 0 && ["Skills", agent.skills.join(", ")],
    agent.fallbackModels?.length > 0 && ["Other models", agent.fallbackModels.join(", ")],
    agent.extensions?.length > 0 && ["Extensions", agent.extensions.join(", ")],
    agent.extraArgs?.length > 0 && ["Arguments", agent.extraArgs.join(" ")],
    ...(agent.servers ?? []).map((server, at) => [`MCP server ${at + 1}`, server]),
    agent.environment?.length > 0 && ["Environment variables", agent.environment.join(", ")],
    ...(agent.hooks ?? []).map((hook) => ["Hook", hook]),
    ["File", agent.file ?? "built in"],
    agent.trust in TRUST && ["Trust", TRUST[agent.trust]],
    agent.shadowed.length > 0 && [
      "Shadows",
      agent.shadowed.map((one) => `${one.layer}: ${one.file ?? "built in"}`).join(", "),
    ],
  ].filter(Boolean);
  return html`<${Pairs} rows=${facts} />`;
}

export function Trust({ agent, onClose, onDone }) {
  const [detail, know] = useState(null);
  useEffect(() => void get(`/agents/${encodeURIComponent(agent.name)}`).then(know, (error) => know({ error })), []);
  const [send, failure, isSending] = useRequest(async () => {
    // The version that was displayed: a file that was changed meanwhile is refused.
    await post(`/agents/${encodeURIComponent(agent.name)}/trust`, { digest: detail.digest });
    onDone();
    onClose();
  });
  return html`
    <${Dialog} title="Approve this agent?" onClose=${onClose} wide>
      <p>
        It is part of the files of this project. Once approved, it runs with these tools and this model until its file
        changes.
      </p>
      <${Terms} agent=${detail?.name ? detail : agent} />
      ${
        detail?.body &&
        html`
          <h3 class="minor">Prompt</h3>
          <${Block} text=${detail.body} language="prose" kind="output" />
        `
      }
      <${Refusal} failure=${failure ?? detail?.error} />
      <footer>
        <${Button} onClick=${onClose}>Not now<//>
        <${Button} kind="primary" onClick=${send} disabled=${isSending || !detail?.name}>Approve<//>
      </footer>
    <//>
  `;
}
