// The live region: announces changes to screen readers politely, a sentence at a time.

import { html } from "./ui.js";
import { createSignal, useSignal } from "./signal.js";
import { plainText } from "./text.js";

const MAX_SENTENCES = 3; // per announcement; more are counted: fifty runs may end together

const announcement = createSignal("");

export function announce(sentences) {
  if (sentences.length === 0) return;
  const rest = sentences.length - MAX_SENTENCES;
  const text = [...sentences.slice(0, MAX_SENTENCES), ...(rest > 0 ? [`and ${rest} more`] : [])].join(". ");
  announcement.set(plainText(text));
}

export function LiveRegion() {
  return html`<div class="unseen" role="status" aria-live="polite">${useSignal(announcement)}</div>`;
}
