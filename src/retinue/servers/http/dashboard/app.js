// The page: its header, the view selected by the URL, and the elements shared by all views.

import { html, render, useEffect, useMemo, useRef, useState, Button, Icon } from "./ui.js";
import { Activity } from "./activity.js";
import { Agents } from "./agents.js";
import { LiveRegion } from "./live-region.js";
import { useSignal } from "./signal.js";
import { connection } from "./connection.js";
import { Compare } from "./compare.js";
import { useCommands } from "./commands.js";
import { clock } from "./format.js";
import { NewRun, useEditRequests } from "./forms.js";
import { Help, useKeys } from "./keys.js";
import { back, go, useRoute } from "./route.js";
import { Palette } from "./palette.js";
import { Run } from "./run.js";
import { pollHealth, reconnect } from "./stream.js";
import { System } from "./system.js";
import { Usage } from "./usage.js";

const VIEWS = { "": "Activity", usage: "Usage", agents: "Agents", system: "System" };
const VIEW_KEYS = { "": "g", usage: "o", agents: "a", system: "s" };
const WIDE = "(min-width: 1800px)"; // where a run and the list fit beside each other
const BANNER_DELAY = 700; // milliseconds without a connection before the banner appears

let openings = 0;

function App() {
  const parts = useRoute();
  const [open, setOpen] = useState(null);
  // Each opening has its own key: a late event of a closed dialog must not close the next one.
  const show = (next) => setOpen({ ...next, key: ++openings });
  const draft = useRef(null);
  const close = () => setOpen((now) => (now === open ? null : now));
  const start = (agent = "") => show({ kind: "new", agent });
  const openNew = () => start();
  const openHelp = () => show({ kind: "help" });
  const actions = useMemo(
    () => ({
      palette: () => show({ kind: "palette" }),
      back: () => (parts.length ? back() : document.activeElement.blur()),
    }),
    [parts],
  );
  useKeys(actions);
  useEditRequests((edited) => show({ kind: "new", edited }));
  useCommands(
    [
      { label: "New run", key: "n", run: openNew },
      { label: "Search runs", key: "/", run: () => search(parts) },
      ...Object.entries(VIEWS).map(([name, label]) => ({ label, key: VIEW_KEYS[name], run: () => go(`/${name}`) })),
      { label: "Switch between light and dark", key: "t", run: toggleTheme },
      { label: "Keyboard shortcuts", key: "?", run: openHelp },
    ],
    [parts],
  );
  useFocusOnNavigation(parts);
  // The dialogs come first: a view that is replaced moves its next siblings, and a dialog that moves is modal no more.
  return html`
    <div>
      ${open?.kind === "new" && html`<${NewRun} key=${open.key} agent=${open.agent} edited=${open.edited} draft=${draft} onClose=${close} />`}
      ${open?.kind === "palette" && html`<${Palette} key=${open.key} onClose=${close} onStart=${start} />`}
      ${open?.kind === "help" && html`<${Help} key=${open.key} onClose=${close} />`}
    </div>
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <${Head} view=${["runs", "compare"].includes(parts[0]) ? "" : (parts[0] ?? "")} onNew=${openNew} onHelp=${openHelp} onPalette=${actions.palette} />
    <${Banner} />
    <${View} parts=${parts} onNew=${openNew} onStart=${start} />
    <${LiveRegion} />
  `;
}

function View({ parts: [view, id, other], onNew, onStart }) {
  const isWide = useMatchingMedia(WIDE);
  if (view === "runs" && id && isWide)
    return html`<div class="split"><${Activity} current=${id} /><${Run} key=${id} id=${id} /></div>`;
  if (view === "runs" && id) return html`<${Run} key=${id} id=${id} />`;
  if (view === "compare" && other) return html`<${Compare} key=${`${id} ${other}`} ids=${[id, other]} />`;
  if (view === "agents") return html`<${Agents} name=${id} onStart=${onStart} />`;
  if (view === "usage") return html`<${Usage} />`;
  if (view === "system") return html`<${System} />`;
  return html`<${Activity} onNew=${onNew} />`;
}

function useMatchingMedia(condition) {
  const media = useMemo(() => matchMedia(condition), [condition]);
  const [matches, set] = useState(media.matches);
  useEffect(() => {
    const changed = () => set(media.matches);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, [media]);
  return matches;
}

function Head({ view, onNew, onHelp, onPalette }) {
  return html`
    <header class="head">
      <a class="brand" href="#/" aria-label="Retinue, activity">
        <img src="/favicon.svg" alt="" width="24" height="24" />
        <span>Retinue</span>
      </a>
      <nav aria-label="Main">
        ${Object.entries(VIEWS).map(
          ([name, word]) => html`
            <a key=${name} href=${`#/${name}`} aria-current=${name === view ? "page" : undefined}>${word}</a>
          `,
        )}
      </nav>
      <div class="tools">
        <${Button} kind="primary new" icon="plus" label="New run" onClick=${onNew}>New run<//>
        <${Button} kind="quiet commands" icon="command" label="Commands (Ctrl+K)" onClick=${onPalette} />
        <${Button} kind="quiet" icon="theme" label="Light or dark" onClick=${toggleTheme} />
        <${Button} kind="quiet help" icon="help" label="Keyboard help" onClick=${onHelp} />
      </div>
    </header>
  `;
}

// While disconnected, the last state stays on the screen with its age.
function Banner() {
  const { state, since } = useSignal(connection);
  const [isLate, late] = useState(false);
  useEffect(() => {
    late(false);
    const timer = state === "lost" && setTimeout(() => late(true), BANNER_DELAY);
    return () => clearTimeout(timer);
  }, [state]);
  const isGone = state === "lost" && isLate;
  return html`
    <div class="banner" role="status" hidden=${!isGone && state !== "signedOut"}>
      <${Icon} name="warning" />
      ${isGone && html`<${ConnectionLost} since=${since} />`} ${state === "signedOut" && html`<${SignedOut} />`}
    </div>
  `;
}

function ConnectionLost({ since }) {
  useEffect(pollHealth, []);
  const when = `No connection to Retinue since ${clock(since)}.`;
  return html`
    <span>${when} The page shows the state of that time and reconnects by itself.</span>
    <${Button} onClick=${reconnect}>Try now<//>
  `;
}

function SignedOut() {
  return html`
    <span>You are signed out. Open the link that \`retinue serve\` prints, or use the token.</span>
    <a href="/login">Sign in</a>
  `;
}

// Moves scroll position and focus to the top of a new view, also for screen readers.
function useFocusOnNavigation(parts) {
  const before = useRef(parts);
  useEffect(() => {
    if (before.current === parts) return;
    before.current = parts;
    window.scrollTo(0, 0);
    if (parts[0] !== "runs") document.title = `${VIEWS[parts[0] ?? ""] ?? (parts[0] === "compare" ? "Compare" : "Activity")} · Retinue`;
    if (document.activeElement?.closest("input, textarea")) return; // the user is already typing
    document.getElementById("main")?.focus({ preventScroll: true });
  }, [parts]);
}

function search(parts, frames = 60) {
  if (parts.length) go("/");
  const field = document.getElementById("search");
  if (field) field.focus();
  else if (frames > 0) requestAnimationFrame(() => search([], frames - 1)); // until the activity view is mounted
}

function skip(event) {
  event.preventDefault(); // the fragment selects the view
  document.getElementById("main")?.focus();
}

function toggleTheme() {
  const root = document.documentElement;
  const isDark =
    (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

render(html`<${App} />`, document.getElementById("app"));
