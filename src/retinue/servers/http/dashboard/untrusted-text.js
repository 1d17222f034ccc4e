// Text of others on the screen: as text nodes in elements that keep its direction to themselves. The only place where
// pieces become elements; links lead only to http(s), and only when they are clicked.

import { html, memo, memoWithHooks, useLayoutEffect, useRef, useState, Button } from "./ui.js";
import { bytes } from "./format.js";
import { highlight } from "./highlight.js";
import { ends, parts, pieces } from "./text.js";

// One line within a sentence or a cell.
export const Line = memo(({ text, kind = "" }) => {
  return html`<bdi class=${kind}>${pieces(text, { oneLine: true }).map(element)}</bdi>`;
});

// A text with its lines. Long ones show their beginning and their end until all is asked for.
export const Block = memoWithHooks(({ text, language = "", kind = "" }) => {
  const [isWhole, showWhole] = useState(false);
  const scroller = useScroller(kind, text);
  const { head, cut, tail } = ends(text);
  if (cut && isWhole) {
    const part = (piece, index) => html`<span class="part" key=${index}>${pieces(piece).map(element)}</span>`;
    return html`<pre class="block ${kind}" tabindex="0">${parts(text).map(part)}</pre>`;
  }
  const shown = html`<pre class="block ${kind}" ref=${scroller}>${coloured(head, language)}</pre>`;
  if (!cut) return shown;
  return html`
    <div class="long">
      ${shown}
      <p class="cut">
        <span>${`${bytes(cut)} not shown`}</span>
        <${Button} onClick=${() => showWhole(true)}>${`Show all ${bytes(text.length)}`}<//>
      </p>
      <pre class="block ${kind}">${coloured(tail, language)}</pre>
    </div>
  `;
});

// What is too high for its frame is reached by the keyboard, to be scrolled; the rest is no stop on the way.
function useScroller(kind, text) {
  const element = useRef();
  useLayoutEffect(() => {
    const { current: frame } = element;
    if (kind !== "output" || !frame) return;
    if (frame.scrollHeight > frame.clientHeight) frame.tabIndex = 0;
    else frame.removeAttribute("tabindex");
  }, [kind, text]);
  return element;
}

// Names and what they stand for.
export function Pairs({ rows, kind = "" }) {
  const pair = ([name, value]) => html`
    <div key=${name}>
      <dt>${name}</dt>
      <dd><${Line} text=${value} kind=${kind} /></dd>
    </div>
  `;
  return html`<dl class="pairs">${rows.filter(Boolean).map(pair)}</dl>`;
}

function coloured(text, language) {
  const links = language === "" || language === "prose";
  return highlight(text, language).map(({ text: piece, kind }) => {
    const isFence = kind === "fence";
    const shown = isFence ? coloured(piece, fenced(piece)) : pieces(piece, { links }).map(element);
    return kind ? html`<span class="hl-${kind}">${shown}</span>` : shown;
  });
}

// The language of a block of code within prose, by what stands behind its fence.
function fenced(block) {
  return /^```(diff|json)\b/.exec(block)?.[1] ?? "code";
}

function element({ text, mark, title, link }) {
  if (link) return html`<a href=${link} target="_blank" rel="noopener noreferrer">${link}</a>`;
  return mark ? html`<span class="mark" title=${title}>${mark}</span>` : text;
}
