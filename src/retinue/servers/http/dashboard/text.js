// Makes untrusted text safe to display: invisible and direction-changing characters become visible marks.
// Pure functions that return pieces. No module of the dashboard turns text into markup.

const CONTROLS =
  "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US";
const NAMES = {
  ...CONTROLS.split(" "),
  0x7f: "DEL",
  0x85: "NEL",
  0x90: "DCS",
  0x9b: "CSI",
  0x9d: "OSC",
  0xad: "SHY",
  0x34f: "CGJ",
  0x61c: "ALM",
  0x180e: "MVS",
  0x200b: "ZWSP",
  0x200c: "ZWNJ",
  0x200d: "ZWJ",
  0x200e: "LRM",
  0x200f: "RLM",
  0x2028: "LSEP",
  0x2029: "PSEP",
  0x202a: "LRE",
  0x202b: "RLE",
  0x202c: "PDF",
  0x202d: "LRO",
  0x202e: "RLO",
  0x2060: "WJ",
  0x2066: "LRI",
  0x2067: "RLI",
  0x2068: "FSI",
  0x2069: "PDI",
  0xfeff: "BOM",
};
const INVISIBLE = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f" +
    "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff9-\\ufffb\\u{e0000}-\\u{e01ef}]",
  "gu",
);
const SELECTOR = /[\ufe00-\ufe0f]/;
// Printable ASCII without < and >: host names with look-alike characters are no links.
const ADDRESS = /https?:\/\/[!-;=?-~]+/gi;

// Returns the pieces of a text in order: {text}, {mark, title} or {link}. Joined, they are the whole text.
export function pieces(text, { links = false, oneLine = false } = {}) {
  const found = [];
  const normalized = String(text ?? "").replace(/\r\n/g, "\n");
  let from = 0;
  for (const { 0: character, index } of normalized.matchAll(INVISIBLE)) {
    if (isVisibleJoiner(character, normalized, index)) continue;
    toPiece(found, normalized.slice(from, index), links, oneLine);
    found.push(markFor(character));
    from = index + character.length;
  }
  toPiece(found, normalized.slice(from), links, oneLine);
  return found;
}

// Returns a text as one string with its marks, for titles, labels and file names.
export function plainText(text) {
  return pieces(text, { oneLine: true })
    .map((piece) => piece.text ?? piece.mark ?? piece.link)
    .join("");
}

// Returns start and end of a text that is too long to lay out at once; `cut` is the number of characters between.
export function headAndTail(text, most = 24_000, tail = 4_000) {
  if (text.length <= most) return { head: text, cut: 0, tail: "" };
  const first = avoidSurrogateSplit(text, most - tail);
  const last = avoidSurrogateSplit(text, text.length - tail);
  return { head: text.slice(0, first), cut: last - first, tail: text.slice(last) };
}

// Splits a text into parts that a browser lays out one by one, at line breaks where possible.
export function splitIntoParts(text, size = 32_000) {
  const found = [];
  for (let from = 0; from < text.length;) {
    let to = avoidSurrogateSplit(text, Math.min(from + size, text.length));
    const line = text.lastIndexOf("\n", to - 1);
    if (to < text.length && line > from) to = line + 1;
    found.push(text.slice(from, to));
    from = to;
  }
  return found;
}

function toPiece(found, text, links, oneLine) {
  const shown = oneLine ? text.replace(/\s*\n\s*/g, " ") : text;
  if (!shown) return;
  if (!links) return void found.push({ text: shown });
  let from = 0;
  for (const { 0: match, index } of shown.matchAll(ADDRESS)) {
    const link = match.replace(/[.,;:!?'"*_)\]}]+$/, "");
    const goesOn = shown.charCodeAt(index + match.length) > 0x7e; // the host name continues with other characters
    if (goesOn || !isSafeLink(link)) continue;
    if (index > from) found.push({ text: shown.slice(from, index) });
    found.push({ link });
    from = index + link.length;
  }
  if (from < shown.length) found.push({ text: shown.slice(from) });
}

// Returns whether an address leads where it says: http(s), without credentials and look-alike characters.
export function isSafeLink(address) {
  try {
    const { protocol, username, password, host } = new URL(address);
    const named = address
      .toLowerCase()
      .split(/[/?#]/)[2]
      .replace(/:(80|443)$/, "");
    return /^https?:$/.test(protocol) && !username && !password && host.replace(/:(80|443)$/, "") === named;
  } catch {
    return false;
  }
}

function markFor(character) {
  const code = character.codePointAt(0);
  const title = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  return { mark: `\u27e8${NAMES[code] ?? title}\u27e9`, title };
}

// Returns whether a joiner or selector has a visible effect: in emoji, in scripts that need it, after a symbol with
// variants. After Latin letters, after another one or at the start it only hides something.
function isVisibleJoiner(character, text, index) {
  const before = text[index - 1] ?? "";
  if (/[\u200c\u200d]/.test(character)) return before > "\u02ff";
  return SELECTOR.test(character) && !SELECTOR.test(before) && (before > "\u02ff" || /[\d#*\u00a9\u00ae]/.test(before));
}

// Returns the nearest index at or before `at` that does not split a surrogate pair.
function avoidSurrogateSplit(text, at) {
  const code = text.charCodeAt(at);
  return code >= 0xdc00 && code <= 0xdfff ? at - 1 : at;
}
