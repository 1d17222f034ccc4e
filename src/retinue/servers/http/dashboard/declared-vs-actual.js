// A table of what was declared for a run and what actually happened.

import { html, Part } from "./ui.js";
import { bytes, count, roundDuration, sandboxText, toolNames } from "./format.js";
import { Line, Pairs } from "./untrusted-text.js";

export function DeclaredVsActual({ detail: { declared: declaredOrNull, actual } }) {
  const declared = declaredOrNull ?? {};
  const facts = actual ?? {};
  const rows = [
    ["Engine", declared.engine, facts.engine],
    ["Model", declared.model, facts.model],
    ["Tools", toolNames(declared.tools), actual && toolNames(facts.toolsGranted)],
    [
      "Timeout",
      declared.timeout && roundDuration(declared.timeout),
      facts.limits && roundDuration(facts.limits.timeout),
    ],
    ["Thinking", declared.thinking, null],
    ["Sandbox", plannedSandbox(declared, facts), actual && sandboxText(facts.sandbox)],
  ].filter(([, one, other]) => one || other);
  const gaps = (facts.sandbox ?? declared.sandbox)?.gaps ?? [];
  const removed = (facts.toolsRemoved ?? []).map(({ tool, by }) => `${tool} (by ${by})`);
  const more = [
    removed.length > 0 && ["Removed tools", removed.join(", ")],
    facts.toolsMissing?.length > 0 && ["Missing tools", facts.toolsMissing.join(", ")],
    facts.notApplied?.length > 0 && ["Not applied", facts.notApplied.join(", ")],
    gaps.length > 0 && ["Not enforced", gaps.join("; ")],
    actual && ["Secrets masked", count(facts.masks ?? 0)],
    facts.droppedBytes > 0 && ["Output dropped", `${count(facts.droppedBytes)} bytes`],
    facts.process && [
      "Process",
      facts.process.signal ? `signal ${facts.process.signal}` : `exit ${facts.process.code}`,
    ],
    facts.processUsage && [
      "Process usage",
      `${facts.processUsage.cpuSeconds.toFixed(1)} s CPU, ${bytes(facts.processUsage.peakMemoryBytes)} memory at most`,
    ],
    facts.saved === false && ["Stored", "incompletely"],
  ].filter(Boolean);
  return html`
    <${Part} title="Declared and actual">
      <table class="compared">
        <thead>
          <tr>
            <th scope="col"><span class="unseen">What</span></th>
            <th scope="col">Declared</th>
            <th scope="col">Actual</th>
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            ([name, one, other]) => html`
              <tr key=${name} class=${one && other && one !== other ? "differs" : ""}>
                <th scope="row">${name}</th>
                <td><${Line} text=${one ?? "—"} /></td>
                <td><${Line} text=${other ?? "—"} /></td>
              </tr>
            `,
          )}
        </tbody>
      </table>
      ${more.length > 0 && html`<${Pairs} rows=${more} />`}
      ${!actual && html`<p class="muted">Actual values are known once the run has ended.</p>`}
    <//>
  `;
}

// Returns the sandbox that a run was planned with; older records do not have it.
function plannedSandbox({ sandbox }, actual) {
  return sandbox || (actual.sandbox?.mode ?? "off") === "off" ? sandboxText(sandbox) : null;
}
