// Where the changes of a run in a worktree of its own are, and how to take them over.

import { html, Part } from "./ui.js";
import { changesText, shortId } from "./format.js";
import { Pairs } from "./untrusted-text.js";

export function Worktree({ detail }) {
  const changes = detail.actual?.worktree;
  if (!changes) return null;
  const rows = [
    ["Changes", changesText(changes)],
    ["Branch", changes.branch],
    ["Folder", changes.path],
    ["Patch", changes.patchFile],
  ];
  return html`
    <${Part} title="Worktree">
      <${Pairs} rows=${rows} kind="mono" />
      <p class="muted">
        To apply the changes to your files, in a terminal:${" "}
        <code>${`retinue worktrees merge ${shortId(detail.session)}`}</code>
      </p>
    <//>
  `;
}
