// Retinue inside pi: registers the tools of a toolset, sends calls to Retinue, draws the runs of its agents.
//
// Wiring, no logic: which tools there are, what they answer and what is drawn is decided in Python. Plain JavaScript:
// pi loads it without a build step. `retinue install pi` writes the file that loads it, with the command and the toolset.

import { openBridge } from "./bridge.js";
import { drawCall, drawResult } from "./drawing.js";
import { createLog } from "./log.js";
import { TOOLSETS } from "./toolsets.js";

export default function retinue(pi, settings = {}) {
  // A pi that Retinue started gets its delegation tools from its parent process instead.
  if (process.env.PI_SUBAGENT_CHILD === "1") return;

  const command = settings.command ?? ["retinue"];
  const toolset = process.env.RETINUE_SURFACE || settings.surface || "fanout";
  const log = createLog(pi);
  const registered = new Map(); // definitions of the registered tools, by name
  const disabled = new Set(); // tools that may not be used here
  const failed = new Set(); // ids of calls whose result is an error
  let bridge; // the one Retinue process
  let ready; // settles when Retinue has listed the tools that may be used
  let policy; // the delegation hint for the model, if the user enabled it

  function connect(context) {
    if (!bridge?.isOpen) {
      const root = context.sessionManager.getSessionId();
      const args = ["--toolset", toolset, "--root", root, ...(settings.arguments ?? [])];
      bridge = openBridge([...command, "bridge", ...args], context.cwd);
    }
    return bridge;
  }

  async function loadTools(context) {
    const answer = await connect(context).request({ type: "tools", cwd: context.cwd });
    register(answer.tools);
    setAvailable(new Set(answer.tools.map(({ name }) => name)));
    policy = answer.policy;
  }

  function register(tools) {
    for (const tool of tools) {
      const definition = JSON.stringify(tool);
      if (registered.get(tool.name) === definition) continue;
      registered.set(tool.name, definition);
      pi.registerTool(defineTool(tool));
    }
  }

  // Activates the tools that may be used and deactivates the others; tools that the user turned off stay off.
  function setAvailable(names) {
    const active = pi.getActiveTools();
    const removed = active.filter((name) => registered.has(name) && !names.has(name));
    const added = [...disabled].filter((name) => names.has(name));
    if (removed.length + added.length === 0) return;
    for (const name of removed) disabled.add(name);
    for (const name of added) disabled.delete(name);
    pi.setActiveTools([...active.filter((name) => !removed.includes(name)), ...added]);
  }

  function defineTool({ name, description, inputSchema }) {
    return {
      name,
      label: name,
      description,
      parameters: inputSchema,
      execute: (id, params, signal, onUpdate, context) => execute(name, id, params, signal, onUpdate, context),
      renderCall: (args, theme, context) =>
        drawCall(name, args, theme, log.interruptedLines(context.toolCallId, context.invalidate)),
      renderResult: (result, options, theme, context) => {
        const view = log.view(context.toolCallId, context.invalidate) ?? result.details?.view;
        return drawResult({ ...result, details: { ...result.details, view } }, options, theme, context);
      },
    };
  }

  async function execute(tool, id, params, signal, onUpdate, context) {
    const call = {
      type: "call",
      tool,
      arguments: params,
      cwd: context.cwd,
      toolCall: id,
      hostTools: pi.getActiveTools(),
      partials: Boolean(onUpdate),
    };
    const onError = storeWarning(context);
    const retinue = connect(context);
    for (const runs of log.findNamedSessions(params)) retinue.restore(runs);
    try {
      const { result, view } = await retinue.request(call, {
        signal,
        onPartial: (message) => {
          log.setView(id, message.view);
          onUpdate(message.result);
        },
        onSession: (session) => log.write(id, session, onError),
      });
      log.setView(id, view);
      log.storeView(id, onError);
      if (result.isError) failed.add(id);
      return result;
    } catch (error) {
      log.setView(id);
      throw new Error([error.message, ...log.interrupt(id, onError)].join("\n"));
    }
  }

  // At load, so that pi can draw earlier calls: only their use waits for Retinue.
  register(Object.hasOwn(TOOLSETS, toolset) ? TOOLSETS[toolset] : []);

  pi.on("session_start", (event, context) => {
    if (event.reason !== "new") log.load(context.sessionManager.getEntries(), storeWarning(context));
    // Not awaited: pi starts as quickly as without it, and the tools are there before the user has typed.
    ready = loadTools(context);
    ready.catch(() => {});
  });

  pi.on("before_agent_start", async (event, context) => {
    try {
      await (ready ??= loadTools(context));
      if (policy) return { systemPrompt: `${event.systemPrompt}\n\n${policy}` };
    } catch (error) {
      ready = undefined; // tried again with the next prompt
      setAvailable(new Set());
      notify(context, error.message, "error");
    }
  });

  // Without it pi gives the model `No result provided` for a call that was in progress when pi was killed.
  pi.on("context", ({ messages }) => ({ messages: log.completeMessages(messages) }));

  // pi 0.87 takes errors only from exceptions, which would lose the details of the result.
  pi.on("tool_result", (event) => (failed.delete(event.toolCallId) ? { isError: true } : undefined));

  pi.on("session_shutdown", async () => {
    ready = undefined;
    await bridge?.close();
    log.clear();
  });

  pi.registerCommand("subagents", {
    description: "List the sub-agents of this conversation",
    handler: async (_args, context) => {
      context.ui.notify(log.list().join("\n") || "No sub-agents in this conversation yet.", "info");
    },
  });
}

function storeWarning(context) {
  return (error) => warn(context, `Agents could not be stored in pi's session: ${error.message}`);
}

function warn(context, message) {
  try {
    notify(context, message, "warning");
  } catch {
    // pi has left the conversation
  }
}

function notify(context, message, kind) {
  if (context.hasUI) context.ui.notify(message, kind);
  else process.stderr.write(`${message}\n`);
}
