// One run: who it is and how it goes, what can be done, and its transcript, timeline and details behind tabs.

import { html, useEffect, useMemo, useRef, useState, Failed, loading, State } from "./ui.js";
import { Asked, Facts, Trail } from "./run-details.js";
import { Acts } from "./run-actions.js";
import { Composer } from "./composer.js";
import { Details } from "./details.js";
import { useCell } from "./signal.js";
import { query, setQuery } from "./route.js";
import { runModel } from "./run-model.js";
import { Line } from "./untrusted-text.js";
import { Timeline } from "./timeline.js";
import { TranscriptView } from "./transcript.js";
import { plain } from "./text.js";

const TABS = { transcript: "Transcript", timeline: "Timeline", details: "Details" };

export function Run({ id }) {
  const model = useMemo(() => runModel(id), [id]);
  useEffect(() => model.open(), [model]);
  const picture = useCell(model.picture);
  const { detail, error } = picture;
  const [tab, setTab] = useTab();
  useEffect(() => {
    if (detail) document.title = `${plain(detail.name)} · Retinue`;
  }, [detail?.name]);
  useEffect(() => {
    if (detail && tab === "details") model.lookAgain();
  }, [tab]);
  if (error && !detail)
    return html`
      <main id="main" tabindex="-1">
        ${error.status === 404 ? html`<${NotThere} />` : html`<${Failed} error=${error} again=${model.open} />`}
      </main>
    `;
  if (!detail) return loading();
  return html`
    <main id="main" tabindex="-1" class="run">
      <${Trail} detail=${detail} />
      <header class="about">
        <div class="titles">
          <h1><${Line} text=${detail.name} /></h1>
          <${State} row=${detail} />
        </div>
        <${Acts} row=${detail} />
      </header>
      <div class="first"><${Asked} detail=${detail} /></div>
      <${Facts} detail=${detail} tree=${picture.tree} />
      <${Tabs} tab=${tab} onChange=${setTab} tree=${picture.tree} />
      <div class="views">
        <div role="tabpanel" id="panel" aria-labelledby=${`tab-${tab}`} tabindex="-1">
          ${tab === "transcript" && html`<${TranscriptView} ...${picture} />`}
          ${tab === "timeline" && html`<${Timeline} rows=${picture.tree} current=${detail.run} />`}
          ${tab === "details" && html`<${Details} detail=${detail} isInTool=${picture.transcript.isInTool} />`}
        </div>
        <div hidden=${tab !== "transcript"} class="composing"><${Composer} row=${detail} /></div>
      </div>
    </main>
  `;
}

function NotThere() {
  return html`
    <${Failed} error=${{ message: "There is no such run." }}>
      <p>Its session may have been deleted, or the address is not whole.</p>
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
