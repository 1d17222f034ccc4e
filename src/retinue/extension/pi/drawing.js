// Draws calls and results with pi's own theme. What agents do comes drawn from Retinue, as lines of styled pieces.

import { truncateToWidth, wrapTextWithAnsi } from "@earendil-works/pi-tui";

const COLORS = { muted: "muted", running: "accent", good: "success", error: "error", warning: "warning" };

// `delegate_to_subagents 3 sub-agents (default profile: researcher) profiles: [writer, researcher]`
export function drawCall(name, args, theme) {
  const title = theme.fg("toolTitle", theme.bold(name));
  return component(() => [{ text: `${title} ${theme.fg("muted", plain(about(args ?? {})))}`, wraps: false }]);
}

export function drawResult(result, { expanded }, theme, context) {
  const view = result.details?.view;
  return component(() => (view ? windows(view, expanded, theme) : texts(result, expanded, theme, context)));
}

function about({ tasks, profile, mode, agent, task, sessionId }) {
  if (Array.isArray(tasks)) {
    const profiles = tasks.map((one) => one?.profile ?? one?.agent).filter((name) => typeof name === "string");
    return [
      `${tasks.length} sub-agent${tasks.length === 1 ? "" : "s"}`,
      mode && `(${mode})`,
      profile && `(default profile: ${profile})`,
      profiles.length > 0 && `profiles: [${profiles.join(", ")}]`,
    ]
      .filter(Boolean)
      .join(" ");
  }
  return [agent, task, sessionId].filter((part) => typeof part === "string").join(" ");
}

function windows({ lines, expanded: all }, expanded, theme) {
  return (expanded ? all : lines).map((spans) => ({
    text: spans.map(([text, style]) => styled(text, style, theme)).join(""),
    wraps: expanded || spans.some(([, style]) => style === "error"),
  }));
}

function texts(result, expanded, theme, { isError } = {}) {
  const text = result.content.map((block) => block.text ?? "").join("\n");
  const lines = text.split("\n").map((line) => ({
    text: isError ? theme.fg("error", plain(line)) : theme.fg("toolOutput", plain(line)),
    wraps: true,
  }));
  const most = result.details?.maxLines ?? lines.length;
  if (expanded || lines.length <= most) return lines;
  const more = theme.fg("muted", `... (${lines.length - most} more lines)`);
  return [...lines.slice(0, most), { text: more, wraps: false }];
}

function styled(text, style, theme) {
  if (style === "name") return theme.bold(text);
  return COLORS[style] ? theme.fg(COLORS[style], text) : text;
}

// What a model wrote, on one line and without what a terminal would act on.
export function plain(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, " ");
}

function component(lines) {
  let columns;
  let drawn;
  return {
    render(width) {
      if (width !== columns) {
        drawn = lines().flatMap(({ text, wraps }) =>
          wraps ? wrapTextWithAnsi(text, width) : [truncateToWidth(text, width)],
        );
        columns = width;
      }
      return drawn;
    },
    invalidate() {
      columns = undefined; // the theme may have changed
    },
  };
}
