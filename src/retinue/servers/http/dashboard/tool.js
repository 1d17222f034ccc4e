// A tool call: a summary line that expands to arguments and result.

import { html, useState, Icon } from "./ui.js";
import { Row } from "./rows.js";
import { bytes, duration, plural } from "./format.js";
import { asDiff, detectLanguage, formatJson } from "./highlight.js";
import { Block, Line } from "./untrusted-text.js";
import { plainText } from "./text.js";

const PATHS = ["path", "file_path", "filePath"];
const MAIN_ARGUMENTS = ["command", ...PATHS, "query", "url", "task", "prompt", "description", "agent", "name"];
const BEFORE = ["oldText", "old_string", "oldString"];
const AFTER = ["newText", "new_string", "newString"];

// Once the run has ended, a call without a result will not get one.
export function Tool({ item, below, isOver }) {
  const { name, args, result, printed, isError } = item;
  const [isOpen, open] = useState(false);
  const isUnanswered = result === undefined;
  const path = first(args, PATHS) ?? "";
  return html`
    <details class="fold tool ${isError ? "failed" : ""}" onToggle=${(event) => open(event.currentTarget.open)}>
      <summary>
        <${Icon} name=${isUnanswered ? (isOver ? "stopped" : "running") : isError ? "error" : "chevron"} />
        <span class="name"><${Line} text=${name} /></span>
        <span class="gist"><${Line} text=${mainArgument(args)} /></span>
        <span class="number">${isUnanswered ? isOver && "no result" : outcome(item)}</span>
      </summary>
      ${
        isOpen &&
        html`
          <div class="inside">
            <${Arguments} args=${args} path=${path} />
            ${
              isUnanswered &&
              printed?.shown &&
              html`
                <h2 class="minor">Printed so far</h2>
                <${Block} text=${printed.shown} kind="output" />
              `
            }
            ${
              !isUnanswered &&
              html`
                <h2 class="minor">Result</h2>
                <${Result} text=${result} path=${path} />
              `
            }
          </div>
        `
      }
    </details>
    ${
      below.length > 0 &&
      html`
        <ul class="below" aria-label="Child runs">
          ${below.map(({ row, awaited }) => html`<${Row} key=${row.run} row=${row} awaited=${awaited} />`)}
        </ul>
      `
    }
  `;
}

// Returns the argument shown beside the tool's name; of a search its pattern.
export function mainArgument(args) {
  const pattern = first(args, ["pattern"]);
  if (pattern !== undefined) {
    const place = first(args, ["glob", ...PATHS]) ?? ".";
    return (place === "." ? pattern : `${pattern} in ${place}`).slice(0, 300);
  }
  const asked = delegatedTo(args);
  if (asked) return asked.slice(0, 300);
  const found = first(args, MAIN_ARGUMENTS) ?? Object.values(args ?? {}).find((value) => typeof value === "string");
  return found === undefined ? "" : String(found).slice(0, 300);
}

// Returns the agents of a delegation: several by name, one with its task.
function delegatedTo(args) {
  const names = Array.isArray(args?.tasks) ? args.tasks.map((one) => first(one, ["agent"])).filter(Boolean) : [];
  if (names.length) return [first(args, ["mode"]), countEqual(names)].filter(Boolean).join(": ");
  const [agent, task] = [first(args, ["agent", "subagent_type"]), first(args, ["task", "prompt"])];
  return agent && task ? `${agent}: ${task}` : undefined;
}

// Returns the names in order, equal ones once with their number: "explorer ×3, tester".
function countEqual(names) {
  return [...new Set(names)]
    .map((name) => [name, names.filter((one) => one === name).length])
    .map(([name, number]) => (number > 1 ? `${name} ×${number}` : name))
    .join(", ");
}

function Result({ text, path }) {
  if (!text) return html`<p class="muted">Empty.</p>`;
  const language = detectLanguage(text, path);
  return html`<${Block} text=${language === "json" ? formatJson(text) : text} language=${language} kind="output" />`;
}

function Arguments({ args, path }) {
  const entries = Object.entries(args ?? {});
  if (entries.length === 0) return null;
  const edits = Array.isArray(args.edits) ? args.edits : [args];
  const diffs = edits.map((edit) => asDiff(first(edit, BEFORE) ?? "", first(edit, AFTER) ?? "")).filter(Boolean);
  const shown = entries.filter(
    ([key]) => !(diffs.length && (key === "edits" || BEFORE.includes(key) || AFTER.includes(key))),
  );
  return html`
    <dl class="arguments">
      ${shown.map(
        ([key, value]) => html`
          <div key=${key}>
            <dt>${plainText(key)}</dt>
            <dd><${Value} value=${value} path=${path} /></dd>
          </div>
        `,
      )}
    </dl>
    ${diffs.map((diff) => html`<${Block} text=${diff} language="diff" kind="output" />`)}
  `;
}

function Value({ value, path }) {
  if (typeof value === "string") {
    return value.includes("\n") || value.length > 120
      ? html`<${Block} text=${value} language=${detectLanguage(value, path)} kind="output" />`
      : html`<${Line} text=${value} kind="mono" />`;
  }
  const written = JSON.stringify(value, null, 2);
  return html`<${Block} text=${written} language="json" kind=${written.includes("\n") ? "output" : "mono"} />`;
}

function first(args, names) {
  const name = names.find((one) => typeof args?.[one] === "string");
  return name === undefined ? undefined : args[name];
}

function outcome({ result, isError, seconds }) {
  const parts = [isError && "failed", size(result), seconds >= 0.1 && duration(seconds)];
  return parts.filter(Boolean).join(" · ");
}

function size(text) {
  if (!text) return "empty";
  const lines = text.split("\n").length;
  return text.length > 20_000 ? bytes(text.length) : lines > 1 ? `${lines} lines` : plural(text.length, "char");
}
