// The input below a transcript: steers a running agent if its engine supports that, or continues the session.

import { html, useState, Button } from "./ui.js";
import { post, runPath } from "./api.js";
import { announce } from "./live-region.js";
import { go } from "./route.js";
import { Refusal, useRequest } from "./use-request.js";
import { isLive } from "./store.js";
import { plainText } from "./text.js";

export function Composer({ row }) {
  const steers = isLive(row) && row.can?.steer;
  const resumes = !isLive(row) && row.can?.resume;
  const [text, write] = useState("");
  const [send, failure, isSending] = useRequest(async () => {
    if (steers) {
      await post(runPath(row.run, "/steer"), { text });
      announce([`${row.name} was told`]);
      write("");
    } else {
      const { run } = await post(runPath(row.run, "/resume"), { task: text });
      go(`/runs/${run.run}`);
    }
  });
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
    ? [`Tell ${plainText(row.name)} something while it works`, "Tell it something while it works"]
    : [`Go on with ${plainText(row.name)}: a new prompt in this session`, "A new prompt in this session"];
  return html`
    <form class="composer" onSubmit=${submit} aria-label=${steers ? "Steer" : "Resume"}>
      <${Refusal} failure=${failure} />
      <div class="line">
        <textarea
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
