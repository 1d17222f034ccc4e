// Keyboard shortcuts: single keys, inactive while typing, and off if the user disables them.

import { html, useEffect, useState, Dialog } from "./ui.js";

const HELP = [
  ["j k ↓ ↑", "next, previous"],
  ["Enter", "open"],
  ["/", "search"],
  ["n", "new run"],
  ["g", "to the activity"],
  ["Esc", "close, or back"],
  ["?", "this help"],
];

// `actions` are the callbacks of the page: {new, help, back, search, home}.
export function useKeys(actions) {
  useEffect(() => {
    const pressed = (event) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector("dialog[open]")) return; // the browser closes the dialog on Escape
      if (event.target.closest("input, textarea, select")) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      const isAlwaysOn = event.key === "Escape" || event.key.startsWith("Arrow");
      const act = isAlwaysOn || areEnabled() ? SHORTCUTS[event.key] : undefined;
      if (act && act(actions, event) !== false) event.preventDefault();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, [actions]);
}

const SHORTCUTS = {
  j: () => moveFocus(1),
  k: () => moveFocus(-1),
  ArrowDown: () => moveFocus(1),
  ArrowUp: () => moveFocus(-1),
  "/": (actions) => actions.search(),
  n: (actions) => actions.new(),
  g: (actions) => actions.home(),
  "?": (actions) => actions.help(),
  Escape: (actions) => actions.back(),
};

// Moves the focus among the items of a list; returns false if there are none, so that keys scroll.
function moveFocus(by) {
  const places = [...document.querySelectorAll("[data-nav], .transcript summary")].filter((one) =>
    one.checkVisibility(),
  );
  if (places.length === 0) return false;
  const at = places.indexOf(document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : places.length - 1) : at + by;
  if (!places[next]) return false;
  places[next].focus();
  places[next].scrollIntoView({ block: "nearest" });
  return true;
}

export function Help({ onClose }) {
  const [on, set] = useState(areEnabled());
  const toggle = (event) => {
    set(event.target.checked);
    localStorage.setItem("keys", event.target.checked ? "on" : "off");
  };
  return html`
    <${Dialog} title="Keyboard" onClose=${onClose}>
      <dl class="pairs keys">
        ${HELP.map(
          ([key, word]) => html`
            <div key=${key}>
              <dt>${key.split(" ").map((one) => html`<kbd>${one}</kbd>${" "}`)}</dt>
              <dd>${word}</dd>
            </div>
          `,
        )}
      </dl>
      <label class="check">
        <input type="checkbox" checked=${on} onChange=${toggle} />
        Keys of one letter do something
      </label>
    <//>
  `;
}

function areEnabled() {
  return localStorage.getItem("keys") !== "off";
}
