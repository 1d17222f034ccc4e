// The live transcript. It follows its end until the user scrolls up, and shows the end of a long one first.

import { html, memo, useState, Button, Icon } from "./ui.js";
import { useFollowEnd } from "./follow-end.js";
import { clock, cost, count, duration, roundDuration, appearance, plural, stateLabel, tokens } from "./format.js";
import { Markdown, MarkdownSwitch } from "./markdown.js";
import { Block, Line } from "./untrusted-text.js";
import { countAwaited, isLive } from "./store.js";
import { mainArgument, Tool } from "./tool.js";
import { foldEqualCalls } from "./transcript-model.js";
import { plainText } from "./text.js";

const ITEMS_PER_PAGE = 200; // drawn at first and with each "earlier"
const STOPPED = { length: "The model reached its length limit.", error: "The provider failed." };

export function TranscriptView({ detail, transcript, tree, isComplete }) {
  const [most, show] = useState(ITEMS_PER_PAGE);
  const { items, writing } = transcript;
  const live = isLive(detail);
  const { isBehind, follow } = useFollowEnd(live, [items.length, writing]);
  const shown = items.slice(-most);
  const awaited = countAwaited(tree);
  const below = tree
    .filter((row) => row.parentRun === detail.run)
    .map((row) => ({ row, awaited: awaited.get(row.run) ?? 0 }));
  const isFoldable = (item) => item.result !== undefined && !item.isError && !childrenOf(below, item.call);
  const folded = live ? shown : foldEqualCalls(shown, isFoldable);
  const isRepeated = (item) =>
    item.kind === "ended" && items.findLast((one) => one.kind === "text")?.text === item.text;
  return html`
    <section class="transcript" aria-label="Transcript">
      <div class="view-bar"><${MarkdownSwitch} /></div>
      ${
        items.length > shown.length &&
        html`
          <p class="earlier">
            <${Button} onClick=${() => show(most + ITEMS_PER_PAGE)}>${plural(items.length - shown.length, "earlier item")}<//>
          </p>
        `
      }
      <ol>
        ${folded.map(
          (item) => html`
            <${Item}
              key=${item.key}
              item=${item}
              row=${item.kind === "tool" ? childrenOf(below, item.call) : ""}
              isOver=${item.kind === "tool" && !live}
              isRepeated=${isRepeated(item)}
            />
          `,
        )}
        ${
          writing.thinking.shown &&
          html`
            <li class="item thinking now" key="thinking"><${Thinking} text=${writing.thinking.shown} isWriting /></li>
          `
        }
        ${
          writing.text.shown &&
          html`
            <li class="item text now" key="text">
              <${Markdown} text=${writing.text.shown} kind="words" />
            </li>
          `
        }
      </ol>
      ${!isComplete && html`<p class="muted" aria-live="polite">Loading…</p>`}
      ${
        live &&
        isComplete &&
        html`
          <p class="pulse">
            <span aria-hidden="true" />${describeWork(detail, awaited.get(detail.run))}</p>
        `
      }
      ${
        isBehind &&
        live &&
        html`<div class="latest"><${Button} icon="down" kind="raised" onClick=${follow}>Latest<//></div>`
      }
    </section>
  `;
}

function describeWork({ state }, awaited) {
  if (state === "queued") return "Queued: waiting for a slot";
  return awaited ? `Waiting for ${plural(awaited, "child run")}` : "Running";
}

// Returns the child runs of a call as one string that changes with them, so that little is drawn again.
function childrenOf(below, call) {
  const found = below.filter(({ row }) => row.parentToolUseId === call);
  return found.length ? JSON.stringify(found) : "";
}

const Item = memo(({ item, ...about }) => {
  return html`<li class="item ${item.kind}">${VIEWS[item.kind](item, about)}</li>`;
});

const VIEWS = {
  calls: (item) => html`<${Calls} ...${item} />`,
  text: ({ text }) => html`<${Markdown} text=${text} kind="words" />`,
  thinking: ({ text }) => html`<${Thinking} text=${text} />`,
  tool: (item, { row, isOver }) => html`
    <${Tool} item=${item} below=${row ? JSON.parse(row) : []} isOver=${isOver} />
  `,
  attempt: ({ number, reason, model }) =>
    html`<${Rule}>${plainText(`Attempt ${number}: ${[reason, model].filter(Boolean).join(", ")}`)}<//>`,
  model: ({ before, after, reason }) => html`
    <${Rule} icon="warning">${plainText(`${before ?? "The model"} failed (${reason}); ${after} continues`)}<//>
  `,
  notice: ({ message }) => html`<${Rule} icon="warning"><${Line} text=${message} /><//>`,
  steered: ({ text }) => html`
    <div class="said">
      <span class="muted">Message</span>
      <${Block} text=${text} kind="words" />
    </div>
  `,
  extended: ({ seconds, timeout }) => html`
    <${Rule} icon="late">${`${roundDuration(seconds)} more; it now has ${roundDuration(timeout)}`}<//>
  `,
  turn: ({ usage, time }) =>
    tokens(usage) &&
    html`
      <p class="turn">
        <time>${clock(time)}</time>
        ${`${count(tokens(usage))} tokens${usage.cost ? ` · ${cost(usage.cost)}` : ""}`}
      </p>
    `,
  stopped: ({ stopReason, error }) => html`<${Rule} icon="error">${plainText(`${STOPPED[stopReason]} ${error ?? ""}`)}<//>`,
  finalized: ({ status, result, error }) => html`
    <${Rule} icon=${status === "SUCCESS" ? "completed" : "error"}>${plainText(`Finalized: ${status}`)}<//>
    ${[result, error].filter(Boolean).map((text) => html`<${Markdown} text=${text} kind="words" />`)}
  `,
  ended: ({ text, failure, elapsed }, { isRepeated }) => html`
    ${
      text &&
      !isRepeated &&
      !failure &&
      html`<${Markdown} text=${text} kind="words" />`
    }
    <${Rule} icon=${appearance({ state: failure ? "error" : "completed", failure })}>
      ${failure ? `${stateLabel({ state: "error", failure })} after ${duration(elapsed)}` : `Completed in ${duration(elapsed)}`}
    <//>
  `,
};

