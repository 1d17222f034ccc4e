// Unit tests of the dashboard's pure modules, run by node's test runner; `test_files.py` calls it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { timesUntilNow } from "../../../src/retinue/servers/http/dashboard/details.js";
import { foldEqualCalls, Transcript } from "../../../src/retinue/servers/http/dashboard/transcript-model.js";
import * as format from "../../../src/retinue/servers/http/dashboard/format.js";
import { asDiff, highlight, detectLanguage, formatJson } from "../../../src/retinue/servers/http/dashboard/highlight.js";
import { announcements, treeAround, sortAsTree, appendOlder, mergeRows, visibleRows } from "../../../src/retinue/servers/http/dashboard/store.js";
import { headAndTail, splitIntoParts, pieces, plainText } from "../../../src/retinue/servers/http/dashboard/text.js";
import { filterPredicate, parseFilters, toQuery } from "../../../src/retinue/servers/http/dashboard/filters-model.js";
import { decodeEntities, headingLevel, hostToShow, isMailAddress, parseMarkdown, splitBlocks } from "../../../src/retinue/servers/http/dashboard/markdown-model.js";
import * as marked from "../../../src/retinue/servers/http/dashboard/vendor/marked.js";
import { longestSpans, pan, place, select, spanAt, spanPaths, sumByKind, ticks, tickLabel, zoom } from "../../../src/retinue/servers/http/dashboard/timeline-model.js";
import { mainArgument } from "../../../src/retinue/servers/http/dashboard/tool.js";

const HOSTILE = [
  "<script>alert(1)</script>",
  '<img src=x onerror="alert(1)">',
  "\u001b[31mred\u001b]0;title\u0007",
  "invoice\u202egnp.exe",
  "a\u200bb\u2066c\u2069",
  "\u{e0041}hidden",
  "👩‍💻 and نامه‌ای",
  "javascript:alert(1) data:text/html,x http://ok.example/a",
  "\r\nnew\rline\u2028\u0000",
];

const textOf = (found) => found.map((piece) => piece.text ?? piece.mark ?? piece.link).join("");

test("plain text is one piece", () => {
  assert.deepEqual(pieces("plain ünïcode 日本語\n\ttabs"), [{ text: "plain ünïcode 日本語\n\ttabs" }]);
});

test("invisible characters become visible marks", () => {
  for (const text of HOSTILE) {
    const shown = textOf(pieces(text)).replace(/[\u200c\u200d]/g, "");
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(shown, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]|[\u{e0000}-\u{e007f}]/u);
  }
});

test("direction overrides are shown by name", () => {
  assert.deepEqual(pieces("a\u202eb"), [{ text: "a" }, { mark: "⟨RLO⟩", title: "U+202E" }, { text: "b" }]);
  assert.deepEqual(pieces("\u001b[1m"), [{ mark: "⟨ESC⟩", title: "U+001B" }, { text: "[1m" }]);
});

test("joiners are kept where a script needs them and marked elsewhere", () => {
  assert.deepEqual(pieces("👩‍💻"), [{ text: "👩‍💻" }]);
  assert.equal(textOf(pieces("pay\u200dpal")), "pay⟨ZWJ⟩pal");
  assert.deepEqual(pieces("❤️ 1️⃣ ©️"), [{ text: "❤️ 1️⃣ ©️" }]);
  assert.equal(textOf(pieces("a\ufe01❤\ufe0f\ufe02\u{e0101}")), "a⟨U+FE01⟩❤\ufe0f⟨U+FE02⟩⟨U+E0101⟩");
});

test("only unambiguous http addresses are links", () => {
  const links = (text) => pieces(text, { links: true }).filter((piece) => piece.link).map((piece) => piece.link);
  assert.deepEqual(links("see https://example.com/a?b=1#c. And (http://localhost:8080/x)."), [
    "https://example.com/a?b=1#c",
    "http://localhost:8080/x",
  ]);
  assert.deepEqual(links("javascript:alert(1) data:text/html,x file:///etc/passwd //evil.example"), []);
  assert.deepEqual(links("https://good.example@evil.example/ https://user:pw@evil.example"), []);
  assert.deepEqual(links("https://good.example\\@evil.example/"), []);
  assert.deepEqual(links("https://exämple.com/"), []);
});

