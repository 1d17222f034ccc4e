// The failure of a run: the reason, what to do about it, and the buttons that do it.

import { html, Button } from "./ui.js";
import { post } from "./api.js";
import { suggestPrompt } from "./composer.js";
import { appearance, failureLabel, roundDuration } from "./format.js";
import { editAndStart } from "./forms.js";
import { go } from "./route.js";
import { plainText } from "./text.js";
import { Refusal, useRequest } from "./use-request.js";
import { Block } from "./untrusted-text.js";

const MAX_TIMEOUT = 7 * 86_400; // seconds, as the server allows
const CONTINUE = "Continue where you stopped.";
const SETTINGS = new Set(["budget", "loop", "idle_timeout", "spawn_limit", "depth_exceeded", "disabled", "spawn_failed"]);
const ADVICE = {
  timeout: "Resume the session, or retry with more time.",
  idle_timeout: "Resume the session, or raise the setting idle_timeout.",
  loop: "Resume the session with a more precise task, or edit the task and retry.",
  budget: "Resume the session, or raise max_turns, max_tokens or max_cost.",
  output_limit: "Edit the task to ask for less at once.",
  not_finalized: "Resume the session to ask for the result again.",
  provider: "Retry later, or edit the run and choose another model or engine.",
  engine: "Read the message, then retry.",
  spawn_failed: "System lists the engines and what each of them needs.",
  signalled: "Another program ended the process, for example because memory ran out. Retry.",
  aborted: "Resume the session to continue with what it has, or retry from the start.",
  interrupted: "The process of the run ended. Resume the session: everything up to then is in it.",
};
const DEFAULT_ADVICE = "Retry starts the same task again; Resume continues this session with what it has.";

export function FailurePanel({ detail, onResume }) {
  const { failure } = detail;
  const [retry, refusal, isSending] = useRequest(async (timeout) => {
    const { run } = await post("/runs", { ...retryBody(detail), ...(timeout && { timeout }) });
    go(`/runs/${run.run}`);
  });
  const resume = () => {
    onResume();
    suggestPrompt(CONTINUE);
  };
  return html`
    <div class="failure ${appearance(detail)}" role="note">
      <b>${plainText(failureLabel(failure))}</b>
      <${Block} text=${failure.message} language="plain" />
      <p class="advice">${ADVICE[failure.code] ?? DEFAULT_ADVICE}</p>
      <div class="acts">
        ${detail.can?.resume && html`<${Button} onClick=${resume}>Resume<//>`}
        <${Button} onClick=${() => retry()} disabled=${isSending}>Retry<//>
        ${
          failure.code === "timeout" &&
          html`
            <${Button} onClick=${() => retry(moreTime(detail))} disabled=${isSending}>
              ${`Retry with a timeout of ${roundDuration(moreTime(detail))}`}
            <//>
          `
        }
        <${Button} onClick=${() => editAndStart(retryBody(detail))}>Edit and retry…<//>
        ${SETTINGS.has(failure.code) && html`<a class="button" href="#/system">Settings</a>`}
      </div>
      <${Refusal} failure=${refusal} />
    </div>
  `;
}

// Returns the body of a start with the task, the agent and the limits of a run.
export function retryBody(detail) {
  const { agent, cwd, timeout, engine } = detail;
  const body = { agent, task: detail.taskText ?? detail.task, cwd, engine, timeout: Math.min(timeout, MAX_TIMEOUT) };
  return Object.fromEntries(Object.entries(body).filter(([, value]) => value));
}

export function moreTime({ timeout }) {
  return Math.min(2 * Math.max(timeout, 1), MAX_TIMEOUT);
}
