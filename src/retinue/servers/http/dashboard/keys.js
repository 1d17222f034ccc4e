// The keyboard: one key each, never while something is typed, and none at all if one does not want them.

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

// `acts` are what keys without a place of their own do: {new, help, back, search}.
export function useKeys(acts) {
  useEffect(() => {
    const pressed = (event) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      if (document.querySelector("dialog[open]")) return; // the browser closes it on Escape
      if (event.target.closest("input, textarea, select")) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      const act = areOn() || event.key === "Escape" || event.key.startsWith("Arrow") ? MEANT[event.key] : undefined;
      if (act && act(acts, event) !== false) event.preventDefault();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, [acts]);
}

const MEANT = {
  j: () => step(1),
  k: () => step(-1),
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  "/": (acts) => acts.search(),
  n: (acts) => acts.new(),
  g: (acts) => acts.home(),
  "?": (acts) => acts.help(),
  Escape: (acts) => acts.back(),
};

// Moves the focus among what can be opened; without any of it, keys scroll as ever.
function step(by) {
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
  const [on, set] = useState(areOn());
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

function areOn() {
  return localStorage.getItem("keys") !== "off";
}
