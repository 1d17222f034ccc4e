// Retinue inside pi: registers the tools of a toolset, hands calls to Retinue, draws what its agents do.
//
// Wiring, no logic: which tools there are, what they answer and what is drawn is decided in Python. Plain JavaScript:
// pi loads it as it stands. `retinue install pi` writes the file that loads it, with the command and the toolset.

import { openBridge } from "./bridge.js";
import { drawCall, drawResult } from "./drawing.js";
import { createLog } from "./log.js";
import { TOOLSETS } from "./toolsets.js";

export default function retinue(pi, settings = {}) {
  // An agent of Retinue's gets its tools from Retinue itself: what it may delegate is not for this file to say.
  if (process.env.PI_SUBAGENT_CHILD === "1") return;

  const command = settings.command ?? ["retinue"];
  const toolset = process.env.RETINUE_SURFACE || settings.surface || "fanout";
  const log = createLog(pi);
  const registered = new Map(); // the definitions of our tools as pi has them, by name
  const withheld = new Set(); // tools that may not be used here
  const failed = new Set(); // calls whose result is an error
  let bridge; // the one Retinue process
  let ready; // settles when Retinue has said which tools may be used
  let policy; // what the model is told of when to delegate, where the user wants that

  function connected(context) {
    if (!bridge?.isOpen) {
      const root = context.sessionManager.getSessionId();
      const given = ["--toolset", toolset, "--root", root, ...(settings.arguments ?? [])];
      bridge = openBridge([...command, "bridge", ...given], context.cwd);
    }
    return bridge;
  }

  async function ask(context) {
    const answer = await connected(context).ask({ type: "tools", cwd: context.cwd });
    register(answer.tools);
    offer(new Set(answer.tools.map(({ name }) => name)));
    policy = answer.policy;
  }

  function register(tools) {
    for (const tool of tools) {
      const definition = JSON.stringify(tool);
      if (registered.get(tool.name) === definition) continue;
      registered.set(tool.name, definition);
      pi.registerTool(defined(tool));
    }
  }

  // Leaves to the model the tools that may be used; those that the user has switched off stay so.
  function offer(names) {
    const active = pi.getActiveTools();
    const taken = active.filter((name) => registered.has(name) && !names.has(name));
    const given = [...withheld].filter((name) => names.has(name));
    if (taken.length + given.length === 0) return;
    for (const name of taken) withheld.add(name);
    for (const name of given) withheld.delete(name);
    pi.setActiveTools([...active.filter((name) => !taken.includes(name)), ...given]);
  }

  function defined({ name, description, inputSchema }) {
    return {
      name,
      label: name,
      description,
      parameters: inputSchema,
      execute: (id, params, signal, onUpdate, context) => execute(name, id, params, signal, onUpdate, context),
      renderCall: (args, theme, context) =>
        drawCall(name, args, theme, log.lost(context.toolCallId, context.invalidate)),
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
    const retinue = connected(context);
    for (const runs of log.named(params)) retinue.restore(runs);
    try {
      const { result, view } = await retinue.ask(call, {
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

  // At load, so that pi draws what is in the session already: only their use waits for Retinue.
  register(Object.hasOwn(TOOLSETS, toolset) ? TOOLSETS[toolset] : []);

  pi.on("session_start", (event, context) => {
    if (event.reason !== "new") log.recall(context.sessionManager.getEntries(), storeWarning(context));
    // Not waited for: pi starts as quickly as without it, and is ready long before anyone has typed.
    ready = ask(context);
    ready.catch(() => {});
  });

  pi.on("before_agent_start", async (event, context) => {
    try {
      await (ready ??= ask(context));
      if (policy) return { systemPrompt: `${event.systemPrompt}\n\n${policy}` };
    } catch (error) {
      ready = undefined; // tried again with the next prompt
      offer(new Set());
      say(context, error.message, "error");
    }
  });

  // Without it pi gives the model `No result provided` for a call that was at work when pi was killed.
  pi.on("context", ({ messages }) => ({ messages: log.complete(messages) }));

  // pi 0.87 takes no error from a result, only from a throw, which would lose its details.
  pi.on("tool_result", (event) => (failed.delete(event.toolCallId) ? { isError: true } : undefined));

  pi.on("session_shutdown", async () => {
    ready = undefined;
    await bridge?.end();
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
    say(context, message, "warning");
  } catch {
    // pi has left the conversation: nobody to tell
  }
}

function say(context, message, kind) {
  if (context.hasUI) context.ui.notify(message, kind);
  else process.stderr.write(`${message}\n`);
}
