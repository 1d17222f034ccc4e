// Displays the Markdown of agents as elements made from its tokens: no HTML, no images, links to http(s) and mail only.

import { html, memoWithHooks, useEffect } from "./ui.js";
import { createSignal, useSignal } from "./signal.js";
import { count } from "./format.js";
import { decodeEntities, headingLevel, hostToShow, isMailAddress, parseMarkdown } from "./markdown-model.js";
import { isSafeLink } from "./text.js";
import { Block, renderText, ScrollFrame } from "./untrusted-text.js";

const MAX_CHARS = 300_000; // longer text is shown raw
const MAX_COLUMNS = 40;
const BLOCKS_PER_PART = 40; // drawn together; parts outside of the screen are not laid out
const PLAIN_LANGUAGES = new Set(["", "text", "txt", "plain", "console", "output"]);

const parser = createSignal(null); // the module of the parser, once it is loaded
const isRendered = createSignal(localStorage.getItem("markdown") !== "raw");

// A text of an agent, rendered or as it is written, as the user chose.
export const Markdown = memoWithHooks(({ text, kind = "" }) => {
  const marked = useSignal(parser);
  const isChosen = useSignal(isRendered);
  const isWanted = isChosen && text.length <= MAX_CHARS;
  useEffect(() => void (isWanted && loadParser()), [isWanted]);
  if (isChosen && !isWanted)
    return html`
      <p class="unrendered">${`Shown as raw text: it has ${count(text.length)} characters, and at most ${count(MAX_CHARS)} are rendered.`}</p>
      <${Block} text=${text} language="prose" kind=${kind} />
    `;
  if (!isWanted || !marked) return html`<${Block} text=${text} language="prose" kind=${kind} />`;
  return html`<div class="markdown ${kind}">${renderParts(parseMarkdown(marked, text))}</div>`;
});

export function toggleMarkdown() {
  choose(!isRendered.get());
}

function choose(wanted) {
  isRendered.set(wanted);
  localStorage.setItem("markdown", wanted ? "rendered" : "raw");
}

export function MarkdownSwitch() {
  const rendered = useSignal(isRendered);
  const option = (word, value) => html`
    <label>
      <input type="radio" name="markdown" checked=${rendered === value} onChange=${() => choose(value)} />
      <span>${word}</span>
    </label>
  `;
  return html`
    <fieldset class="modes small">
      <legend class="unseen">Text of agents</legend>
      ${option("Rendered", true)} ${option("Raw", false)}
    </fieldset>
  `;
}

async function loadParser() {
  // Without a connection the text stays as it is written; the next text tries again.
  if (!parser.get()) await import("./vendor/marked.js").then(parser.set, () => {});
}

function renderParts(tokens) {
  const context = { level: 1 }; // of the last heading
  const blocks = tokens.map((token) => renderBlock(token, context));
  if (blocks.length <= 2 * BLOCKS_PER_PART) return blocks;
  const starts = Array.from({ length: Math.ceil(blocks.length / BLOCKS_PER_PART) }, (_, index) => index * BLOCKS_PER_PART);
  return starts.map((from) => html`<div class="part" key=${from}>${blocks.slice(from, from + BLOCKS_PER_PART)}</div>`);
}

function renderBlock(token, context) {
  return (BLOCKS[token.type] ?? BLOCKS.html)(token, context);
}

const BLOCKS = {
  space: () => null,
  hr: () => html`<hr />`,
  heading: ({ depth, tokens }, context) => {
    context.level = headingLevel(depth, context.level);
    return html`<${`h${context.level}`} dir="auto" class="depth-${depth}">${inlines(tokens)}<//>`;
  },
  paragraph: ({ tokens }) => html`<p dir="auto">${inlines(tokens)}</p>`,
  text: (token) => inline(token),
  code: ({ text, lang = "" }) => html`<${Block} text=${text} language=${codeLanguage(lang)} kind="output" />`,
  blockquote: ({ tokens }, context) =>
    html`<blockquote>${tokens.map((token) => renderBlock(token, context))}</blockquote>`,
  list: ({ ordered, start, items }, context) => {
    const shown = items.map((item) => html`<li dir="auto">${item.tokens.map((token) => renderBlock(token, context))}</li>`);
    return ordered ? html`<ol start=${start || 1}>${shown}</ol>` : html`<ul>${shown}</ul>`;
  },
  checkbox: (token) => inline(token),
  table: (token) => (token.header.length > MAX_COLUMNS ? BLOCKS.html(token) : renderTable(token)),
  html: ({ raw }) => html`<${Block} text=${raw.replace(/\n+$/, "")} />`,
};

function renderTable({ header, align, rows }) {
  const cell = (name) => (one, index) => html`
    <${name} scope=${name === "th" ? "col" : undefined} dir="auto" class=${align[index] ?? ""}>${inlines(one.tokens)}<//>
  `;
  return html`
    <${ScrollFrame} label="Table">
      <table>
        <thead>
          <tr>${header.map(cell("th"))}</tr>
        </thead>
        <tbody>
          ${rows.map((row) => html`<tr>${row.map(cell("td"))}</tr>`)}
        </tbody>
      </table>
    <//>
  `;
}

function inlines(tokens, links = true) {
  return (tokens ?? []).map((token) => inline(token, links));
}

function inline(token, links = true) {
  return (INLINES[token.type] ?? INLINES.html)(token, links);
}

const INLINES = {
  text: ({ text, tokens }, links) => (tokens ? inlines(tokens, links) : renderText(decodeEntities(text), { links })),
  escape: ({ text }) => renderText(text),
  strong: ({ tokens }, links) => html`<strong>${inlines(tokens, links)}</strong>`,
  em: ({ tokens }, links) => html`<em>${inlines(tokens, links)}</em>`,
  del: ({ tokens }, links) => html`<del>${inlines(tokens, links)}</del>`,
  codespan: ({ text }) => html`<code>${renderText(text)}</code>`,
  br: () => html`<br />`,
  checkbox: ({ checked }) => html`<span class="checkbox" role="img" aria-label=${checked ? "done" : "open"}>${checked ? "☑ " : "☐ "}</span>`,
  link: ({ href, tokens, text, raw }, links) => renderLink(href, text, raw, links && (() => inlines(tokens, false))),
  image: ({ href, text, raw }, links) => renderLink(href, text, raw, links && (() => renderText(`image: ${text || href}`))),
  html: ({ raw }) => renderText(raw),
};

// A link to anywhere else stays as it is written.
function renderLink(href, text, raw, content) {
  if (!content || !(isSafeLink(href) || isMailAddress(href))) return renderText(raw);
  const host = isMailAddress(href) ? "" : hostToShow(text, href);
  return html`
    <a href=${href} title=${href} target="_blank" rel="noopener noreferrer nofollow">${content()}</a>
    ${host && html`<span class="muted">${` (${host})`}</span>`}
  `;
}

function codeLanguage(written) {
  const [name] = written.toLowerCase().split(/\s/, 1);
  if (name === "json" || name === "diff") return name;
  return PLAIN_LANGUAGES.has(name) ? "" : "code";
}
