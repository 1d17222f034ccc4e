// The input below a transcript: steers a running agent if its engine supports that, or continues the session.

import { html, useEffect, useRef, useState, Button } from "./ui.js";
import { post, runPath } from "./api.js";
import { announce } from "./live-region.js";
import { go } from "./route.js";
import { Refusal, useRequest } from "./use-request.js";
import { isLive } from "./store.js";
import { plainText } from "./text.js";

const SUGGEST_EVENT = "retinue:suggest"; // a prompt is to be written into the composer

// Writes a prompt into the composer of the page, to be sent or changed by the user.
export function suggestPrompt(text) {
  window.dispatchEvent(new CustomEvent(SUGGEST_EVENT, { detail: text }));
}

export function Composer({ row }) {
  const field = useRef();
  const steers = isLive(row) && row.can?.steer;
  const resumes = !isLive(row) && row.can?.resume;
  const [text, write] = useState("");
  const [send, failure, isSending] = useRequest(async () => {
    if (steers) {
      await post(runPath(row.run, "/steer"), { text });
      announce([`Message sent to ${row.name}`]);
      write("");
    } else {
      const { run } = await post(runPath(row.run, "/resume"), { task: text });
      go(`/runs/${run.run}`);
    }
  });
  useEffect(() => {
    const suggested = (event) => {
      write((before) => before || event.detail);
      requestAnimationFrame(() => field.current?.focus()); // once its tab is visible
    };
    window.addEventListener(SUGGEST_EVENT, suggested);
    return () => window.removeEventListener(SUGGEST_EVENT, suggested);
  }, []);
  if (!steers && !resumes) return null;
  const submit = (event) => {
    event.preventDefault();
    if (text.trim() && !isSending) send();
  };
  const keys = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
    if (event.key === "Escape") event.target.blur();
  };
  const [label, hint] = steers
    ? [`Message to ${plainText(row.name)} while it runs`, "Message to this agent"]
    : [`Resume ${plainText(row.name)}: a new prompt in this session`, "A new prompt in this session"];
  return html`
    <form class="composer" onSubmit=${submit} aria-label=${steers ? "Steer" : "Resume"}>
      <${Refusal} failure=${failure} />
      <div class="line">
        <textarea
          ref=${field}
          rows="1"
          aria-label=${label}
          placeholder=${hint}
          value=${text}
          onInput=${(event) => write(event.target.value)}
          onKeyDown=${keys}
        />
        <${Button} type="submit" kind="primary" disabled=${isSending || !text.trim()}>${steers ? "Steer" : "Resume"}<//>
      </div>
    </form>
  `;
}
