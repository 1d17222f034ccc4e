// Displays untrusted text as text nodes in elements that isolate its direction. The only module that turns pieces into
// elements; links are http(s) only and are followed only on click.

import { html, memo, memoWithHooks, useLayoutEffect, useRef, useState, Button } from "./ui.js";
import { bytes } from "./format.js";
import { highlight } from "./highlight.js";
import { headAndTail, splitIntoParts, pieces } from "./text.js";

// One line of text within a sentence or a cell.
export const Line = memo(({ text, kind = "" }) => {
  return html`<bdi class=${kind}>${pieces(text, { oneLine: true }).map(renderPiece)}</bdi>`;
});

// One line in which `words` between backticks are set as code.
export function CodeLine({ text }) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return html`<${Line} text=${text} />`;
  return parts.map((part, index) => (index % 2 ? html`<code><${Line} text=${part} /></code>` : html`<${Line} text=${part} />`));
}

// A text with line breaks. A long text shows its start and end until it is expanded.
export const Block = memoWithHooks(({ text, language = "", kind = "" }) => {
  const [isWhole, showWhole] = useState(false);
  const scroller = useScroller(kind, text);
  const { head, cut, tail } = headAndTail(text);
  if (cut && isWhole) {
    const part = (piece, index) => html`<span class="part" key=${index}>${pieces(piece).map(renderPiece)}</span>`;
    return html`<pre class="block ${kind}" tabindex="0">${splitIntoParts(text).map(part)}</pre>`;
  }
  const shown = html`<pre class="block ${kind}" ref=${scroller}>${renderHighlighted(head, language)}</pre>`;
  if (!cut) return shown;
  return html`
    <div class="long">
      ${shown}
      <p class="cut">
        <span>${`${bytes(cut)} not shown`}</span>
        <${Button} onClick=${() => showWhole(true)}>${`Show all ${bytes(text.length)}`}<//>
      </p>
      <pre class="block ${kind}">${renderHighlighted(tail, language)}</pre>
    </div>
  `;
});

// Returns the nodes of a text within an element of the caller.
export function renderText(text, { links = false } = {}) {
  return pieces(text, { links }).map(renderPiece);
}

// A frame that scrolls sideways where its content is wider.
export function ScrollFrame({ label, children }) {
  const scroller = useScroller("output", children);
  return html`<div class="scroll-frame" role="group" aria-label=${label} ref=${scroller}>${children}</div>`;
}

// Makes a block that overflows its frame focusable, to be scrolled by keyboard; other blocks are no tab stops.
function useScroller(kind, text) {
  const element = useRef();
  useLayoutEffect(() => {
    const { current: frame } = element;
    if (kind !== "output" || !frame) return;
    if (frame.scrollHeight > frame.clientHeight || frame.scrollWidth > frame.clientWidth) frame.tabIndex = 0;
    else frame.removeAttribute("tabindex");
  }, [kind, text]);
  return element;
}

// A list of names and values.
export function Pairs({ rows, kind = "" }) {
  const pair = ([name, value]) => html`
    <div key=${name}>
      <dt>${name}</dt>
      <dd><${Line} text=${value} kind=${kind} /></dd>
    </div>
  `;
  return html`<dl class="pairs">${rows.filter(Boolean).map(pair)}</dl>`;
}

function renderHighlighted(text, language) {
  const links = language === "" || language === "prose";
  return highlight(text, language).map(({ text: piece, kind }) => {
    const isFence = kind === "fence";
    const shown = isFence ? renderHighlighted(piece, fenceLanguage(piece)) : pieces(piece, { links }).map(renderPiece);
    return kind ? html`<span class="hl-${kind}">${shown}</span>` : shown;
  });
}

// Returns the language of a code block from the text after its fence.
function fenceLanguage(block) {
  return /^```(diff|json)\b/.exec(block)?.[1] ?? "code";
}

function renderPiece({ text, mark, title, link }) {
  if (link) return html`<a href=${link} target="_blank" rel="noopener noreferrer">${link}</a>`;
  return mark ? html`<span class="mark" title=${title}>${mark}</span>` : text;
}
