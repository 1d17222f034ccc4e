// The command palette: pages, actions, agents and runs, found by a few letters.

import { html, useEffect, useState, Dialog, State } from "./ui.js";
import { get } from "./api.js";
import { commands } from "./commands.js";
import { NO_TEXT_INDEX } from "./filters-model.js";
import { useSignal } from "./signal.js";
import { timeAgo } from "./format.js";
import { go } from "./route.js";
import { Line } from "./untrusted-text.js";

const RUNS = 8; // of a search
const SEARCH_DELAY = 150; // milliseconds without typing before the search starts

export function Palette({ onClose, onStart }) {
  const [words, write] = useState("");
  const [at, move] = useState(0);
  const agents = useAgents();
  const { runs, scansRecords } = useRuns(words);
  const choices = [
    ...useSignal(commands),
    ...agents.map((name) => ({ label: `New run with ${name}`, run: () => onStart(name) })),
    ...agents.map((name) => ({ label: `Agent ${name}`, run: () => go(`/agents/${encodeURIComponent(name)}`) })),
  ].filter((one) => matches(one.label, words));
  choices.sort((one, other) => startsWord(other.label, words) - startsWord(one.label, words));
  const found = [...choices.slice(0, words ? 20 : 14), ...runs];
  const chosen = Math.min(at, found.length - 1);
  const start = (choice) => {
    onClose();
    requestAnimationFrame(() => choice.run()); // once the dialog is closed and the focus is back
  };
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) move((chosen + step + found.length) % found.length);
    else if (event.key === "Enter" && found[chosen]) start(found[chosen]);
    else return;
    event.preventDefault();
  };
  useEffect(() => document.getElementById(`choice-${chosen}`)?.scrollIntoView({ block: "nearest" }), [chosen]);
  return html`
    <${Dialog} title="Commands" onClose=${onClose} wide>
      <input
        autofocus
        type="text"
        class="palette-field"
        role="combobox"
        aria-label="Command, agent or run"
        aria-expanded="true"
        aria-controls="choices"
        aria-activedescendant=${found.length ? `choice-${chosen}` : undefined}
        autocomplete="off"
        spellcheck=${false}
        placeholder="Type a command, an agent or words of a task"
        value=${words}
        onInput=${(event) => (write(event.target.value), move(0))}
        onKeyDown=${keys}
      />
      <ul id="choices" class="palette" role="listbox" aria-label="Choices">
        ${found.map(
          (choice, index) => html`
            <li
              key=${choice.id ?? choice.label}
              id=${`choice-${index}`}
              role="option"
              aria-selected=${index === chosen}
              onClick=${() => start(choice)}
            >
              ${choice.row ? html`<${RunChoice} row=${choice.row} />` : html`<${Line} text=${choice.label} />`}
              ${choice.key && html`<kbd>${choice.key}</kbd>`}
            </li>
          `,
        )}
      </ul>
      ${words && scansRecords && html`<p class="muted" role="status">${NO_TEXT_INDEX}</p>`}
      ${found.length === 0 && html`<p class="muted" role="status">Nothing matches.</p>`}
    <//>
  `;
}

function RunChoice({ row }) {
  return html`
    <span class="run-choice">
      <${State} row=${row} iconOnly />
      <b><${Line} text=${row.name} /></b>
      <${Line} text=${row.task} />
    </span>
    <span class="muted when">${timeAgo(row.ended ?? row.created, Date.now() / 1000)}</span>
  `;
}

function useAgents() {
  const [names, set] = useState([]);
  useEffect(() => {
    get("/agents").then(
      ({ agents }) => set(agents.filter((one) => one.runnable).map((one) => one.name)),
      () => {}, // the other choices remain
    );
  }, []);
  return names;
}

// Returns the runs that match the words, as choices, and whether the server read every record for that.
function useRuns(words) {
  const [{ runs, scansRecords }, set] = useState({ runs: [] });
  useEffect(() => {
    const stopping = new AbortController();
    const ask = () =>
      get("/runs", { q: words.trim(), limit: RUNS }, stopping.signal).then(
        set,
        () => {}, // the other choices remain
      );
    const timer = setTimeout(ask, words ? SEARCH_DELAY : 0);
    return () => {
      clearTimeout(timer);
      stopping.abort();
    };
  }, [words]);
  const choices = runs.slice(0, RUNS).map((row) => ({ id: row.run, row, run: () => go(`/runs/${row.run}`) }));
  return { runs: choices, scansRecords };
}

// Returns whether every word is the beginning of one in the label.
export function startsWord(label, words) {
  const starts = label.toLowerCase().split(/[^\p{L}\p{N}]+/u);
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => starts.some((start) => start.startsWith(word)));
}

// Returns whether every word is in the label.
export function matches(label, words) {
  const text = label.toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
