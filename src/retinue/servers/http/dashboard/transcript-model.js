// A run's events folded into what its transcript shows: items in order, a tool call and its result as one. Each event
// is taken once, by its `seq`; what is being written at the moment stands beside them and gives way to the whole block.

const EMPTY = { shown: "", upto: 0 }; // of a block: what is shown of it, and how many characters of it there were
const NOTHING = { text: EMPTY, thinking: EMPTY };

export class Transcript {
  items = [];
  writing = NOTHING;
  seq = 0;
  #calls = new Map(); // where each tool call stands, by its id

  // Whether the last tool it called has not answered yet.
  get isInTool() {
    const last = this.items.findLast((item) => item.kind === "tool");
    return last !== undefined && last.result === undefined;
  }

  // Takes an event in; returns whether it was new.
  add(event) {
    if (event.seq <= this.seq) return false;
    this.seq = event.seq;
    const shown = ITEMS[event.type];
    if (event.type === "tool_returned") this.#returned(event);
    else if (shown) this.#push({ ...shown(event), key: event.seq, time: event.time });
    if (event.type === "tool_called") this.#calls.set(event.call, this.items.length - 1);
    if (event.type in this.writing) this.#written(event.type);
    if (event.type === "message_ended" || event.type === "run_ended") this.writing = NOTHING;
    return true;
  }

  // Takes in a piece of what is being written. `at` says how much of the block stood before it.
  write({ type, text, at, call }) {
    if (type === "tool_delta") return this.#printed(call, text, at);
    const kind = type === "thinking_delta" ? "thinking" : "text";
    this.writing = { ...this.writing, [kind]: joined(this.writing[kind], text, at) };
    return undefined;
  }

  #push(item) {
    this.items.push(item); // in place: a run may have a hundred thousand
  }

  #written(kind) {
    this.writing = { ...this.writing, [kind]: EMPTY };
  }

  #returned({ call, name, text = "", isError = false, time, seq }) {
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

  #printed(call, text, at) {
    const place = this.#calls.get(call);
    if (place === undefined || this.items[place].result !== undefined) return;
    this.#replace(place, { ...this.items[place], printed: joined(this.items[place].printed ?? EMPTY, text, at) });
  }

  #replace(place, item) {
    this.items[place] = item;
  }
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

// Pieces that were missed leave a gap that can be seen; a piece from the beginning says everything again.
function joined(before, text, at = before.upto) {
  const upto = at + text.length;
  if (at === 0) return { shown: text, upto };
  if (at === before.upto) return { shown: before.shown + text, upto };
  return { shown: `${before.shown}…${text}`, upto };
}
