// The filters of the activity: search, state, agent, engine. Stored in the URL, so that a reload keeps them.

import { html, useEffect, useRef, useState, Icon } from "./ui.js";
import { get } from "./api.js";
import { useReconnected } from "./connection.js";
import { STATES } from "./format.js";
import { query, setQuery } from "./route.js";

const NAMES = ["q", "state", "agent", "engine", "live"];
const CHOICES = { "": "State", live: "Live", ...STATES };
const SEARCH_DELAY = 200; // milliseconds without typing before the search starts

export function useFilters() {
  const [filters, set] = useState(() => parseFilters(query()));
  useEffect(() => {
    const update = () => set((now) => (isEqual(now, parseFilters(query())) ? now : parseFilters(query())));
    window.addEventListener("hashchange", update);
    return () => window.removeEventListener("hashchange", update);
  }, []);
  return [
    filters,
    (next) => {
      setQuery(next);
      set(next);
    },
  ];
}

export function Filters({ filters, onChange }) {
  const [choices, choose] = useState({ agents: [], engines: [] });
  const [words, write] = useState(filters.q ?? "");
  const load = () =>
    Promise.all([get("/agents"), get("/engines")])
      .then(([{ agents }, { engines }]) => choose({ agents: names(agents), engines: names(engines) }))
      .catch(() => {}); // the list below shows the error
  useEffect(() => void load(), []);
  useReconnected(load);
  const asked = useRef(filters.q ?? ""); // keeps typed text, but shows changes from elsewhere
  useEffect(() => {
    if ((filters.q ?? "") !== asked.current) write((asked.current = filters.q ?? ""));
  }, [filters.q]);
  const change = (part) => {
    asked.current = words;
    onChange(dropEmpty({ ...filters, q: words, ...part }));
  };
  useEffect(() => {
    if (words === asked.current) return undefined;
    const timer = setTimeout(change, SEARCH_DELAY, {});
    return () => clearTimeout(timer);
  }, [words, filters]);
  const pick = (name) => (event) => change({ [name]: event.target.value });
  const state = (event) => {
    const { value } = event.target;
    change({ state: value === "live" ? "" : value, live: value === "live" ? "1" : "" });
  };
  return html`
    <form class="filters" role="search" aria-label="Runs" onSubmit=${(event) => event.preventDefault()}>
      <label class="search">
        <${Icon} name="search" />
        <span class="unseen">Search runs</span>
        <input
          id="search"
          type="search"
          placeholder="Search tasks, answers, agents"
          value=${words}
          onInput=${(event) => write(event.target.value)}
        />
        <kbd aria-hidden="true">/</kbd>
      </label>
      <div class="choices">
        <${Choice}
          label="State"
          value=${filters.live ? "live" : filters.state}
          options=${Object.entries(CHOICES)}
          onChange=${state}
        />
        <${Choice}
          label="Agent"
          value=${filters.agent}
          options=${withSelected("Agent", choices.agents, filters.agent)}
          onChange=${pick("agent")}
        />
        <${Choice}
          label="Engine"
          value=${filters.engine}
          options=${withSelected("Engine", choices.engines, filters.engine)}
          onChange=${pick("engine")}
        />
      </div>
    </form>
  `;
}

function Choice({ label, value = "", options, onChange }) {
  return html`
    <label>
      <span class="unseen">${label}</span>
      <select value=${value} class=${value ? "chosen" : ""} onChange=${onChange}>
        ${options.map(
          ([key, word]) => html`<option key=${key} value=${key} selected=${key === value}>${word}</option>`,
        )}
      </select>
    </label>
  `;
}

function withSelected(all, choices, chosen) {
  const every = chosen && !choices.includes(chosen) ? [chosen, ...choices] : choices;
  return [["", all], ...every.map((name) => [name, name])];
}

function names(list) {
  return list.map((one) => one.name);
}

function parseFilters(query) {
  return dropEmpty(Object.fromEntries(NAMES.map((name) => [name, query[name]])));
}

function dropEmpty(filters) {
  return Object.fromEntries(Object.entries(filters).filter(([, value]) => value));
}

function isEqual(one, other) {
  return NAMES.every((name) => one[name] === other[name]);
}
