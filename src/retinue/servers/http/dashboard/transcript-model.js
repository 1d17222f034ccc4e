// The transcript of a run, folded from its events: items in order, a tool call and its result as one item. Each event
// is applied once, by its `seq`. Streamed text is kept beside the items until the whole block arrives.

const EMPTY = { shown: "", upto: 0 }; // of a block: the visible text, and the number of characters received
const NOTHING = { text: EMPTY, thinking: EMPTY };

export class Transcript {
  items = [];
  writing = NOTHING;
  seq = 0;
  #calls = new Map(); // index of each tool call's item, by id

  // Whether the last tool call has no result yet.
  get isInTool() {
    const last = this.items.findLast((item) => item.kind === "tool");
    return last !== undefined && last.result === undefined;
  }

  // Applies an event and returns whether it was new.
  add(event) {
    if (event.seq <= this.seq) return false;
    this.seq = event.seq;
    const shown = ITEMS[event.type];
    if (event.type === "tool_returned") this.#setResult(event);
    else if (shown && !isFirstAttempt(event)) this.#push({ ...shown(event), key: event.seq, time: event.time });
    if (event.type === "tool_called") this.#calls.set(event.call, this.items.length - 1);
    if (event.type in this.writing) this.#clearStreamed(event.type);
    if (event.type === "message_ended" || event.type === "run_ended") this.writing = NOTHING;
    return true;
  }

  // Applies a piece of streamed text. `at` is the number of characters of the block before it.
  write({ type, text, at, call }) {
    if (type === "tool_delta") return this.#addOutput(call, text, at);
    const kind = type === "thinking_delta" ? "thinking" : "text";
    this.writing = { ...this.writing, [kind]: appendPiece(this.writing[kind], text, at) };
    return undefined;
  }

  #push(item) {
    this.items.push(item); // in place: a run may have a hundred thousand items
  }

  #clearStreamed(kind) {
    this.writing = { ...this.writing, [kind]: EMPTY };
  }

  #setResult({ call, name, text = "", isError = false, time, seq }) {
    const place = this.#calls.get(call);
    if (place === undefined)
      return this.#push({ kind: "tool", key: seq, time, call, name, args: {}, result: text, isError });
    const item = this.items[place];
    this.#replace(place, {
      ...item,
      result: text,
      isError,
      seconds: Math.max(0, time - item.time),
      printed: undefined,
    });
    return undefined;
  }

  #addOutput(call, text, at) {
    const place = this.#calls.get(call);
    if (place === undefined || this.items[place].result !== undefined) return;
    this.#replace(place, { ...this.items[place], printed: appendPiece(this.items[place].printed ?? EMPTY, text, at) });
  }

  #replace(place, item) {
    this.items[place] = item;
  }
}

const MIN_EQUAL_CALLS = 4; // fewer are shown one by one

// Returns the items with calls of one tool in a row as one item, `{kind: "calls", name, count, items}`; the turns between
// them belong to it.
export function foldEqualCalls(items, isFoldable) {
  const found = [];
  for (let at = 0; at < items.length;) {
    const { end, count } = equalCalls(items, at, isFoldable);
    const [{ key, name }] = [items[at]];
    if (count < MIN_EQUAL_CALLS) found.push(items[at]);
    else found.push({ kind: "calls", key, name, count, items: items.slice(at, end) });
    at = count < MIN_EQUAL_CALLS ? at + 1 : end;
  }
  return found;
}

// Returns the number of calls of the same tool from an item on, and the index after the last of them.
function equalCalls(items, at, isFoldable) {
  const { name } = items[at];
  let count = 0;
  let end = at;
  for (let next = at; next < items.length; next += 1) {
    const one = items[next];
    if (one.kind === "turn" && count > 0) continue;
    if (one.kind !== "tool" || one.name !== name || !isFoldable(one)) break;
    count += 1;
    end = next + 1;
  }
  return { end, count };
}

const ITEMS = {
  attempt_started: ({ number, reason, model }) => ({ kind: "attempt", number, reason, model }),
  thinking: ({ text }) => ({ kind: "thinking", text }),
  text: ({ text }) => ({ kind: "text", text }),
  tool_called: ({ call, name, args }) => ({ kind: "tool", call, name, args }),
  message_ended: ({ stopReason, error, usage, model }) =>
    stopReason === "error" || stopReason === "length"
      ? { kind: "stopped", stopReason, error }
      : { kind: "turn", usage: usage ?? {}, model },
  model_changed: ({ before, after, reason }) => ({ kind: "model", before, after, reason }),
  notice: ({ code, message }) => ({ kind: "notice", code, message }),
  steered: ({ text }) => ({ kind: "steered", text }),
  deadline_extended: ({ seconds, timeout }) => ({ kind: "extended", seconds, timeout }),
  finalized: ({ finalization }) => ({ kind: "finalized", ...finalization }),
  run_ended: ({ text, answer, failure, elapsed }) => ({ kind: "ended", text, answer, failure, elapsed }),
};

function isFirstAttempt({ type, number }) {
  return type === "attempt_started" && number === 1;
}

// Appends a piece to a block. Missed pieces leave a visible gap; a piece at 0 replaces the block.
function appendPiece(before, text, at = before.upto) {
  const upto = at + text.length;
  if (at === 0) return { shown: text, upto };
  if (at === before.upto) return { shown: before.shown + text, upto };
  return { shown: `${before.shown}…${text}`, upto };
}
