// The pure modules of the dashboard, by the runner that comes with node; `test_files.py` calls it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { upToNow } from "../../../src/retinue/servers/http/dashboard/details.js";
import { Transcript } from "../../../src/retinue/servers/http/dashboard/transcript-model.js";
import * as format from "../../../src/retinue/servers/http/dashboard/format.js";
import { asDiff, highlight, languageOf, pretty } from "../../../src/retinue/servers/http/dashboard/highlight.js";
import { announcements, around, inTreeOrder, matching, withOlder, withRows } from "../../../src/retinue/servers/http/dashboard/store.js";
import { ends, parts, pieces, plain } from "../../../src/retinue/servers/http/dashboard/text.js";
import { gist } from "../../../src/retinue/servers/http/dashboard/tool.js";

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

test("text that is only text is one piece", () => {
  assert.deepEqual(pieces("plain ünïcode 日本語\n\ttabs"), [{ text: "plain ünïcode 日本語\n\ttabs" }]);
});

test("nothing that cannot be seen is left unseen", () => {
  for (const text of HOSTILE) {
    const shown = textOf(pieces(text)).replace(/[\u200c\u200d]/g, "");
    // eslint-disable-next-line no-control-regex
    assert.doesNotMatch(shown, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]|[\u{e0000}-\u{e007f}]/u);
  }
});

test("what turns a line around is named", () => {
  assert.deepEqual(pieces("a\u202eb"), [{ text: "a" }, { mark: "⟨RLO⟩", title: "U+202E" }, { text: "b" }]);
  assert.deepEqual(pieces("\u001b[1m"), [{ mark: "⟨ESC⟩", title: "U+001B" }, { text: "[1m" }]);
});

test("joiners stay where a script needs them, and are shown where they hide", () => {
  assert.deepEqual(pieces("👩‍💻"), [{ text: "👩‍💻" }]);
  assert.equal(textOf(pieces("pay\u200dpal")), "pay⟨ZWJ⟩pal");
  assert.deepEqual(pieces("❤️ 1️⃣ ©️"), [{ text: "❤️ 1️⃣ ©️" }]);
  assert.equal(textOf(pieces("a\ufe01❤\ufe0f\ufe02\u{e0101}")), "a⟨U+FE01⟩❤\ufe0f⟨U+FE02⟩⟨U+E0101⟩");
});

