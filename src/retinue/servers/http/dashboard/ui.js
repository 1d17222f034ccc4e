// Shared components and the template tag.

import { Component, html, useEffect, useRef, useState } from "./vendor/preact.js";
import { useNow } from "./signal.js";
import { UNKNOWN, duration, elapsed, roundDuration, appearance, wholeSeconds, stateLabel } from "./format.js";
import { plainText } from "./text.js";

export { html, render, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "./vendor/preact.js";

// Wraps a view so that it is drawn again only if a property changes. For views with hooks, use `memoWithHooks`.
export function memo(view) {
  return class extends Component {
    shouldComponentUpdate(next) {
      const names = new Set([...Object.keys(next), ...Object.keys(this.props)]);
      return [...names].some((name) => next[name] !== this.props[name]);
    }

    render(properties) {
      return view(properties);
    }
  };
}

export function memoWithHooks(view) {
  return memo((properties) => html`<${view} ...${properties} />`);
}

const PATHS = {
  queued: "M8 4.5V8l2.3 1.4M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  running: "M14 8a6 6 0 1 1-6-6",
  completed: "M3.5 8.5 6.5 11.5 12.5 4.5",
  error: "M4.5 4.5l7 7m0-7-7 7",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  search: "M10.7 10.7 14 14M12 7A5 5 0 1 1 2 7a5 5 0 0 1 10 0Z",
  chevron: "M6 3.5 10.5 8 6 12.5",
  copy: "M5.5 5.5v-3h8v8h-3m-8-5h8v8h-8z",
  download: "M8 2.5v8m-3.5-3L8 11l3.5-3.5M2.5 13.5h11",
  stopped: "M4 4h8v8H4z",
  late: "M8 4.5V8l2.3 1.4M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  theme: "M8 2a6 6 0 1 0 0 12V2Zm0 0a6 6 0 0 1 0 12",
  help: "M6 6.2a2 2 0 1 1 2.8 1.9c-.5.3-.8.6-.8 1.2v.2m0 2.2v.1M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  warning: "M8 6v3.2m0 2.2v.1M8 2 14.5 13.5h-13z",
  down: "M8 3v10m-4-4 4 4 4-4",
  close: "M4 4l8 8m0-8-8 8",
  command: "M2.5 4.5 6 8l-3.5 3.5M8 12h5.5",
};

export function Icon({ name }) {
  return html`<svg class="icon ${name}" viewBox="0 0 16 16" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

// The state as icon and text, never by color alone.
export function State({ row, iconOnly = false }) {
  return html`
    <span class="state ${appearance(row)}">
      <${Icon} name=${appearance(row)} />
      <span class=${iconOnly ? "unseen" : ""}>${stateLabel(row)}</span>
    </span>
  `;
}

// The elapsed time and the timeout, as text and as a bar.
export function Elapsed({ row }) {
  const isRunning = row.state === "running";
  const seconds = elapsed(row, useNow(isRunning));
  if (row.state === "queued") return html`<span class="elapsed muted">${UNKNOWN}</span>`;
  const share = row.timeout ? Math.min(1, (seconds ?? 0) / row.timeout) : 0;
  return html`
    <span class="elapsed">
      <span>${isRunning ? wholeSeconds(seconds) : duration(seconds)}</span>
      ${
        isRunning &&
        row.timeout > 0 &&
        html`
          <span class="muted">${` / ${roundDuration(row.timeout)}`}</span>
          <span class="bar ${share > 0.85 ? "late" : ""}" aria-hidden="true">
            <i style=${{ width: `${share * 100}%` }} />
          </span>
        `
      }
    </span>
  `;
}

export function Button({ icon, children, kind = "", label, ...rest }) {
  return html`
    <button type="button" class="button ${kind}" aria-label=${label} title=${label} ...${rest}>
      ${icon && html`<${Icon} name=${icon} />`} ${children && html`<span>${children}</span>`}
    </button>
  `;
}

// A button that copies the result of `text()` and confirms it.
export function Copy({ text, children = "Copy", kind = "quiet" }) {
  const [said, say] = useState("");
  useEffect(() => {
    const timer = said && setTimeout(() => say(""), 1500);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async () => {
    try {
      const copied = await text();
      if (!copied) return say("Nothing to copy");
      await navigator.clipboard.writeText(copied);
      return say("Copied");
    } catch {
      return say("Not copied");
    }
  };
  return html`
    <${Button} icon="copy" kind=${kind} onClick=${copy}><span aria-live="polite">${said || children}</span><//>
  `;
}

// A modal dialog: the browser keeps the focus inside and restores it; Escape closes the dialog.
export function Dialog({ title, onClose, children, wide = false }) {
  const element = useRef();
  useEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.focus?.();
  }, []);
  const outside = (event) => event.target === element.current && onClose();
  return html`
    <dialog
      ref=${element}
      class=${wide ? "wide" : ""}
      aria-labelledby="dialog-title"
      onClose=${onClose}
      onMouseDown=${outside}
    >
      <div class="dialog">
        <header>
          <h2 id="dialog-title">${title}</h2>
          <${Button} icon="close" kind="quiet" label="Close" onClick=${onClose} />
        </header>
        ${children}
      </div>
    </dialog>
  `;
}

export function Empty({ title, children }) {
  return html`
    <div class="empty">
      <p class="title">${title}</p>
      ${children}
    </div>
  `;
}

// Instead of a view, its title is the heading of the page.
export function Failed({ error, again, children, heading = "h1" }) {
  return html`
    <div class="empty" role="alert">
      <${heading} class="title">${plainText(error.message)}<//>
      ${children} ${again && html`<${Button} onClick=${again}>Try again<//>`}
    </div>
  `;
}

export function Part({ title, children }) {
  return html`
    <section class="part-of">
      <h2>${title}</h2>
      ${children}
    </section>
  `;
}

// A placeholder while a view loads. Not a component: its `main` becomes that of the view and keeps the focus.
export function loading() {
  return html`
    <main id="main" tabindex="-1" aria-busy="true">
      <div class="skeleton" aria-hidden="true"><i /><i /><i /></div>
    </main>
  `;
}
