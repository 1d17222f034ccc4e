// Keyboard shortcuts: single keys, inactive while typing, and off if the user disables them.

import { html, useEffect, useState, Dialog } from "./ui.js";
import { commandFor, commands } from "./commands.js";
import { useSignal } from "./signal.js";

const HELP = [
  ["Ctrl+K", "commands, agents and runs"],
  ["j k ↓ ↑", "next, previous"],
  ["Enter", "open"],
  ["→ ←", "expand, collapse a conversation"],
  ["Esc", "close, or back"],
];

// `actions` are the callbacks of the page: {palette, back}; other keys are those of the current commands.
export function useKeys(actions) {
  useEffect(() => {
    const pressed = (event) => {
      if (event.defaultPrevented) return;
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault(); // also in a field: the browser would focus its address bar
        actions.palette();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector("dialog[open]")) return; // the browser closes the dialog on Escape
      if (event.target.closest("input, textarea, select")) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      const isAlwaysOn = event.key === "Escape" || event.key.startsWith("Arrow");
      if (!isAlwaysOn && !areEnabled()) return;
      const act = SHORTCUTS[event.key] ?? commandFor(event.key)?.run;
      if (act && act(actions) !== false) event.preventDefault();
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
  const keys = useSignal(commands).filter((one) => one.key);
  const shown = [...HELP.map(([key, word]) => [key.split(" "), word]), ...keys.map((one) => [[one.key], one.label])];
  return html`
    <${Dialog} title="Keyboard" onClose=${onClose}>
      <dl class="pairs keys">
        ${shown.map(
          ([key, word]) => html`
            <div key=${word}>
              <dt>${key.map((one) => html`<kbd>${one}</kbd>${" "}`)}</dt>
              <dd>${word}</dd>
            </div>
          `,
        )}
      </dl>
      <label class="check">
        <input type="checkbox" checked=${on} onChange=${toggle} />
        Enable single-key shortcuts
      </label>
    <//>
  `;
}

function areEnabled() {
  return localStorage.getItem("keys") !== "off";
}