test("only addresses that lead where they say are links", () => {
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

test("links do not change a text", () => {
  const text = "a https://example.com/x, b http://e.example! c";
  assert.equal(textOf(pieces(text, { links: true })), text);
});

test("one line stays one line", () => {
  assert.equal(plain("a\n  b\r\nc\u0007"), "a b c⟨BEL⟩");
});

test("long text shows its ends and loses nothing", () => {
  const text = "x".repeat(5_000_000);
  const { head, cut, tail } = ends(text);
  assert.equal(head.length + cut + tail.length, text.length);
  assert.ok(head.length < 30_000);
  assert.equal(parts(text).join(""), text);
  assert.deepEqual(ends("short"), { head: "short", cut: 0, tail: "" });
});

test("a surrogate pair is never cut in two", () => {
  const text = "😀".repeat(20_001);
  const { head, tail } = ends(text, 24_001, 4_001);
  assert.ok(head.isWellFormed() && tail.isWellFormed());
  assert.ok(parts(text, 7_001).every((part) => part.isWellFormed()));
});

test("highlighting never changes a character", () => {
  for (const language of ["json", "code", "diff", "prose", "", "klingon"]) {
    for (const text of [...HOSTILE, '{"a": [1, true, "x"]}', "def f():\n    return 'x' # why\n", "- a\n+ b\n@@ -1 +1 @@\n", '"unclosed']) {
      assert.equal(highlight(text, language).map((piece) => piece.text).join(""), text);
    }
  }
});

test("blocks of code and tables in prose are seen, also one that is still being written", () => {
  const kinds = (text) => highlight(text, "prose").map(({ kind, text: piece }) => `${kind}: ${piece}`);
  assert.deepEqual(kinds("a\n```js\nlet x\n```\nb\n| c | d |\n"), [": a\n", "fence: ```js\nlet x\n```\n", ": b\n", "table: | c | d |", ": \n"]);
  assert.deepEqual(kinds("a\n```\nhalf"), [": a\n", "fence: ```\nhalf"]);
});

test("languages are told by their look and by the file", () => {
  assert.equal(languageOf('{"a": 1}'), "json");
  assert.equal(languageOf("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n"), "diff");
  assert.equal(languageOf("import x", "a/b.py"), "code");
  assert.equal(languageOf("{ not json"), "");
  assert.equal(pretty('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(asDiff("one\ntwo\n", "three"), "-one\n-two\n+three");
});

test("numbers read as people say them", () => {
  assert.deepEqual([0.04, 3.21, 59.7, 61, 3600, 7265].map(format.duration), ["0.0s", "3.2s", "1m 00s", "1m 01s", "1h 00m", "2h 01m"]);
  assert.deepEqual([30, 90, 1800, 3600, 5400].map(format.limit), ["30s", "1m 30s", "30m", "1h", "1h 30m"]);
  assert.deepEqual([null, 0, 999, 1234, 52_300, 999_499, 3_400_000].map(format.count), ["—", "0", "999", "1.2k", "52k", "999k", "3.4M"]);
  assert.deepEqual([null, 0, 0.0001, 0.0341, 1.5].map(format.cost), ["—", "$0", "<$0.001", "$0.034", "$1.50"]);
  assert.deepEqual([5, 65, 3700, 90_000].map((seconds) => format.ago(1e6 - seconds, 1e6)), ["now", "1m ago", "1h ago", "1d ago"]);
});

test("how a run ended is told by its look and in a word", () => {
  const ended = (code) => ({ state: "error", failure: code && { code } });
  const told = (row) => `${format.look(row)} ${format.stateWord(row)}`;
  assert.deepEqual(
    [{ state: "queued" }, { state: "running" }, { state: "completed" }, ended("provider"), ended("aborted"), ended("interrupted"), ended("timeout"), ended("idle_timeout"), { state: "of tomorrow" }].map(told),
    ["queued Waiting", "running Running", "completed Done", "error Failed", "stopped Cancelled", "stopped Interrupted", "late Timed out", "late Timed out", "queued of tomorrow"],
  );
  assert.deepEqual(["not_finalized", "aborted", ""].map((code) => format.failureWord({ code })), ["Failed: not finalized", "Cancelled", "Failed: "]);
});

const row = (run, more = {}) => ({ run, session: run, root: "r", parentSession: null, state: "running", created: 0, name: run, agent: "a", engine: "e", task: "", preview: "", ...more });

test("parents stand before their children, also of a damaged tree", () => {
  const rows = [row("c", { parentSession: "b", created: 3 }), row("b", { parentSession: "a", created: 2 }), row("d", { created: 1 }), row("a"), row("x", { parentSession: "gone" })];
  const circle = [row("y", { parentSession: "z" }), row("z", { parentSession: "y" })];
  assert.deepEqual(inTreeOrder([...rows, ...circle]).map((one) => one.run), ["a", "b", "c", "x", "d", "y", "z"]);
});

test("a session that goes on has the children of all its runs", () => {
  const below = ["first", "second", "third"].map((run, index) => row(`of ${run}`, { parentRun: run, parentSession: "first", created: index }));
  const rows = [...below, row("beside", { created: 9 }), row("third", { session: "first", created: 3 })];
  assert.deepEqual(inTreeOrder(rows).map((one) => one.run), ["third", "of first", "of second", "of third", "beside"]);
});

test("a row that arrives changes its place and nothing else", () => {
  const before = [{ root: "q", runs: [row("z", { root: "q" })], more: 0 }, { root: "r", runs: [row("a")], more: 0 }];
  const after = withRows(before, [row("a", { state: "completed" }), row("b", { parentSession: "a" })]);
  assert.equal(after[0], before[0]);
  assert.deepEqual(after[1].runs.map((one) => `${one.run} ${one.state}`), ["a completed", "b running"]);
  assert.equal(withRows(before, []), before);
});

test("a new root comes first, if it is what the filter asks for", () => {
  const before = [{ root: "r", runs: [row("a")], more: 0 }];
  const fresh = row("n", { root: "new", agent: "reviewer" });
  assert.deepEqual(withRows(before, [fresh]).map((group) => group.root), ["new", "r"]);
  assert.equal(withRows(before, [fresh], matching({ agent: "explorer" })), before);
  assert.deepEqual(withOlder(before, [{ root: "r" }, { root: "o" }]).map((group) => group.root), ["r", "o"]);
});

test("a session is listed once, by its latest run", () => {
  const before = [{ root: "q", runs: [row("z", { root: "q" })], more: 0 }, { root: "r", runs: [row("a"), row("b")], more: 0 }];
  const again = row("a2", { session: "a", root: "new", created: 9 });
  const told = (groups) => groups.map((group) => `${group.root}: ${group.runs.map((one) => one.run)}`);
  assert.deepEqual(told(withRows(before, [again])), ["new: a2", "q: z", "r: b"]);
  assert.deepEqual(told(withRows(before, [row("z2", { session: "z", created: 9 })])), ["r: a,b,z2"]);
  assert.deepEqual(told(withRows(withRows(before, [again]), [row("b")])), ["new: a2", "q: z", "r: b"]);
  assert.deepEqual(told(withRows(before, [row("a", { state: "completed" }), again])), ["new: a2", "q: z", "r: b"]);
  assert.deepEqual(around(row("a"), [again, row("b", { created: 1 })]).map((one) => one.run), ["a", "b"]);
});

test("changes of state are told in words", () => {
  const before = [{ root: "r", runs: [row("a"), row("b", { state: "queued" })] }];
  const after = [{ root: "r", runs: [row("a", { state: "error" }), row("b"), row("c", { state: "queued" })] }];
  assert.deepEqual(announcements(before, after), ["a: Failed", "b: Running"]);
});

const event = (seq, type, more = {}) => ({ seq, type, time: seq, ...more });

test("a call and its result are one item, and every event is taken once", () => {
  const told = new Transcript();
  const events = [
    event(1, "attempt_started", { number: 1, reason: "first" }),
    event(2, "tool_called", { call: "c", name: "read", args: { path: "x" } }),
    event(5, "tool_returned", { call: "c", name: "read", text: "found" }),
    event(6, "text", { text: "done" }),
  ];
  for (const one of [...events, ...events]) told.add(one);
  assert.deepEqual(told.items.map((item) => item.kind), ["attempt", "tool", "text"]);
  assert.deepEqual([told.items[1].result, told.items[1].seconds, told.isInTool], ["found", 3, false]);
  told.add(event(7, "tool_called", { call: "d", name: "bash", args: {} }));
  assert.equal(told.isInTool, true);
});

test("what is being written gives way to the whole block, and gaps can be seen", () => {
  const told = new Transcript();
  told.write({ type: "text_delta", text: "Hel", at: 0 });
  told.write({ type: "text_delta", text: "lo", at: 3 });
  assert.equal(told.writing.text.shown, "Hello");
  told.write({ type: "text_delta", text: "world", at: 9 });
  told.write({ type: "text_delta", text: "!", at: 14 });
  assert.equal(told.writing.text.shown, "Hello…world!");
  told.write({ type: "text_delta", text: "All of it", at: 0 });
  assert.equal(told.writing.text.shown, "All of it");
  told.add(event(9, "text", { text: "All of it." }));
  assert.equal(told.writing.text.shown, "");
  assert.equal(told.items.at(-1).text, "All of it.");
});

test("time that no event has counted yet belongs to what is going on", () => {
  const spent = { queued: 1, model: 2, tools: 3, other: 0, cost: 0.5 };
  const at = (state, isInTool) => upToNow({ spent, state, created: 100 }, isInTool, 110);
  assert.deepEqual(at("running", true), { ...spent, tools: 7 });
  assert.deepEqual(at("running", false), { ...spent, model: 6 });
  assert.deepEqual(at("queued", false), { ...spent, queued: 5 });
  assert.equal(at("completed", false), spent);
});

test("events of another version are passed over", () => {
  const told = new Transcript();
  assert.equal(told.add(event(1, "quantum_leaped", { far: true })), true);
  assert.deepEqual(told.items, []);
});

test("a tool call says in a few words what it does", () => {
  assert.equal(gist({ path: "src/bus.py", limit: 5 }), "src/bus.py");
  assert.equal(gist({ pattern: "loop", path: "." }), "loop");
  assert.equal(gist({ path: "src", pattern: "loop" }), "loop in src");
  assert.equal(gist({ pattern: "loop", glob: "*.py" }), "loop in *.py");
  assert.equal(gist({ agent: "explorer", task: "Find it" }), "explorer: Find it");
  assert.equal(gist({ mode: "parallel", tasks: [{ agent: "explorer" }, { agent: "tester" }, "odd"] }), "parallel: explorer, tester");
  assert.equal(gist({ tasks: "odd" }), "odd");
  assert.equal(gist({ odd: "x" }), "x");
  assert.equal(gist(null), "");
});
