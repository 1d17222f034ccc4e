"""Render a run as one HTML file without scripts or external resources, which can be mailed and opened anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec

from retinue.model import events
from retinue.model.event_codec import EventRecord
from retinue.model.results import Finalization, describe_confinement
from retinue.model.runs import ToolArguments
from retinue.output.untrusted_text import strip_control_characters
from retinue.support.formatting import SHORT_ID_LENGTH, format_limit, format_time
from retinue.transcripts.markdown_html import escape, render_markdown
from retinue.transcripts.text import TranscriptRenderer

MAX_RESULT_CHARS = 100_000
"""Characters of one tool result: a file of megabytes cannot be mailed."""
MAX_GIST_CHARS = 100
"""Characters of a call beside its tool."""
STYLE = """
:root { color-scheme: light dark; --text: light-dark(#1d1d1b, #ecebe8); --muted: light-dark(#5c5c57, #a8a7a2);
  --line: light-dark(#e5e5e1, #2d2d32); --sunk: light-dark(#f3f3f0, #1d1d20); --accent: light-dark(#3b52c4, #a3b1ff);
  --bad: light-dark(#b42318, #ff9a8f); --good: light-dark(#1b7345, #71cf9f); }
body { margin: 0 auto; max-width: 860px; padding: 32px 20px 64px; background: light-dark(#fff, #131315);
  color: var(--text); font: 15px/1.6 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 24px; margin: 0 0 8px; line-height: 1.25; }
h2, h3, h4, h5, h6 { font-size: 1.05em; margin: 1.3em 0 .4em; }
p, ul, ol, table, blockquote, pre { margin: .7em 0; }
a { color: var(--accent); }
pre, code { font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; }
pre { padding: 10px 12px; border-radius: 6px; background: var(--sunk); white-space: pre-wrap; max-height: 32em;
  overflow: auto; }
code { padding: 1px 4px; border-radius: 4px; background: var(--sunk); }
pre code { padding: 0; }
table { border-collapse: collapse; } th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top; }
blockquote, .task { margin-left: 0; padding-left: 14px; border-left: 3px solid var(--line); }
blockquote, .facts, .note, summary, .quiet { color: var(--muted); }
.facts span { margin-right: 18px; }
summary { cursor: pointer; } summary b { color: var(--text); font-weight: 500; }
details { margin: .3em 0; }
.failed, .failed summary, .failed b { color: var(--bad); } .completed b { color: var(--good); }
.end { margin-top: 1.6em; padding-top: .8em; border-top: 1px solid var(--line); }
"""
HEAD = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    "<meta http-equiv=\"content-security-policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
)


class HtmlTranscript(TranscriptRenderer):
    """Render the runs of a session as an HTML document; its end tags are optional in HTML and left out."""

    def __init__(self) -> None:
        self._runs = 0
        self._last_text = ""

    def run_queued(self, event: events.RunQueued, record: EventRecord) -> Iterable[str]:
        self._runs += 1
        if self._runs == 1:
            yield f"{HEAD}<title>{escape(event.name)} · Retinue</title>\n<style>{STYLE}</style></head>\n<body>"
        facts = [event.agent, event.engine, event.cwd, format_time(record.time), f"run {record.origin.run[:8]}"]
        yield f"<h1>{escape(event.name)}</h1>"
        yield f'<p class="facts">{"".join(f"<span>{escape(fact)}</span>" for fact in facts if fact)}</p>'
        yield f'<div class="task">{render_markdown(event.task)}</div>'

    def run_ended(self, event: events.RunEnded) -> Iterator[str]:
        if event.text not in {"", self._last_text}:
            yield render_markdown(event.text)
        usage, model = event.usage, event.actual.model
        facts = [
            f"{event.elapsed:.1f} s",
            f"{usage.tokens:,} tokens" if usage.tokens else "",
            f"${usage.cost:.4g}" if usage.cost is not None else "",
            model or "",
        ]
        state, kind = (event.failure.message, "failed") if event.failure else ("Completed", "completed")
        shown = " · ".join(escape(fact) for fact in facts if fact)
        yield f'<p class="end {kind}"><b>{escape(state)}</b> <span class="quiet">{shown}</span></p>'
        yield from (f'<p class="note">{escape(line)}</p>' for line in describe_confinement(event.actual))

    def text(self, text: str) -> str:
        self._last_text = text
        return f'<section class="text">{render_markdown(text)}</section>'

    def thinking(self, text: str) -> str:
        return f'<details><summary>Thought</summary><div class="quiet">{render_markdown(text)}</div></details>'

    def steering(self, text: str) -> str:
        return f"<blockquote><b>Message:</b> {render_markdown(text)}</blockquote>"

    def tool_call(self, name: str, args: ToolArguments) -> str:
        encoded = msgspec.json.format(msgspec.json.encode(args), indent=2).decode()
        gist = next((value for value in args.values() if isinstance(value, str)), "")[:MAX_GIST_CHARS]
        return _fold(f"<b>{escape(name)}</b> {escape(gist)}", encoded)

    def tool_result(self, name: str, text: str, is_error: bool) -> str:
        cut = len(text) - MAX_RESULT_CHARS
        shown = f"{text[:MAX_RESULT_CHARS]}\n… {cut:,} characters more" if cut > 0 else text
        lines = text.count("\n") + 1
        title = f"{'Failed' if is_error else 'Result'} of <b>{escape(name)}</b>, {lines:,} line{'s' * (lines != 1)}"
        return _fold(title, shown, "failed" if is_error else "")

    def message_ended(self, error: str | None) -> str | None:
        return None if error is None else f'<p class="failed"><b>Provider:</b> {escape(error)}</p>'

    def finalization(self, finalization: Finalization) -> str:
        answer = finalization.result if finalization.status == "SUCCESS" else finalization.error
        return f'<p class="note">Finalized: {escape(finalization.status)}</p>{render_markdown(str(answer or ""))}'

    def notice(self, event: events.ModelChanged | events.Notice | events.DeadlineExtended) -> str:
        match event:
            case events.ModelChanged(_, after, reason):
                text = f"Model: {after} ({reason})"
            case events.DeadlineExtended(seconds):
                text = f"Timeout extended by {format_limit(seconds)}"
            case events.Notice(_, message):
                text = message
        return f'<p class="note">{escape(text)}</p>'


def _fold(title: str, text: str, kind: str = "") -> str:
    return f'<details class="{kind}"><summary>{title}</summary><pre>{escape(text)}</pre></details>'


MAX_AGENT_CHARS = 40


def make_file_name(agent: str, run: str, suffix: str) -> str:
    """Return the name of a transcript file."""
    return f"{re.sub(r'[^A-Za-z0-9._-]', '-', agent)[:MAX_AGENT_CHARS]}-{run[:SHORT_ID_LENGTH]}.{suffix}"


def encode_with(transcript: TranscriptRenderer) -> Callable[[EventRecord], Iterator[bytes]]:
    """Return a function that renders an event and encodes its entries, one line each."""
    return lambda record: (
        f"{strip_control_characters(entry)}\n".encode("utf-8", "backslashreplace")
        for entry in transcript.render(record)
    )
