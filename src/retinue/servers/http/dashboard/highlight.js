// A small syntax highlighter: splits text into pieces with a kind each and never changes a character. Pure functions.

const MAX_CHARS = 60_000; // longer text is not highlighted
const STRING = String.raw`"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?`;
const NUMBER = String.raw`\b(?:0x[\da-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\b`;
const WORDS =
  "and as async await break case catch class const continue def del do elif else enum except export extends fn for " +
  "from func function if impl import in interface is lambda let match mod module mut new not or package pass pub " +
  "raise return self static struct super switch this throw trait try type use var while with yield fi then done esac";
const RULES = {
  json: [
    ["key", String.raw`"(?:[^"\\\n]|\\.)*"(?=\s*:)`],
    ["string", String.raw`"(?:[^"\\\n]|\\.)*"?`],
    ["number", String.raw`-?${NUMBER}`],
    ["word", String.raw`\b(?:true|false|null)\b`],
  ],
  code: [
    ["comment", String.raw`(?:^|(?<=\s))(?:#|\/\/)[^\n]*|\/\*[^*]{0,2000}\*\/`],
    ["string", STRING],
    ["number", NUMBER],
    ["word", String.raw`\b(?:${WORDS.replaceAll(" ", "|")}|true|false|null|True|False|None)\b`],
  ],
  prose: [
    // Ends at the next fence or with the text, which may still be streaming.
    ["fence", "^```[^\\n]*\\n[^]*?(?:^```[^\\n]*\\n?|(?![^]))"],
    ["table", String.raw`^\|[^\n]*\|[ \t]*$`],
    ["head", String.raw`^#{1,6} [^\n]*`],
    ["code", "`[^`\\n]+`"],
    ["strong", String.raw`\*\*[^*\n]+\*\*`],
  ],
};
const LINES = [
  ["head", /^(diff --git|index |--- |\+\+\+ )/],
  ["hunk", /^@@/],
  ["added", /^\+/],
  ["removed", /^-/],
];
const compiledRules = new Map();

// Returns the pieces {text, kind} of a text; kind is "" for plain text.
export function highlight(text, language) {
  if (language === "diff") return text.length > MAX_CHARS ? [{ text, kind: "" }] : diff(text);
  if (!RULES[language] || text.length > MAX_CHARS) return [{ text, kind: "" }];
  const { pattern, kinds } = compileRules(language);
  const found = [];
  let from = 0;
  for (const match of text.matchAll(pattern)) {
    if (!match[0]) continue;
    if (match.index > from) found.push({ text: text.slice(from, match.index), kind: "" });
    found.push({ text: match[0], kind: kinds[match.slice(1).findIndex((group) => group !== undefined)] });
    from = match.index + match[0].length;
  }
  if (from < text.length) found.push({ text: text.slice(from), kind: "" });
  return found;
}

// Guesses the language of a text from its content and its file name.
export function detectLanguage(text, path = "") {
  const start = text.slice(0, 2000);
  if (/^(diff --git |--- \S|@@ -\d)/m.test(start) && /^[+-]/m.test(start) && /^@@ -\d/m.test(start)) return "diff";
  if (/^\s*[{[]/.test(start) && isJson(text)) return "json";
  if (/\.(md|markdown|txt|rst)$/i.test(path)) return "prose";
  return path && /\.\w{1,5}$/.test(path) ? "code" : "";
}

// Returns JSON with indentation, and other text unchanged.
export function formatJson(text) {
  if (!/^\s*[{[]/.test(text) || text.length > MAX_CHARS) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// Returns an edit as a diff: removed lines, then added lines.
export function asDiff(before, after) {
  const lines = (text, sign) =>
    String(text)
      .replace(/\n$/, "")
      .split("\n")
      .map((line) => sign + line);
  return [...(before ? lines(before, "-") : []), ...(after ? lines(after, "+") : [])].join("\n");
}

function isJson(text) {
  if (text.length > MAX_CHARS) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function diff(text) {
  return text.split(/(?<=\n)/).map((line) => ({
    text: line,
    kind: LINES.find(([, pattern]) => pattern.test(line))?.[0] ?? "",
  }));
}

function compileRules(language) {
  if (!compiledRules.has(language)) {
    const rules = RULES[language];
    const pattern = new RegExp(rules.map(([, source]) => `(${source})`).join("|"), "gm");
    compiledRules.set(language, { pattern, kinds: rules.map(([kind]) => kind) });
  }
  return compiledRules.get(language);
}
