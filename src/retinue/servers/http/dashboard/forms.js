// The form that starts a run or a plan of several runs.

import { html, useEffect, useLayoutEffect, useState, Button, Dialog } from "./ui.js";
import { get, post } from "./api.js";
import { announce } from "./live-region.js";
import { useReconnected } from "./connection.js";
import { Options, TaskFields } from "./fields.js";
import { plural } from "./format.js";
import { go } from "./route.js";
import { Refusal, useRequest } from "./use-request.js";

const MODES = {
  single: ["One run", ""],
  parallel: ["Parallel", "All at once; one that fails does not stop the others."],
  chain: ["Chain", "One after the other. Each step gets the answer of the step before; {previous} in a task marks the place."],
};
let last = 0; // keys that identify tasks

const EDIT_EVENT = "retinue:edit"; // a task is to be edited and started

// Opens the form with the body of a start, `{agent, task, cwd, engine, timeout}`.
export function editAndStart(body) {
  window.dispatchEvent(new CustomEvent(EDIT_EVENT, { detail: body }));
}

export function useEditRequests(act) {
  useEffect(() => {
    const edit = (event) => act(event.detail);
    window.addEventListener(EDIT_EVENT, edit);
    return () => window.removeEventListener(EDIT_EVENT, edit);
  }, []);
}

// Returns the draft of a form that is filled with the body of a start.
function toDraft({ agent = "", task, cwd, engine, timeout }) {
  return { mode: "single", tasks: [{ ...blank(agent), task }], more: dropEmpty({ cwd, engine, timeout: timeout && timeout / 60 }) };
}

// The input stays in `draft`, a ref of the opener, until the run is started.
export function NewRun({ onClose, draft, agent = "", edited }) {
  if (edited && draft.current?.edited !== edited) draft.current = { ...toDraft(edited), edited };
  const [known, know] = useState(null);
  const [mode, setMode] = useState(draft.current?.mode ?? "single");
  const [tasks, setTasks] = useState(() => prepareTasks(draft.current?.tasks, agent));
  const [more, setMore] = useState(draft.current?.more ?? {});
  // A layout effect, to store the input also right before the dialog closes.
  useLayoutEffect(() => void (draft.current = { mode, tasks, more, edited }), [mode, tasks, more]);
  const load = () =>
    Promise.all([get("/agents"), get("/engines")]).then(
      ([{ agents, cwd }, { engines, auto }]) =>
        know({ agents: agents.filter((one) => one.enabled), engines, auto, cwd }),
      (error) => know({ error }),
    );
  useEffect(() => void load(), []);
  useReconnected(load);
  const [send, failure, isSending] = useRequest(async () => {
    const { engine, model, sandbox, cwd } = more;
    const number = (name) => more[name] && Number(more[name]);
    const whole = dropEmpty({ engine, model, sandbox, maxTurns: number("maxTurns"), maxDepth: number("maxDepth") });
    const each = (task) =>
      dropEmpty({ agent: task.agent, task: task.task, cwd, timeout: more.timeout && Number(more.timeout) * 60 });
    if (mode === "single") {
      const { run } = await post("/runs", { ...each(tasks[0]), ...whole });
      go(`/runs/${run.run}`);
    } else {
      await post("/plans", { mode, tasks: tasks.map(each), ...whole });
      go("/");
      announce([`Started ${plural(tasks.length, "run")}`]);
    }
    draft.current = null;
    onClose();
  });
  const choose = (next) => {
    setMode(next);
    if (next === "single") setTasks(tasks.slice(0, 1));
    else if (tasks.length < 2) setTasks([...tasks, blank(tasks[0].agent)]);
  };
  const add = ({ currentTarget: { form } }) => {
    setTasks([...tasks, blank(tasks.at(-1).agent)]);
    requestAnimationFrame(() => [...form.querySelectorAll(".task-fields select")].at(-1).focus()); // once it is mounted
  };
  const submit = (event) => {
    event.preventDefault();
    send();
  };
  const keys = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.requestSubmit();
  };
  const change = (key, part) => setTasks(tasks.map((task) => (task.key === key ? { ...task, ...part } : task)));
  return html`
    <${Dialog} title="New run" onClose=${onClose} wide>
      <form onSubmit=${submit} onKeyDown=${keys}>
        <fieldset class="modes">
          <legend class="unseen">How</legend>
          ${Object.entries(MODES).map(
            ([name, [word]]) => html`
              <label key=${name}>
                <input type="radio" name="mode" value=${name} checked=${mode === name} onChange=${() => choose(name)} />
                <span>${word}</span>
              </label>
            `,
          )}
        </fieldset>
        ${MODES[mode][1] && html`<p class="hint">${MODES[mode][1]}</p>`}
        ${known?.error && html`<${Refusal} failure=${known.error} />`}
        ${tasks.map(
          (task, index) => html`
            <${TaskFields}
              key=${task.key}
              task=${task}
              title=${mode === "single" ? "" : `${mode === "chain" ? "Step" : "Task"} ${index + 1}`}
              isFirst=${index === 0}
              known=${known}
              onChange=${(part) => change(task.key, part)}
              onRemove=${tasks.length > 2 && (() => setTasks(tasks.filter((one) => one !== task)))}
            />
          `,
        )}
        ${
          mode !== "single" &&
          html`
            <p class="add">
              <${Button} icon="plus" kind="quiet" onClick=${add}>
                ${mode === "chain" ? "Add a step" : "Add a task"}
              <//>
            </p>
          `
        }
        <${Options} known=${known} more=${more} onChange=${(part) => setMore({ ...more, ...part })} />
        <${Refusal} failure=${failure} />
        <footer>
          <span class="hint keys">Ctrl+Enter starts</span>
          <${Button} onClick=${onClose}>Close<//>
          <${Button} type="submit" kind="primary" disabled=${isSending}>
            ${mode === "single" ? "Start" : `Start ${tasks.length}`}
          <//>
        </footer>
      </form>
    <//>
  `;
}

// Returns the tasks of a draft, the first one for the requested agent.
function prepareTasks(tasks, agent) {
  if (!tasks) return [blank(agent)];
  return agent ? tasks.with(0, { ...tasks[0], agent }) : tasks;
}

function blank(agent) {
  return { key: ++last, agent, task: "" };
}

function dropEmpty(fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value != null && value !== ""));
}
