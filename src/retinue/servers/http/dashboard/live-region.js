// What changed, said politely to those who do not see it: one region, a sentence at a time.

import { html } from "./ui.js";
import { cell, useCell } from "./signal.js";
import { plain } from "./text.js";

const MOST = 3; // at once: fifty runs that end together are a number, not fifty names

const said = cell("");

export function announce(sentences) {
  if (sentences.length === 0) return;
  const rest = sentences.length - MOST;
  const text = [...sentences.slice(0, MOST), ...(rest > 0 ? [`and ${rest} more`] : [])].join(". ");
  said.set(plain(text));
}

export function Announcer() {
  return html`<div class="unseen" role="status" aria-live="polite">${useCell(said)}</div>`;
}