function Rule({ icon, children }) {
  return html`
    <p class="rule ${icon ?? ""}">
      ${icon && html`<${Icon} name=${icon} />`}
      <span>${children}</span>
    </p>
  `;
}

// Calls of one tool in a row, as one line that expands to them.
function Calls({ name, count: number, items }) {
  const [isOpen, open] = useState(false);
  const calls = items.filter((item) => item.kind === "tool");
  const seconds = calls.reduce((sum, item) => sum + (item.seconds ?? 0), 0);
  const gist = [...new Set(calls.map((item) => mainArgument(item.args)))].join(", ");
  return html`
    <details class="fold calls" onToggle=${(event) => open(event.currentTarget.open)}>
      <summary>
        <${Icon} name="chevron" />
        <span class="name"><${Line} text=${name} />${` ×${number}`}</span>
        <span class="gist"><${Line} text=${gist.slice(0, 300)} /></span>
        <span class="number">${seconds >= 0.1 && duration(seconds)}</span>
      </summary>
      ${
        isOpen &&
        html`<ol class="inside-calls">${items.map((item) => html`<${Item} key=${item.key} item=${item} row="" isOver />`)}</ol>`
      }
    </details>
  `;
}

function Thinking({ text, isWriting = false }) {
  return html`
    <details class="fold">
      <summary>
        <${Icon} name="chevron" />
        <span class="name">${isWriting ? "Thinking…" : "Thought"}</span>
        <span class="gist"><${Line} text=${text.slice(0, 200)} /></span>
      </summary>
      <${Block} text=${text} kind="quiet" />
    </details>
  `;
}
