// The worktree of a run: where it works, what it changed, and how to take that over.

import { html, Part } from "./ui.js";
import { changesText, shortId } from "./format.js";
import { Pairs } from "./untrusted-text.js";

export function hasWorktree({ declared, actual }) {
  return Boolean(actual?.worktree || declared?.repository);
}

// Returns what a run changed in its worktree, as far as that is known.
export function describeChanges({ actual }) {
  if (!actual) return "yes";
  return actual.worktree ? changesText(actual.worktree) : "no changes";
}

export function Worktree({ detail }) {
  if (!hasWorktree(detail)) return null;
  const { declared, actual, cwd } = detail;
  const changes = actual?.worktree;
  const rows = [
    declared?.repository && ["Repository", declared.repository],
    changes && ["Changes", changesText(changes)],
    changes && ["Branch", changes.branch],
    (changes || !actual) && ["Folder", changes?.path ?? cwd],
    changes && ["Patch", changes.patchFile],
  ];
  return html`
    <${Part} title="Worktree">
      <${Pairs} rows=${rows} kind="mono" />
      ${!actual && html`<p class="muted">When the run ends, its changes are committed on a branch of their own.</p>`}
      ${actual && !changes && html`<p class="muted">The run changed nothing; its worktree was removed.</p>`}
      ${
        changes &&
        html`
          <p class="muted">
            To apply the changes to your files, in a terminal:${" "}
            <code>${`retinue worktrees merge ${shortId(detail.session)}`}</code>
          </p>
        `
      }
    <//>
  `;
}
