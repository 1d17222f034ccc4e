// Parses Markdown into tokens of marked's lexer with a bounded effort. Pure functions; nothing becomes HTML.

const MAX_DEPTH = 12; // levels of quotes, lists and emphasis; text nested deeper stays as it is written
const MAX_INLINE = 4000; // characters of a paragraph: the lexer's effort grows with their square
const PART_CHARS = 20_000; // parsed together
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)/;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", mdash: "—", ndash: "–", hellip: "…" };
const ENTITY = /&(?:#x([0-9a-f]{1,6})|#(\d{1,7})|([a-z]{2,6}));/gi;
const MAIL = /^mailto:[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+$/i;
const NAMES_HOST = /:\/\/|^\s*[\w-]+(?:\.[\w-]+)+(?:[/?#:]|\s*$)/;
const parsers = new WeakMap();

// Returns the tokens of a text. `marked` is the parser's module, which pages load when they need it.
export function parseMarkdown(marked, text) {
  if (!parsers.has(marked)) parsers.set(marked, createParser(marked));
  return parsers.get(marked)(text);
}

function createParser({ Lexer, Tokenizer, getDefaults }) {
  class BoundedLexer extends Lexer {
    #depth = 0;

    blockTokens(source, tokens = [], ...rest) {
      return this.#descend(() => super.blockTokens(source, tokens, ...rest), source, tokens);
    }

    inlineTokens(source, tokens = []) {
      if (source.length > MAX_INLINE) return asText(source, tokens);
      return this.#descend(() => super.inlineTokens(source, tokens), source, tokens);
    }

    #descend(parse, source, tokens) {
      if (this.#depth >= MAX_DEPTH) return asText(source, tokens);
      this.#depth += 1;
      try {
        return parse();
      } finally {
        this.#depth -= 1;
      }
    }
  }
  class PlainTokenizer extends Tokenizer {
    url() {
      return undefined; // addresses in a text are recognized as in all other texts
    }
  }
  const parse = (text) => new BoundedLexer({ ...getDefaults(), breaks: true, tokenizer: new PlainTokenizer() }).lex(text);
  return (text) => splitBlocks(text).flatMap(parse);
}

// Splits a long text into parts that are parsed one by one: between two blocks or, in an endless block, between two
// lines, but in no code block. The effort of some blocks grows with their square.
export function splitBlocks(text) {
  if (text.length <= PART_CHARS) return [text];
  const parts = [];
  let part = "";
  let fence = "";
  for (const line of text.split(/(?<=\n)/)) {
    part += line;
    fence = fenceAfter(line, fence);
    const isLong = part.length >= PART_CHARS && (line.trim() === "" || part.length >= 2 * PART_CHARS);
    if (!isLong || fence) continue;
    parts.push(part);
    part = "";
  }
  return part ? [...parts, part] : parts;
}

// Returns the fence of the code block that is open after a line; empty if none is.
function fenceAfter(line, fence) {
  const [, mark = "", rest = ""] = FENCE.exec(line) ?? [];
  if (!fence) return mark;
  return mark[0] === fence[0] && mark.length >= fence.length && !rest.trim() ? "" : fence;
}

function asText(source, tokens) {
  tokens.push({ type: "text", raw: source, text: source });
  return tokens;
}

// Returns a text with its character references replaced, once.
export function decodeEntities(text) {
  return text.replace(ENTITY, (written, hex, decimal, name) => {
    if (name) return ENTITIES[name] ?? written;
    const code = parseInt(hex ?? decimal, hex ? 16 : 10);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : written;
  });
}

export function isMailAddress(href) {
  return MAIL.test(href);
}

// Returns the host to show beside a link whose text names another one; empty if its text does not mislead.
export function hostToShow(text, href) {
  const { host } = new URL(href);
  return host && NAMES_HOST.test(text) && !text.toLowerCase().includes(host) ? host : "";
}

// Returns the levels of headings for screen readers: none is skipped, whatever the agent wrote.
export function headingLevel(depth, before) {
  return Math.min(depth + 1, before + 1, 6);
}
