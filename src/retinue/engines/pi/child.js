// Loaded into every pi that Retinue starts, and nowhere else.
//
// `subagent_finalize` exists only here. `/retinue_configure {…}` makes a warm process ready for one run: its tools and
// its prompts. pi loads extensions anew with every session, so nothing of one run is left for the next.

const FINALIZE = "subagent_finalize";

const LSP_THAT_CHANGES = ["rename", "codeAction", "restart"]; // off in children, whatever lsp's own settings say

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

export default function retinue(pi) {
  let run; // what this session was configured for

  pi.on("session_start", (_event, context) => useOwnKey(pi, context));

  pi.registerTool(finalize);

  pi.registerCommand("retinue_configure", {
    description: "Used by Retinue to make this process ready for one run",
    handler: async (given, context) => {
      run = JSON.parse(given);
      await useOwnKey(pi, context);
      const known = new Set(pi.getAllTools().map((tool) => tool.name));
      pi.setActiveTools(run.tools);
      const missing = run.tools.filter((name) => !known.has(name));
      context.ui.notify(`retinue ${JSON.stringify({ missing })}`);
    },
  });

  pi.on("before_agent_start", (event) => {
    if (run?.system) event.systemPromptOptions.customPrompt = run.system;
    if (run?.append) event.systemPromptOptions.appendSystemPrompt = run.append;
  });

  // The last gate: whatever activates a tool later, only granted ones are executed.
  pi.on("tool_call", (event) => {
    if (run && !run.tools.includes(event.toolName)) return { block: true, reason: `Tool ${event.toolName} not found` };
    if (event.toolName === "lsp" && LSP_THAT_CHANGES.includes(event.input?.action))
      return { block: true, reason: `The lsp action ${event.input.action} is off in subagents` };
  });
}