test("links do not change the text", () => {
  const text = "a https://example.com/x, b http://e.example! c";
  assert.equal(textOf(pieces(text, { links: true })), text);
});

test("one-line text has no line breaks", () => {
  assert.equal(plainText("a\n  b\r\nc\u0007"), "a b c⟨BEL⟩");
});

test("long text has a start and an end, and its parts lose nothing", () => {
  const text = "x".repeat(5_000_000);
  const { head, cut, tail } = headAndTail(text);
  assert.equal(head.length + cut + tail.length, text.length);
  assert.ok(head.length < 30_000);
  assert.equal(splitIntoParts(text).join(""), text);
  assert.deepEqual(headAndTail("short"), { head: "short", cut: 0, tail: "" });
});

test("surrogate pairs are never split", () => {
  const text = "😀".repeat(20_001);
  const { head, tail } = headAndTail(text, 24_001, 4_001);
  assert.ok(head.isWellFormed() && tail.isWellFormed());
  assert.ok(splitIntoParts(text, 7_001).every((part) => part.isWellFormed()));
});

test("highlighting never changes a character", () => {
  for (const language of ["json", "code", "diff", "prose", "", "klingon"]) {
    for (const text of [...HOSTILE, '{"a": [1, true, "x"]}', "def f():\n    return 'x' # why\n", "- a\n+ b\n@@ -1 +1 @@\n", '"unclosed']) {
      assert.equal(highlight(text, language).map((piece) => piece.text).join(""), text);
    }
  }
});

test("code blocks and tables in prose are highlighted, also while streaming", () => {
  const kinds = (text) => highlight(text, "prose").map(({ kind, text: piece }) => `${kind}: ${piece}`);
  assert.deepEqual(kinds("a\n```js\nlet x\n```\nb\n| c | d |\n"), [": a\n", "fence: ```js\nlet x\n```\n", ": b\n", "table: | c | d |", ": \n"]);
  assert.deepEqual(kinds("a\n```\nhalf"), [": a\n", "fence: ```\nhalf"]);
});

