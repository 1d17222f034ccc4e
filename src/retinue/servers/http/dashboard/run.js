// The page of one run: header, actions, and tabs with transcript, timeline and details.

import { html, useEffect, useMemo, useRef, useState, Failed, loading, State } from "./ui.js";
import { TaskAndFailure, Facts, Breadcrumbs } from "./run-details.js";
import { RunActions } from "./run-actions.js";
import { useCommands } from "./commands.js";
import { Composer, suggestPrompt } from "./composer.js";
import { toggleMarkdown } from "./markdown.js";
import { Details } from "./details.js";
import { useSignal } from "./signal.js";
import { go, query, setQuery } from "./route.js";
import { createRunModel } from "./run-model.js";
import { Line } from "./untrusted-text.js";
import { Timeline } from "./timeline.js";
import { TranscriptView } from "./transcript.js";
import { plainText } from "./text.js";

const TABS = { transcript: "Transcript", timeline: "Timeline", details: "Details" };

export function Run({ id }) {
  const model = useMemo(() => createRunModel(id), [id]);
  useEffect(() => model.open(), [model]);
  const snapshot = useSignal(model.snapshot);
  const { detail, error } = snapshot;
  const [tab, setTab] = useTab();
  useEffect(() => {
    if (detail) document.title = `${plainText(detail.name)} · Retinue`;
  }, [detail?.name]);
  useEffect(() => {
    if (detail && tab === "details") model.refreshDetail();
  }, [tab]);
  useRunCommands(detail, snapshot.tree, setTab);
  if (error && !detail)
    return html`
      <main id="main" tabindex="-1">
        ${error.status === 404 ? html`<${RunNotFound} />` : html`<${Failed} error=${error} again=${model.open} />`}
      </main>
    `;
  if (!detail) return loading();
  return html`
    <main id="main" tabindex="-1" class="run">
      <${Breadcrumbs} detail=${detail} />
      <header class="about">
        <div class="titles">
          <h1><${Line} text=${detail.name} /></h1>
          <${State} row=${detail} />
        </div>
        <${RunActions} row=${detail} />
      </header>
      <div class="first"><${TaskAndFailure} detail=${detail} onResume=${() => setTab("transcript")} /></div>
      <${Facts} detail=${detail} tree=${snapshot.tree} />
      <${Tabs} tab=${tab} onChange=${setTab} tree=${snapshot.tree} />
      <div class="views">
        <div role="tabpanel" id="panel" aria-labelledby=${`tab-${tab}`} tabindex="-1">
          ${tab === "transcript" && html`<${TranscriptView} ...${snapshot} />`}
          ${tab === "timeline" && html`<${Timeline} rows=${snapshot.tree} current=${detail.run} />`}
          ${tab === "details" && html`<${Details} detail=${detail} isInTool=${snapshot.transcript.isInTool} />`}
        </div>
        <div hidden=${tab !== "transcript"} class="composing"><${Composer} row=${detail} /></div>
      </div>
    </main>
  `;
}

// Offers what can be done on the page of a run.
function useRunCommands(detail, tree, setTab) {
  const at = tree.findIndex((row) => row.run === detail?.run);
  const open = (row) => row && go(`/runs/${row.run}`);
  const list = detail
    ? [
        ...Object.entries(TABS).map(([name, label], index) => ({ label, key: String(index + 1), run: () => setTab(name) })),
        { label: "Write to this run", key: "r", run: () => (setTab("transcript"), suggestPrompt("")) },
        tree.length > 1 && { label: "Previous run of the conversation", key: "[", run: () => open(tree[at - 1]) },
        tree.length > 1 && { label: "Next run of the conversation", key: "]", run: () => open(tree[at + 1]) },
        detail.parentRun && { label: "Parent run", key: "u", run: () => go(`/runs/${detail.parentRun}`) },
        { label: "Rendered or raw text", key: "m", run: toggleMarkdown },
      ].filter(Boolean)
    : [];
  useCommands(list, [detail?.run, at, tree.length]);
}

function RunNotFound() {
  return html`
    <${Failed} error=${{ message: "There is no such run." }}>
      <p>Its session may have been deleted, or the address is incomplete.</p>
      <a class="button" href="#/">To the activity</a>
    <//>
  `;
}

function Tabs({ tab, onChange, tree }) {
  const list = useRef();
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.stopPropagation();
    const names = Object.keys(TABS);
    const next = names[(names.indexOf(tab) + step + names.length) % names.length];
    onChange(next);
    list.current.querySelector(`#tab-${next}`).focus();
  };
  return html`
    <div class="tabs" role="tablist" aria-label="Views of this run" ref=${list} onKeyDown=${move}>
      ${Object.entries(TABS).map(
        ([name, word]) => html`
          <button
            type="button"
            role="tab"
            id=${`tab-${name}`}
            key=${name}
            aria-selected=${name === tab}
            aria-controls="panel"
            tabindex=${name === tab ? 0 : -1}
            onClick=${() => onChange(name)}
          >
            ${word}${
              name === "timeline" &&
              tree.length > 1 &&
              html`
                ${" "}
                <small>${tree.length}</small>
              `
            }
          </button>
        `,
      )}
    </div>
  `;
}

function useTab() {
  const [tab, set] = useState(() => (query().tab in TABS ? query().tab : "transcript"));
  return [
    tab,
    (next) => {
      setQuery(next === "transcript" ? {} : { tab: next });
      set(next);
    },
  ];
}
