// The actions of a run: cancel, extend, copy the answer, download the transcript.

import { html, useState, Button, Copy, Dialog } from "./ui.js";
import { address, get, post, runPath } from "./api.js";
import { ChooseOther } from "./compare.js";
import { useCommands } from "./commands.js";
import { announce } from "./live-region.js";
import { Refusal, useRequest } from "./use-request.js";
import { Line } from "./untrusted-text.js";
import { isLive } from "./store.js";

const FORMATS = { html: "Web page (HTML)", md: "Markdown", txt: "Plain text", jsonl: "Events (JSON lines)" };

export function RunActions({ row }) {
  const [asked, ask] = useState(null);
  const close = () => ask(null);
  const can = row.can ?? {};
  useCommands(
    [
      can.cancel && { label: "Cancel this run", key: "c", run: () => ask("cancel") },
      can.extend && { label: "Extend its time", key: "e", run: () => ask("extend") },
      { label: "Compare with another run", key: "x", run: () => ask("compare") },
      ...Object.entries(FORMATS).map(([format, word]) => ({
        label: `Download as ${word}`,
        run: () => location.assign(address(runPath(row.run, "/transcript"), { format })),
      })),
    ].filter(Boolean),
    [row.run, can.cancel, can.extend],
  );
  const answer = async () => (await get(runPath(row.run, "/result"))).text;
  return html`
    <div class="acts">
      ${!isLive(row) && html`<${Copy} text=${answer} kind="">Copy result<//>`}
      ${row.can?.extend && html`<${Button} icon="late" onClick=${() => ask("extend")}>Extend<//>`}
      ${row.can?.cancel && html`<${Button} icon="stopped" kind="danger" onClick=${() => ask("cancel")}>Cancel<//>`}
      ${!isLive(row) && html`<${Button} onClick=${() => ask("compare")}>Compare<//>`}
      <${Downloads} run=${row.run} />
      ${asked === "compare" && html`<${ChooseOther} row=${row} onClose=${close} />`}
      ${asked === "cancel" && html`<${Cancel} row=${row} onClose=${close} />`}
      ${asked === "extend" && html`<${Extend} row=${row} onClose=${close} />`}
    </div>
  `;
}

function Downloads({ run }) {
  const leave = (event) => {
    if (event.key === "Escape" && event.currentTarget.open) {
      event.stopPropagation();
      event.currentTarget.open = false;
      event.currentTarget.querySelector("summary").focus();
    }
  };
  const away = (event) => {
    if (!event.currentTarget.contains(event.relatedTarget)) event.currentTarget.open = false;
  };
  return html`
    <details class="menu" onKeyDown=${leave} onFocusOut=${away}>
      <summary class="button">Download</summary>
      <ul>
        ${Object.entries(FORMATS).map(
          ([format, word]) => html`
            <li key=${format}><a href=${address(runPath(run, "/transcript"), { format })} download>${word}</a></li>
          `,
        )}
      </ul>
    </details>
  `;
}

function Cancel({ row, onClose }) {
  const [send, failure, isSending] = useRequest(async () => {
    await post(runPath(row.run, "/cancel"));
    announce([`Cancelling ${row.name}`]);
    onClose();
  });
  return html`
    <${Dialog} title="Cancel this run?" onClose=${onClose}>
      <p>
        <b><${Line} text=${row.name} /></b>
        ${" "}stops, and its child runs with it. What it wrote so far is kept, and it can be resumed.
      </p>
      <${Refusal} failure=${failure} />
      <footer>
        <${Button} onClick=${onClose}>Keep it running<//>
        <${Button} kind="danger solid" onClick=${send} disabled=${isSending}>Cancel the run<//>
      </footer>
    <//>
  `;
}

function Extend({ row, onClose }) {
  const [minutes, set] = useState("15");
  const [send, failure, isSending] = useRequest(async () => {
    await post(runPath(row.run, "/extend"), { seconds: Number(minutes) * 60 });
    announce([`${row.name} got ${minutes} more minutes`]);
    onClose();
  });
  const submit = (event) => {
    event.preventDefault();
    send();
  };
  return html`
    <${Dialog} title="More time" onClose=${onClose}>
      <form onSubmit=${submit}>
        <label class="field">
          <span>Minutes to add</span>
          <input
            type="number"
            autofocus
            min="1"
            max="600"
            step="1"
            required
            value=${minutes}
            onInput=${(event) => set(event.target.value)}
          />
        </label>
        <${Refusal} failure=${failure} />
        <footer>
          <${Button} onClick=${onClose}>Close<//>
          <${Button} type="submit" kind="primary" disabled=${isSending}>Extend<//>
        </footer>
      </form>
    <//>
  `;
}
