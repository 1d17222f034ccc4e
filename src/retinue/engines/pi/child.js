// Loaded into every pi that Retinue starts, and nowhere else.
//
// `subagent_finalize` exists only here. `/retinue_configure {…}` makes a warm process ready for one run: its tools, its
// prompts, and where it calls home to delegate. pi loads extensions anew with every session, so nothing of one run is
// left for the next.

import { connect } from "node:net";
import { StringDecoder } from "node:string_decoder";

const FINALIZE = "subagent_finalize";

// The actions of `lsp` that only read. Any other is blocked in children, whatever the tool's own settings allow.
const LSP_ACTIONS = [
  "definition",
  "references",
  "hover",
  "signature",
  "symbols",
  "diagnostics",
  "workspace-diagnostics",
  "servers",
];
const withoutSeparators = (action) => action.toLowerCase().replace(/[\s_-]/g, "");
const ALLOWED_LSP_ACTIONS = new Set(LSP_ACTIONS.map(withoutSeparators));

function isAllowedLspAction(action) {
  return typeof action === "string" && ALLOWED_LSP_ACTIONS.has(withoutSeparators(action));
}

function lspRefusal(action) {
  const named = typeof action === "string" ? `"${action.slice(0, 80)}"` : "that is not a text";
  return `The lsp action ${named} is not allowed in subagents. Allowed actions: ${LSP_ACTIONS.join(", ")}.`;
}

const finalize = {
  name: FINALIZE,
  label: "Finalize",
  description:
    "Report the final result of this task. It must be your last action: an answer as plain text is not received. " +
    "SUCCESS requires a non-empty result; ERROR requires a non-empty error and may carry partial findings as result.",
  parameters: {
    type: "object",
    properties: {
      status: { type: "string", enum: ["SUCCESS", "ERROR"] },
      result: { type: "string", description: "The answer; with ERROR, partial findings" },
      error: { type: "string", description: "Why the task could not be done" },
    },
    required: ["status"],
    additionalProperties: false,
  },
  async execute(_id, said) {
    const needed = said.status === "SUCCESS" ? "result" : "error";
    if (!said[needed]?.trim()) throw new Error(`${said.status} requires a non-empty ${needed}`);
    return { content: [{ type: "text", text: "finalized" }], details: said, terminate: true };
  },
};

// An agent's own key for its provider. pi loads us anew with every session, and no tool may see it in the environment.
const KEY = Symbol.for("retinue.key");
globalThis[KEY] ??= process.env.PI_API_KEY;
delete process.env.PI_API_KEY;

async function useOwnKey(pi, { model, modelRegistry }) {
  const key = globalThis[KEY];
  if (!key || !model) return;
  // As `--api-key` does: before any login. Elsewhere it serves where there is no login.
  if (modelRegistry.runtime?.setRuntimeApiKey) await modelRegistry.runtime.setRuntimeApiKey(model.provider, key);
  else pi.registerProvider(model.provider, { apiKey: key });
}

// One order to the process that started this run, on a connection of its own; resolves with its answer. The protocol is
// that of the control socket. The token is known only here: not in the arguments, the environment, or any file.
function tellHome({ socket: path, token }, order, { signal, onPartial } = {}) {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    const text = new StringDecoder("utf8");
    const stop = () => end(reject, new Error("Aborted"));
    let parts = []; // of a line that is not whole yet
    function end(settle, value) {
      signal?.removeEventListener("abort", stop);
      socket.destroy(); // stops what was asked for, if it is not done
      settle(value);
    }
    if (signal?.aborted) return stop();
    signal?.addEventListener("abort", stop);
    socket.on("error", (error) => end(reject, new Error(`Retinue cannot be reached: ${error.message}`)));
    socket.on("close", () => end(reject, new Error("Retinue did not answer: the run is over.")));
    socket.on("data", (chunk) => {
      parts.push(text.write(chunk));
      if (!parts.at(-1).includes("\n")) return;
      const lines = parts.join("").split("\n");
      parts = [lines.pop()];
      for (const answer of lines.map((line) => JSON.parse(line))) {
        if (answer.type === "declined") end(reject, new Error(answer.message));
        else if (answer.type === "partial") onPartial?.(answer.result);
        else if (answer.type !== "welcome") end(resolve, answer);
      }
    });
    for (const said of [{ type: "hello", v: 1, token }, order]) socket.write(`${JSON.stringify(said)}\n`);
  });
}

function delegation(home, { name, description, inputSchema }) {
  return {
    name,
    label: name,
    description,
    parameters: inputSchema,
    async execute(call, given, signal, onUpdate) {
      const order = { type: "call", tool: name, call, arguments: given, partial: Boolean(onUpdate) };
      const { result } = await tellHome(home, order, { signal, onPartial: onUpdate });
      if (result.isError) throw new Error(result.content.map((part) => part.text).join("\n"));
      return result;
    },
  };
}

export default function retinue(pi) {
  let run; // what this session was configured for

  pi.on("session_start", (_event, context) => useOwnKey(pi, context));

  pi.registerTool(finalize);

  pi.registerCommand("retinue_configure", {
    description: "Used by Retinue to make this process ready for one run",
    handler: async (given, context) => {
      const { home, ...rest } = JSON.parse(given);
      run = rest;
      await useOwnKey(pi, context);
      if (home) {
        const { tools } = await tellHome(home, { type: "tools" }).catch(() => ({ tools: [] })); // told as missing
        for (const tool of tools) pi.registerTool(delegation(home, tool));
      }
      const known = new Set(pi.getAllTools().map((tool) => tool.name));
      pi.setActiveTools(run.tools);
      const missing = run.tools.filter((name) => !known.has(name));
      context.ui.notify(`retinue ${JSON.stringify({ missing })}`);
    },
  });

  pi.on("before_agent_start", (event) => {
    if (run?.system) event.systemPromptOptions.customPrompt = run.system;
    if (run?.append) event.systemPromptOptions.appendSystemPrompt = run.append;
    // The appended prompt has the skills that the agent names: pi does not list them again.
    const listed = event.systemPromptOptions.skills;
    if (run && listed) event.systemPromptOptions.skills = listed.filter(({ name }) => !run.skills.includes(name));
  });

  // `terminate` ends the agent only if every call of the message asks for it. Beside other calls, pi would ask the model
  // once more after all of them have returned.
  pi.on("turn_end", ({ toolResults = [] }, context) => {
    const isFinalized = toolResults.some((result) => result.toolName === FINALIZE && !result.isError);
    if (isFinalized && toolResults.length > 1 && !context.hasPendingMessages()) context.abort();
  });

  // The last gate: whatever activates a tool later, only granted ones are executed.
  pi.on("tool_call", (event) => {
    if (run && !run.tools.includes(event.toolName)) return { block: true, reason: `Tool ${event.toolName} not found` };
    if (event.toolName.toLowerCase() === "lsp" && !isAllowedLspAction(event.input?.action))
      return { block: true, reason: lspRefusal(event.input?.action) };
  });
}
