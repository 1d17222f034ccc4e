// Retinue inside pi: registers the tools of a surface, hands calls to Retinue, draws what its agents do.
//
// Wiring, no logic: which tools there are, what they answer and what is drawn is decided in Python. Plain JavaScript:
// pi loads it as it stands. `retinue install pi` writes the file that loads it, with the command and the surface.

import { openBridge } from "./bridge.js";
import { drawCall, drawResult } from "./drawing.js";

const ENTRY = "pi-subagents"; // as seed 003 names what it keeps in pi's own session
const INTERRUPTED = "Session was interrupted (main agent session ended unexpectedly)";
const ICONS = { completed: "✓", error: "✗" };

export default function retinue(pi, settings = {}) {
  // An agent of Retinue's gets its tools from Retinue itself: what it may delegate is not for this file to say.
  if (process.env.PI_SUBAGENT_CHILD === "1") return;

  const command = settings.command ?? ["retinue"];
  const surface = process.env.RETINUE_SURFACE || settings.surface || "fanout";
  const sessions = new Map(); // the agents of this conversation, by the id of their session
  const failed = new Set(); // calls whose result is an error
  let bridge; // the one Retinue process
  let ready; // settles when the tools are registered
  let policy; // what the model is told of when to delegate, where the user wants that

  function connected(context) {
    if (!bridge?.isOpen) {
      const root = context.sessionManager.getSessionId();
      const given = ["--surface", surface, "--root", root, ...(settings.arguments ?? [])];
      bridge = openBridge([...command, "bridge", ...given], context.cwd);
    }
    return bridge;
  }

  async function register(context) {
    const answer = await connected(context).ask({ type: "tools", cwd: context.cwd });
    for (const tool of answer.tools) pi.registerTool(registered(tool));
    policy = answer.policy;
  }

  function registered({ name, description, inputSchema }) {
    return {
      name,
      label: name,
      description,
      parameters: inputSchema,
      execute: (id, params, signal, onUpdate, context) => execute(name, id, params, signal, onUpdate, context),
      renderCall: (args, theme) => drawCall(name, args, theme),
      renderResult: drawResult,
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
    const answer = await connected(context).ask(call, {
      signal,
      onPartial: (message) => onUpdate(shown(message)),
      onEnded: (message) => remember(message.session, context),
    });
    if (answer.result.isError) failed.add(id);
    return shown(answer);
  }

  function remember(session, context) {
    sessions.set(session.sessionId, session);
    try {
      pi.appendEntry(ENTRY, session);
    } catch (error) {
      say(context, `What became of ${session.taskName} could not be kept in this session: ${error.message}`, "warning");
    }
  }

  pi.on("session_start", (event, context) => {
    if (event.reason !== "new") recall(sessions, context.sessionManager.getEntries());
    // Not waited for: pi starts as quickly as without it, and is ready long before anyone has typed.
    ready = register(context);
    ready.catch(() => {});
  });

  pi.on("before_agent_start", async (event, context) => {
    try {
      await (ready ??= register(context));
      if (policy) return { systemPrompt: `${event.systemPrompt}\n\n${policy}` };
    } catch (error) {
      ready = undefined; // tried again with the next prompt
      say(context, error.message, "error");
    }
  });

  // pi 0.87 takes no error from a result, only from a throw, which would lose its details.
  pi.on("tool_result", (event) => (failed.delete(event.toolCallId) ? { isError: true } : undefined));

  pi.on("session_shutdown", async () => {
    sessions.clear();
    ready = undefined;
    await bridge?.end();
  });

  pi.registerCommand("subagents", {
    description: "List the sub-agents of this conversation",
    handler: async (_args, context) => {
      const lines = [...sessions.values()].map(
        ({ status, taskName, errorMessage, sessionId }) =>
          `${ICONS[status]} ${taskName}: ${errorMessage ? `error — ${errorMessage}` : status} (session: ${sessionId})`,
      );
      context.ui.notify(lines.join("\n") || "No sub-agents in this conversation yet.", "info");
    },
  });
}

function shown({ result, view }) {
  return view ? { ...result, details: { ...result.details, view } } : result;
}

// What earlier processes left in pi's own session; whatever is not whole is passed over.
function recall(sessions, entries) {
  for (const { type, customType, data } of entries) {
    if (type !== "custom" || customType !== ENTRY || !data) continue;
    const { sessionId, taskName, prompt, status } = data;
    if (![sessionId, taskName, prompt].every((text) => typeof text === "string")) continue;
    if (status === "running") sessions.set(sessionId, { ...data, status: "error", errorMessage: INTERRUPTED });
    else if (status in ICONS) sessions.set(sessionId, data);
  }
}

function say(context, message, kind) {
  if (context.hasUI) context.ui.notify(message, kind);
  else process.stderr.write(`${message}\n`);
}
