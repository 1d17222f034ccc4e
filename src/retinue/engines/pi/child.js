// Loaded into every pi that Retinue starts, and nowhere else.
//
// `subagent_finalize` exists only here. `/retinue_configure {…}` prepares a warm process for one run: its tools, its
// prompts, and the socket of its parent process for delegation. pi reloads extensions with every session, so nothing of
// one run is left for the next.

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

let findings;
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
  // pi checks the arguments by the schema of `result`, which holds for successes only: the partial findings of an error
  // pass it by. Those of the last prepared call are kept, as the last finalize call of a message is the one that counts.
  prepareArguments(params) {
    findings = undefined;
    if (params?.status !== "ERROR" || params.result === undefined) return params;
    const { result, ...rest } = params;
    findings = result;
    return rest;
  },
  async execute(_id, params) {
    if (params.status === "ERROR" && findings !== undefined) params = { ...params, result: findings };
    const required = params.status === "SUCCESS" ? "result" : "error";
    const value = params[required]; // a result of an output schema may be any JSON value
    if (typeof value === "string" ? !value.trim() : value == null) throw new Error(`${params.status} requires a non-empty ${required}`);
    return { content: [{ type: "text", text: "finalized" }], details: params, terminate: true };
  },
};

// An agent's own key for its provider, kept across sessions because no tool may see it in the environment.
const KEY = Symbol.for("retinue.key");
globalThis[KEY] ??= process.env.PI_API_KEY;
delete process.env.PI_API_KEY;

async function useOwnKey(pi, { model, modelRegistry }) {
  const key = globalThis[KEY];
  if (!key || !model) return;
  // As `--api-key` does: it wins over a login. In older versions it is used only without a login.
  if (modelRegistry.runtime?.setRuntimeApiKey) await modelRegistry.runtime.setRuntimeApiKey(model.provider, key);
  else pi.registerProvider(model.provider, { apiKey: key });
}

// Sends one command to the parent process on a connection of its own and resolves with the reply; retinue/ipc/messages.py
// describes the protocol. The token is known only here: it is not in the arguments, the environment, or any file.
function sendToParent({ socket: path, token }, command, { signal, onPartial } = {}) {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    const text = new StringDecoder("utf8");
    const stop = () => end(reject, new Error("Aborted"));
    let parts = []; // pieces of an incomplete line
    function end(settle, value) {
      signal?.removeEventListener("abort", stop);
      socket.destroy(); // cancels the command if it is not done
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
      for (const reply of lines.map((line) => JSON.parse(line))) {
        if (reply.type === "declined") end(reject, new Error(reply.message));
        else if (reply.type === "partial") onPartial?.(reply.result);
        else if (reply.type !== "welcome") end(resolve, reply);
      }
    });
    for (const message of [{ type: "hello", v: 1, token }, command]) socket.write(`${JSON.stringify(message)}\n`);
  });
}

function delegationTool(parent, { name, description, inputSchema }) {
  return {
    name,
    label: name,
    description,
    parameters: inputSchema,
    async execute(call, params, signal, onUpdate) {
      const command = { type: "call", tool: name, call, arguments: params, partial: Boolean(onUpdate) };
      const { result } = await sendToParent(parent, command, { signal, onPartial: onUpdate });
      if (result.isError) throw new Error(result.content.map((part) => part.text).join("\n"));
      return result;
    },
  };
}

// What the model reads after the result of a call, by call.
const contexts = new Map();

// Asks the parent process whether a call may be executed, and with which arguments. Without an answer it may not.
async function askGate(gate, { toolName: tool, toolCallId: call, input }, signal) {
  let decision;
  try {
    decision = await sendToParent(gate, { type: "check", tool, call, arguments: input }, { signal });
  } catch (error) {
    return { block: true, reason: `The call could not be checked. ${error.message}` };
  }
  if (decision.denied !== undefined) return { block: true, reason: decision.denied };
  if (decision.arguments) {
    for (const name of Object.keys(input)) delete input[name];
    Object.assign(input, decision.arguments);
  }
  if (decision.context) contexts.set(call, decision.context);
}

// pi reads no answer before its `session_start` handlers have ended, so it would wait for one forever, or exit. Every
// question is answered at once, as `pi -p` answers it. This handler runs first: our extension is the first of the command.
function answerQuestions(ui) {
  const answer = (value) => async (question) => {
    ui.notify(`retinue ${JSON.stringify({ question })}`);
    return value;
  };
  Object.assign(ui, { select: answer(), confirm: answer(false), input: answer(), editor: answer() });
}

export default function retinue(pi) {
  let run; // the configuration of this session

  pi.on("session_start", (_event, context) => {
    answerQuestions(context.ui);
    return useOwnKey(pi, context);
  });

  pi.registerTool(finalize);

  pi.registerCommand("retinue_configure", {
    description: "Used by Retinue to make this process ready for one run",
    handler: async (text, context) => {
      const { home: parent, ...rest } = JSON.parse(text);
      run = rest;
      await useOwnKey(pi, context);
      if (run.finalize) pi.registerTool({ ...finalize, parameters: run.finalize });
      if (parent) {
        const { tools } = await sendToParent(parent, { type: "tools" }).catch(() => ({ tools: [] })); // reported as missing
        for (const tool of tools) pi.registerTool(delegationTool(parent, tool));
        // Of MCP servers the parent lists only granted tools. Their names are known once the servers have started.
        run.tools = [...run.tools, ...tools.map(({ name }) => name).filter((name) => name.startsWith("mcp__"))];
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
    // The appended prompt has the skills of the agent: pi must not list them again.
    const listed = event.systemPromptOptions.skills;
    if (run && listed) event.systemPromptOptions.skills = listed.filter(({ name }) => !run.skills.includes(name));
  });

  // `terminate` ends the agent only if every call of the message asks for it. Beside other calls, pi would ask the model
  // once more after all of them have returned.
  pi.on("turn_end", ({ toolResults = [] }, context) => {
    const isFinalized = toolResults.some((result) => result.toolName === FINALIZE && !result.isError);
    if (isFinalized && toolResults.length > 1 && !context.hasPendingMessages()) context.abort();
  });

  // A tool may be activated later by anything; only granted tools are executed.
  pi.on("tool_call", async (event, context) => {
    if (run && !run.tools.includes(event.toolName)) return { block: true, reason: `Tool ${event.toolName} not found` };
    if (event.toolName.toLowerCase() === "lsp" && !isAllowedLspAction(event.input?.action))
      return { block: true, reason: lspRefusal(event.input?.action) };
    if (run?.gate && !run.gate.free.includes(event.toolName)) return askGate(run.gate, event, context.signal);
  });

  pi.on("tool_result", ({ toolCallId, content }) => {
    const text = contexts.get(toolCallId);
    contexts.delete(toolCallId);
    if (text) return { content: [...content, { type: "text", text }] };
  });
}
