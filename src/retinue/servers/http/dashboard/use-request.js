// A request that the server may refuse: its state and its error.

import { html, useState } from "./ui.js";
import { Line } from "./untrusted-text.js";

// Returns the function that sends the request, its failure, and whether it is pending.
export function useRequest(act) {
  const [failure, fail] = useState(null);
  const [isPending, sending] = useState(false);
  const send = async (...values) => {
    sending(true);
    fail(null);
    try {
      await act(...values);
    } catch (error) {
      fail(error);
    }
    sending(false);
  };
  return [send, failure, isPending];
}

export function Refusal({ failure }) {
  return html`<p class="refusal" role="alert">${failure && html`<${Line} text=${failure.message} />`}</p>`;
}
