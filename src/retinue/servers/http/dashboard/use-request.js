// What is asked of the server and may be refused: under way, done, or the reason why not.

import { html, useState } from "./ui.js";
import { Line } from "./untrusted-text.js";

// Returns how to do it, why it was refused, and whether it is under way.
export function useSending(act) {
  const [failure, fail] = useState(null);
  const [isSending, sending] = useState(false);
  const send = async () => {
    sending(true);
    fail(null);
    try {
      await act();
    } catch (error) {
      fail(error);
    }
    sending(false);
  };
  return [send, failure, isSending];
}

export function Refusal({ failure }) {
  return html`<p class="refusal" role="alert">${failure && html`<${Line} text=${failure.message} />`}</p>`;
}