test("language is detected by content and file name", () => {
  assert.equal(detectLanguage('{"a": 1}'), "json");
  assert.equal(detectLanguage("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n"), "diff");
  assert.equal(detectLanguage("import x", "a/b.py"), "code");
  assert.equal(detectLanguage("{ not json"), "");
  assert.equal(formatJson('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(asDiff("one\ntwo\n", "three"), "-one\n-two\n+three");
});

test("numbers are formatted for people", () => {
  assert.deepEqual([0.04, 3.21, 59.7, 61, 3600, 7265].map(format.duration), ["0.0s", "3.2s", "1m 00s", "1m 01s", "1h 00m", "2h 01m"]);
  assert.deepEqual([30, 90, 1800, 3600, 5400].map(format.roundDuration), ["30s", "1m 30s", "30m", "1h", "1h 30m"]);
  assert.deepEqual([null, 0, 999, 1234, 52_300, 999_499, 3_400_000].map(format.count), ["—", "0", "999", "1.2k", "52k", "999k", "3.4M"]);
  assert.deepEqual([null, 0, 0.0001, 0.0341, 1.5].map(format.cost), ["—", "$0", "<$0.001", "$0.034", "$1.50"]);
  const sandboxes = [undefined, { mode: "off", mechanism: "none" }, { mode: "strict", mechanism: "bubblewrap+landlock" }];
  assert.deepEqual(sandboxes.map(format.sandboxText), ["off", "off", "strict (bubblewrap+landlock)"]);
  assert.deepEqual([1, 2].map((files) => format.changesText({ files, insertions: 3, deletions: 0 })), ["1 file changed, +3 −0", "2 files changed, +3 −0"]);
  assert.deepEqual([5, 65, 3700, 90_000].map((seconds) => format.timeAgo(1e6 - seconds, 1e6)), ["now", "1m ago", "1h ago", "1d ago"]);
});

test("ending of a run has an icon and a label", () => {
  const ended = (code) => ({ state: "error", failure: code && { code } });
  const describe = (row) => `${format.appearance(row)} ${format.stateLabel(row)}`;
  assert.deepEqual(
    [{ state: "queued" }, { state: "running" }, { state: "completed" }, ended("provider"), ended("aborted"), ended("interrupted"), ended("timeout"), ended("idle_timeout"), { state: "of tomorrow" }].map(describe),
    ["queued Queued", "running Running", "completed Completed", "error Failed", "stopped Cancelled", "stopped Interrupted", "late Timed out", "late Timed out", "queued of tomorrow"],
  );
  assert.deepEqual(["not_finalized", "aborted", ""].map((code) => format.failureLabel({ code })), ["Failed: not finalized", "Cancelled", "Failed: "]);
});

const row = (run, more = {}) => ({ run, session: run, root: "r", parentSession: null, state: "running", created: 0, name: run, agent: "a", engine: "e", task: "", preview: "", ...more });

test("parents are sorted before children, also in a damaged tree", () => {
  const rows = [row("c", { parentSession: "b", created: 3 }), row("b", { parentSession: "a", created: 2 }), row("d", { created: 1 }), row("a"), row("x", { parentSession: "gone" })];
  const circle = [row("y", { parentSession: "z" }), row("z", { parentSession: "y" })];
  assert.deepEqual(sortAsTree([...rows, ...circle]).map((one) => one.run), ["a", "b", "c", "x", "d", "y", "z"]);
});

test("continued session has the child runs of all its runs", () => {
  const below = ["first", "second", "third"].map((run, index) => row(`of ${run}`, { parentRun: run, parentSession: "first", created: index }));
  const rows = [...below, row("beside", { created: 9 }), row("third", { session: "first", created: 3 })];
  assert.deepEqual(sortAsTree(rows).map((one) => one.run), ["third", "of first", "of second", "of third", "beside"]);
});

test("parent counts its live child runs, not those below them", () => {
  const live = { state: "running" };
  const rows = [row("a", live), row("b", { ...live, parentRun: "a", parentSession: "a" }), row("c", { ...live, parentRun: "b", parentSession: "b" }), row("d", { state: "completed", parentRun: "a", parentSession: "a" })];
  assert.deepEqual(visibleRows(rows, new Set()).map(({ awaited }) => awaited), [1, 1, 0, 0]);
});

test("rows below a closed branch are hidden and counted", () => {
  const rows = [row("a"), row("b", { parentSession: "a" }), row("c", { parentSession: "b" }), row("d", { parentSession: "a" }), row("e")];
  const describe = (closed) => visibleRows(rows, new Set(closed)).map(({ row: { run }, below, isClosed }) => `${run}${below}${isClosed ? "!" : ""}`);
  assert.deepEqual(describe([]), ["a3", "b1", "c0", "d0", "e0"]);
  assert.deepEqual(describe(["b"]), ["a3", "b1!", "d0", "e0"]);
  assert.deepEqual(describe(["a"]), ["a3!", "e0"]);
  const circle = [row("y", { parentSession: "z" }), row("z", { parentSession: "y" })];
  assert.equal(visibleRows(circle, new Set()).length, 2);
});

test("folder is shown by its end, a worktree by its repository", () => {
  assert.equal(format.lastFolders("/home/ada/src/atlas"), "src/atlas");
  assert.equal(format.lastFolders("/home/ada/.local/state/retinue/worktrees/atlas-9c6b668e/42802c3c"), "atlas (worktree 42802c3c)");
  assert.equal(format.lastFolders(null), "/");
});

test("states that need attention are counted", () => {
  const runs = [row("a"), row("b", { state: "error", failure: { code: "timeout" } }), row("c", { state: "error", failure: { code: "loop" } }), row("d", { state: "completed" })];
  assert.deepEqual(format.stateSummary(runs), [{ kind: "running", text: "1 running" }, { kind: "late", text: "1 timed out" }, { kind: "error", text: "1 failed" }]);
});

test("arriving row replaces only its own row", () => {
  const before = [{ root: "q", runs: [row("z", { root: "q" })], more: 0 }, { root: "r", runs: [row("a")], more: 0 }];
  const after = mergeRows(before, [row("a", { state: "completed" }), row("b", { parentSession: "a" })]);
  assert.equal(after[0], before[0]);
  assert.deepEqual(after[1].runs.map((one) => `${one.run} ${one.state}`), ["a completed", "b running"]);
  assert.equal(mergeRows(before, []), before);
});

test("new root comes first if it matches the filter", () => {
  const before = [{ root: "r", runs: [row("a")], more: 0 }];
  const fresh = row("n", { root: "new", agent: "reviewer" });
  assert.deepEqual(mergeRows(before, [fresh]).map((group) => group.root), ["new", "r"]);
  assert.equal(mergeRows(before, [fresh], filterPredicate({ agent: "explorer" })), before);
  assert.deepEqual(appendOlder(before, [{ root: "r" }, { root: "o" }]).map((group) => group.root), ["r", "o"]);
});

test("session is listed once, by its latest run", () => {
  const before = [{ root: "q", runs: [row("z", { root: "q" })], more: 0 }, { root: "r", runs: [row("a"), row("b")], more: 0 }];
  const again = row("a2", { session: "a", root: "new", created: 9 });
  const describe = (groups) => groups.map((group) => `${group.root}: ${group.runs.map((one) => one.run)}`);
  assert.deepEqual(describe(mergeRows(before, [again])), ["new: a2", "q: z", "r: b"]);
  assert.deepEqual(describe(mergeRows(before, [row("z2", { session: "z", created: 9 })])), ["r: a,b,z2"]);
  assert.deepEqual(describe(mergeRows(mergeRows(before, [again]), [row("b")])), ["new: a2", "q: z", "r: b"]);
  assert.deepEqual(describe(mergeRows(before, [row("a", { state: "completed" }), again])), ["new: a2", "q: z", "r: b"]);
  assert.deepEqual(treeAround(row("a"), [again, row("b", { created: 1 })]).map((one) => one.run), ["a", "b"]);
});

test("state changes are announced", () => {
  const before = [{ root: "r", runs: [row("a"), row("b", { state: "queued" })] }];
  const after = [{ root: "r", runs: [row("a", { state: "error" }), row("b"), row("c", { state: "queued" })] }];
  assert.deepEqual(announcements(before, after), ["a: Failed", "b: Running"]);
});

const event = (seq, type, more = {}) => ({ seq, type, time: seq, ...more });

test("tool call and result are one item, and every event is applied once", () => {
  const describe = new Transcript();
  const events = [
    event(1, "attempt_started", { number: 1, reason: "first" }),
    event(1.5, "attempt_started", { number: 2, reason: "retry" }),
    event(2, "tool_called", { call: "c", name: "read", args: { path: "x" } }),
    event(5, "tool_returned", { call: "c", name: "read", text: "found" }),
    event(6, "text", { text: "done" }),
  ];
  for (const one of [...events, ...events]) describe.add(one);
  assert.deepEqual(describe.items.map((item) => item.kind), ["attempt", "tool", "text"]);
  assert.deepEqual([describe.items[1].result, describe.items[1].seconds, describe.isInTool], ["found", 3, false]);
  describe.add(event(7, "tool_called", { call: "d", name: "bash", args: {} }));
  assert.equal(describe.isInTool, true);
});

test("streamed text is replaced by the whole block, and gaps are visible", () => {
  const describe = new Transcript();
  describe.write({ type: "text_delta", text: "Hel", at: 0 });
  describe.write({ type: "text_delta", text: "lo", at: 3 });
  assert.equal(describe.writing.text.shown, "Hello");
  describe.write({ type: "text_delta", text: "world", at: 9 });
  describe.write({ type: "text_delta", text: "!", at: 14 });
  assert.equal(describe.writing.text.shown, "Hello…world!");
  describe.write({ type: "text_delta", text: "All of it", at: 0 });
  assert.equal(describe.writing.text.shown, "All of it");
  describe.add(event(9, "text", { text: "All of it." }));
  assert.equal(describe.writing.text.shown, "");
  assert.equal(describe.items.at(-1).text, "All of it.");
});

test("time since the last event counts for the current activity", () => {
  const spent = { queued: 1, model: 2, tools: 3, other: 0, cost: 0.5 };
  const at = (state, isInTool) => timesUntilNow({ spent, state, created: 100 }, isInTool, 110);
  assert.deepEqual(at("running", true), { ...spent, tools: 7 });
  assert.deepEqual(at("running", false), { ...spent, model: 6 });
  assert.deepEqual(at("queued", false), { ...spent, queued: 5 });
  assert.equal(at("completed", false), spent);
});

test("events of unknown types are ignored", () => {
  const describe = new Transcript();
  assert.equal(describe.add(event(1, "quantum_leaped", { far: true })), true);
  assert.deepEqual(describe.items, []);
});

test("tool call is summarized by its main argument", () => {
  assert.equal(mainArgument({ path: "src/bus.py", limit: 5 }), "src/bus.py");
  assert.equal(mainArgument({ pattern: "loop", path: "." }), "loop");
  assert.equal(mainArgument({ path: "src", pattern: "loop" }), "loop in src");
  assert.equal(mainArgument({ pattern: "loop", glob: "*.py" }), "loop in *.py");
  assert.equal(mainArgument({ agent: "explorer", task: "Find it" }), "explorer: Find it");
  assert.equal(mainArgument({ mode: "parallel", tasks: [{ agent: "explorer" }, { agent: "tester" }, "odd"] }), "parallel: explorer, tester");
  assert.equal(mainArgument({ tasks: [{ agent: "explorer" }, { agent: "tester" }, { agent: "explorer" }] }), "explorer ×2, tester");
  assert.equal(mainArgument({ tasks: "odd" }), "odd");
  assert.equal(mainArgument({ odd: "x" }), "x");
  assert.equal(mainArgument(null), "");
});

test("Markdown is parsed into tokens, with addresses left to the text", () => {
  const describe = (text) => parseMarkdown(marked, text).map((token) => token.type);
  assert.deepEqual(describe("# A\n\nb *c*\n\n- d\n\n| e |\n|---|\n| f |\n\n> g\n\n```js\nh\n```\n<b>i</b>"), ["heading", "space", "paragraph", "space", "list", "space", "table", "space", "blockquote", "space", "code", "paragraph"]);
  const [{ tokens }] = parseMarkdown(marked, "see https://example.com/a and a@b.example\nnext");
  assert.deepEqual(tokens.map((token) => token.type), ["text", "br", "text"]);
});

test("Markdown built to be slow is parsed in bounded time, and its text is kept", () => {
  for (const piece of ["[", "- ", "![", "[a](", "[[[a]](b", "1. ", "> ", "> - ", "*a ", "a**b", "_a", "<", "<a ", "`", "~~a", "- a\n\n", "|a", "> a\nb\n"]) {
    const size = piece === "[" || piece === "- " ? 1_000_000 : 300_000; // longer text is not parsed
    const text = piece.repeat(Math.floor(size / piece.length));
    const began = performance.now();
    const tokens = parseMarkdown(marked, text);
    assert.ok(performance.now() - began < 20_000, `${JSON.stringify(piece)}: ${performance.now() - began} ms`);
    assert.equal(tokens.map((token) => token.raw).join("").trim(), text.trim());
  }
});

test("long Markdown is parsed in parts, and no code block is torn", () => {
  const code = "~~~\nx\n\n```\n".padEnd(50_000, "y\n\n") + "\n~~~\n";
  const paragraphs = "A paragraph of some words.\n\n".repeat(2000);
  const text = `${paragraphs}${code}${paragraphs}`;
  assert.equal(splitBlocks(text).join(""), text);
  const counts = parseMarkdown(marked, text).reduce((all, { type }) => ({ ...all, [type]: (all[type] ?? 0) + 1 }), {});
  assert.deepEqual([counts.paragraph, counts.code], [4000, 1]);
  assert.equal(splitBlocks("> a\nb\n".repeat(50_000)).length, 8);
});

test("entities, headings and hosts are resolved without hiding anything", () => {
  assert.equal(decodeEntities("&lt;b&gt; &amp;lt; &#x202e; &#0; &nope; &#128512;"), "<b> &lt; \u202e &#0; &nope; 😀");
  assert.deepEqual([[1, 1], [3, 1], [6, 2], [1, 4]].map(([depth, before]) => headingLevel(depth, before)), [2, 2, 3, 2]);
  assert.equal(hostToShow("https://good.example/x", "https://evil.example/x"), "evil.example");
  assert.equal(hostToShow("good.example", "https://evil.example/"), "evil.example");
  assert.equal(hostToShow("the documentation of src/a.py", "https://docs.example/"), "");
  assert.deepEqual(["mailto:a@b.example", "mailto:a@b.example?body=x", "javascript:1"].map(isMailAddress), [true, false, false]);
});

test("timeline zooms, pans and selects within its range", () => {
  const whole = { from: 100, span: 10 };
  assert.deepEqual(zoom(null, whole, 0.5), { from: 102.5, span: 5 });
  assert.equal(zoom({ from: 102, span: 6 }, whole, 2), null);
  assert.deepEqual(pan({ from: 104, span: 5 }, whole, 0.5), { from: 105, span: 5 });
  assert.equal(pan(null, whole, 1), null);
  assert.deepEqual(select(107, 103, whole), { from: 103, span: 4 });
  assert.equal(select(103, 103.01, whole), null);
  assert.deepEqual(ticks(whole, 100).map(({ at }) => tickLabel(at)), ["0", "2s", "4s", "6s", "8s"]);
  assert.deepEqual(ticks({ from: 103, span: 1 }, 100).map(({ at }) => tickLabel(at)), ["3s", "3.2s", "3.4s", "3.6s", "3.8s"]);
  assert.deepEqual(place(95, 105, whole), { left: "0%", width: "50%" });
  assert.equal(place(50, 60, whole), null);
});

test("spans of a lane are one path per kind, clipped to the view", () => {
  const spans = [
    { kind: "model", name: "m", started: 100, ended: 105 },
    { kind: "tool", name: "read", started: 104, ended: 106, failed: true },
    { kind: "tool", name: "late", started: 200, ended: 201 },
    { kind: "tool", name: "open", started: 108 },
    { kind: "child", name: "spawn_subagent", started: 106, ended: 108 },
  ];
  const paths = spanPaths(spans, { from: 100, span: 10 }, 110);
  assert.deepEqual(paths, { model: "M0 0h500v12h-500z", failed: "M400 3h200v6h-200z", tool: "M800 3h200v6h-200z", child: "M600 5h200v2h-200z" });
  assert.deepEqual(sumByKind(spans, 110), { model: 5, tool: 5, child: 2 });
  assert.equal(spanAt(spans, 104.5, 110).name, "read");
  assert.equal(spanAt(spans, 107, 110).name, "spawn_subagent");
  assert.deepEqual(longestSpans(spans, 110, 2).map((span) => span.name), ["m", "read"]);
});

test("filters of a URL become a query of the server and a test of rows", () => {
  assert.deepEqual(parseFilters({ state: "error", q: "x", odd: "1" }), { q: "x", outcome: "failed" });
  assert.deepEqual(toQuery({ q: "x", age: "7" }, 1e6), { q: "x", since: 1e6 - 7 * 86_400 });
  const { since, until } = toQuery({ day: "2026-11-18" });
  assert.equal(until - since, 86_400);
  assert.deepEqual(toQuery({ day: "odd", agent: "a" }), { agent: "a" });
  const one = row("a", { model: "m", cwd: "/x", elapsed: 12, ended: 1000, usage: { cost: 0.2 }, state: "error", failure: { code: "timeout" } });
  const matches = (filters) => filterPredicate(filters)(one);
  assert.ok([{}, { outcome: "timed_out" }, { model: "m" }, { cwd: "/x" }, { minCost: "0.1" }, { minElapsed: "10" }].every(matches));
  assert.ok(![{ outcome: "failed" }, { model: "n" }, { cwd: "/y" }, { minCost: "1" }, { minElapsed: "60" }, { age: "1" }].some(matches));
});

test("calls of one tool in a row become one item, with the turns between them", () => {
  const tool = (key, name, more = {}) => ({ kind: "tool", key, name, result: "x", ...more });
  const turn = (key) => ({ kind: "turn", key });
  const fold = (items) => foldEqualCalls(items, (item) => !item.isError).map((item) => (item.kind === "calls" ? `${item.name}×${item.count}:${item.items.length}` : item.key));
  const reads = [tool(1, "read"), turn(2), tool(3, "read"), tool(4, "read"), tool(5, "read"), turn(6)];
  assert.deepEqual(fold([...reads, tool(7, "grep")]), ["read×4:5", 6, 7]);
  assert.deepEqual(fold([tool(1, "read"), tool(2, "read"), tool(3, "read")]), [1, 2, 3]);
  assert.deepEqual(fold([...reads.slice(0, 4), tool(5, "read", { isError: true })]), [1, 2, 3, 4, 5]);
  assert.deepEqual(fold([]), []);
});
