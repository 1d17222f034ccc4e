// Draws calls and results with pi's own theme. Retinue sends the view of a call as lines of styled pieces.

import { truncateToWidth, wrapTextWithAnsi } from "@earendil-works/pi-tui";

const COLORS = new Map([
  ["muted", "muted"],
  ["running", "accent"],
  ["good", "success"],
  ["error", "error"],
  ["warning", "warning"],
]);

// `delegate_to_subagents 3 sub-agents (default profile: researcher) profiles: [writer, researcher]`
// and below it the lines of a call that has no result of its own.
export function drawCall(name, args, theme, lines = []) {
  const title = theme.fg("toolTitle", theme.bold(name));
  return component((width) => [
    truncateToWidth(`${title} ${theme.fg("muted", plain(summarizeArguments(args ?? {})))}`, width),
    ...lines.flatMap((line) => wrapTextWithAnsi(theme.fg("toolOutput", line), width)),
  ]);
}

export function drawResult(result, { expanded }, theme, context) {
  const view = result.details?.view;
  return component((width) => {
    try {
      if (view) return expanded ? drawExpanded(view, theme, width) : drawWindows(view, theme, width);
    } catch {
      // The view may come from pi's log, where it can be invalid: then the text is drawn.
    }
    return drawText(result, expanded, theme, width, context);
  });
}

function summarizeArguments({ tasks, profile, mode, agent, task, sessionId }) {
  if (!Array.isArray(tasks)) return [agent, task, sessionId].filter((part) => typeof part === "string").join(" ");
  return [
    `${tasks.length} sub-agent${tasks.length === 1 ? "" : "s"}`,
    mode && `(${mode})`,
    profile && `(default profile: ${profile})`,
    listNames("profiles", tasks.map((each) => each?.profile)),
    listNames("agents", tasks.map((each) => each?.agent)),
  ]
    .filter(Boolean)
    .join(" ");
}

function listNames(title, names) {
  const unique = new Set(names.filter((name) => typeof name === "string"));
  return unique.size > 0 && `${title}: [${[...unique].join(", ")}]`;
}

// Returns the newest rows of each run, at most `maxLines`: text is wrapped, tool calls are cut.
function drawWindows({ lines, bodies, maxLines }, theme, width) {
  const wrapLines = (from, to) => lines.slice(from, to).flatMap((line) => drawLine(line, theme, width, true));
  const rows = [];
  let next = 0;
  for (const { start, end, earlier } of bodies) {
    const header = drawLine(lines[start - 1], theme, width, false);
    let body = [];
    let first = end;
    while (first > start && body.length < maxLines) {
      first -= 1;
      const isToolCall = lines[first].some(([, style]) => style === "muted");
      body = [...drawLine(lines[first], theme, width, !isToolCall), ...body];
    }
    rows.push(...wrapLines(next, start - 1), ...header, ...drawOmitted(earlier + first - start), ...body.slice(-maxLines));
    next = end;
  }
  // Errors and the ids of sessions are never cut: a cut id would find no session.
  return [...rows, ...wrapLines(next)];

  function drawOmitted(count) {
    const hint = `  ... (${count} earlier line${count === 1 ? "" : "s"})`;
    return count > 0 ? [truncateToWidth(theme.fg("muted", hint), width)] : [];
  }
}

function drawExpanded({ expanded }, theme, width) {
  return expanded.flatMap((line) => drawLine(line, theme, width, true));
}

// Returns the rows of a line; wrapped rows keep its indent.
function drawLine(line, theme, width, wraps) {
  const indent = line.length > 1 && /^ +$/.test(line[0][0]) ? line[0][0] : "";
  const text = line
    .slice(indent ? 1 : 0)
    .map(([piece, style]) => applyStyle(plain(piece), style, theme))
    .join("");
  if (!wraps || indent.length >= width) return [truncateToWidth(`${indent}${text}`, width)];
  return wrapTextWithAnsi(text, width - indent.length).map((row) => `${indent}${row}`);
}

function drawText(result, expanded, theme, width, { isError } = {}) {
  const lines = result.content.map((block) => block.text ?? "").join("\n").split("\n");
  const color = isError ? "error" : "toolOutput";
  const maxLines = expanded ? lines.length : (result.details?.maxLines ?? lines.length);
  const rows = lines.slice(0, maxLines).flatMap((line) => wrapTextWithAnsi(theme.fg(color, plain(line)), width));
  if (lines.length <= maxLines) return rows;
  return [...rows, truncateToWidth(theme.fg("muted", `... (${lines.length - maxLines} more lines)`), width)];
}

function applyStyle(text, style, theme) {
  if (style === "name") return theme.bold(text);
  return COLORS.has(style) ? theme.fg(COLORS.get(style), text) : text;
}

// Returns text from a model on one line and without control characters.
export function plain(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, " ");
}

function component(draw) {
  let columns;
  let drawn;
  return {
    render(width) {
      if (width !== columns) {
        drawn = draw(width);
        columns = width;
      }
      return drawn;
    },
    invalidate() {
      columns = undefined; // the theme may have changed
    },
  };
}
