// The filters of the activity, each choice with the number of sessions it would leave. Stored in the URL.

import { html, useEffect, useRef, useState, Button, Icon } from "./ui.js";
import { get } from "./api.js";
import { useReconnected } from "./connection.js";
import { NAMES, dropEmpty, isEqual, parseFilters, toQuery } from "./filters-model.js";
import { dayLabel, lastFolders, OUTCOMES, plural, roundDuration } from "./format.js";
import { query, setQuery } from "./route.js";

const SEARCH_DELAY = 200; // milliseconds without typing before the search starts
const AGES = { 1: "Last 24 hours", 7: "Last 7 days", 30: "Last 30 days" };
const MAIN = [
  ["outcomes", "outcome", "State", (value) => OUTCOMES[value] ?? value],
  ["agents", "agent", "Agent", String],
  ["ages", "age", "Date", (value) => AGES[value] ?? value],
];
const MORE = [
  ["models", "model", "Model", String],
  ["engines", "engine", "Engine", String],
  ["folders", "cwd", "Folder", lastFolders],
  ["costs", "minCost", "Cost", (value) => `$${value < 1 ? Number(value).toFixed(2) : Number(value)} or more`],
  ["durations", "minElapsed", "Duration", (value) => `${roundDuration(Number(value))} or longer`],
];
const ASCENDING = new Set(["ages", "costs", "durations"]); // steps; other choices are sorted by their count

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

export function Filters({ filters, onChange, isIndexing, children }) {
  const { facets, counted } = useFacets(filters, isIndexing);
  const [words, write] = useState(filters.q ?? "");
  const chosen = MORE.filter(([, name]) => filters[name]).length;
  const [isOpen, open] = useState(chosen > 0);
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
  const pick = (name) => (event) => {
    const { value } = event.target;
    if (name === "outcome") change({ outcome: value === "live" ? "" : value, live: value === "live" ? "1" : "" });
    else change({ [name]: value, ...(name === "age" && { day: "" }) });
  };
  const choice = ([facet, name, label, format]) => html`
    <${Choice}
      key=${name}
      label=${label}
      value=${name === "outcome" && filters.live ? "live" : filters[name]}
      options=${options(facets, facet, filters[name], format)}
      onChange=${pick(name)}
    />
  `;
  return html`
    <form class="filters" role="search" aria-label="Runs" onSubmit=${(event) => event.preventDefault()}>
      <label class="search">
        <${Icon} name="search" />
        <span class="unseen">Search runs</span>
        <input
          id="search"
          type="search"
          placeholder="Search tasks, answers, tool calls"
          value=${words}
          onInput=${(event) => write(event.target.value)}
        />
        <kbd aria-hidden="true">/</kbd>
      </label>
      <div class="choices">
        ${MAIN.map(choice)}
        <${Button} kind="more" aria-expanded=${isOpen} onClick=${() => open(!isOpen)}>
          ${chosen ? `More (${chosen})` : "More"}
        <//>
        ${children}
      </div>
      ${isOpen && html`<div class="choices all">${MORE.map(choice)}</div>`}
      <${Matches} facets=${counted === filters && !isIndexing ? facets : null} filters=${filters} onChange=${onChange} />
    </form>
  `;
}

// `facets` are null until those of the filters are known.
function Matches({ facets, filters, onChange }) {
  if (!NAMES.some((name) => filters[name])) return null;
  return html`
    <p class="matches muted">
      <span role="status">${facets ? describeMatches(facets, filters) : "Searching…"}</span>
      <button type="button" class="link" onClick=${() => onChange({})}>Clear</button>
    </p>
  `;
}

function describeMatches({ matching, total }, { q, day }) {
  const part = matching === total && q ? "" : `${matching.toLocaleString("en")} of `;
  return `${part}${plural(total, "session")}${q ? " found" : ""}${day ? `, on ${dayLabel(day)}` : ""}`;
}

// Returns the counts of the choices and the filters they are of, loaded again with each change of the filters, once all sessions are indexed.
function useFacets(filters, isIndexing) {
  const [found, set] = useState({ facets: null, counted: null });
  const show = (facets) => set({ facets, counted: filters });
  const load = (signal) => get("/facets", toQuery(filters), signal).then(show, () => {}); // the list shows the error
  useEffect(() => {
    if (isIndexing) return undefined;
    const stopping = new AbortController();
    load(stopping.signal);
    return () => stopping.abort();
  }, [filters, isIndexing]);
  useReconnected(() => load());
  return found;
}

function Choice({ label, value = "", options: choices, onChange }) {
  return html`
    <label>
      <span class="unseen">${label}</span>
      <select value=${value} class=${value ? "chosen" : ""} onChange=${onChange}>
        <option value="" selected=${!value}>${label}</option>
        ${choices.map(([key, word]) => html`<option key=${key} value=${key} selected=${key === value}>${word}</option>`)}
      </select>
    </label>
  `;
}

function options(facets, facet, selected, format) {
  const found = (facets?.[facet] ?? []).map(({ value, count }) => [String(Number(value) || value), count]);
  if (ASCENDING.has(facet)) found.sort((one, other) => one[0] - other[0]);
  if (selected && !found.some(([value]) => value === selected)) found.push([selected, 0]);
  const shown = found.map(([value, count]) => [value, `${format(value)} (${count})`]);
  return facet === "outcomes" ? [["live", "Live"], ...shown] : shown;
}
