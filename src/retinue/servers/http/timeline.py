"""The timeline of a conversation: when each of its runs waited for a model and for tools."""

from __future__ import annotations

from msgspec import structs

from retinue.client import Retinue
from retinue.model.errors import RefusedError
from retinue.model.event_codec import EventRecord
from retinue.model.events import AttemptStarted, MessageEnded, RunEnded, RunStarted, ToolCalled, ToolReturned
from retinue.model.tool_names import SPAWN_TOOL
from retinue.output.untrusted_text import to_one_line
from retinue.servers.http.queries import RunQueries
from retinue.servers.http.schemas import RunSpans, RunTimeline, Span, SpanKind
from retinue.tui.event_lines import format_call

MAX_RUNS = 200
"""Runs whose records are read for one timeline."""
MAX_SPANS = 1_000
"""Spans of one run."""
MAX_LABEL_CHARS = 120
SHORTEST_SPAN = 0.001
"""Seconds below which a pause of the model between two events is none of its work."""


class TimelineQueries:
    """Reads the records of the runs of one conversation."""

    def __init__(self, retinue: Retinue, queries: RunQueries) -> None:
        self._retinue = retinue
        self._queries = queries
        self._ended: dict[str, RunSpans] = {}
        """Spans of ended runs, which do not change."""

    async def load_timeline(self, name: str) -> RunTimeline:
        """Return the spans of all runs under the root conversation of a run."""
        tree = await self._queries.load_tree(name)
        found = []
        for row in tree.runs[:MAX_RUNS]:
            spans = self._ended.get(row.run) or await self._read_spans(row.session, row.run)
            if row.ended is not None:
                self._cache_spans(spans)
            found.append(spans)
        return RunTimeline(root=tree.root, runs=tuple(found))

    def _cache_spans(self, spans: RunSpans) -> None:
        self._ended[spans.run] = spans
        if len(self._ended) > MAX_RUNS:
            del self._ended[next(iter(self._ended))]

    async def _read_spans(self, session: str, run: str) -> RunSpans:
        builder = SpanBuilder()
        try:
            async for record in self._retinue.history(session, run=run):
                builder.add_event(record)
        except RefusedError:
            pass  # a record that cannot be read has no spans; its row has the failure
        return RunSpans(run=run, spans=builder.list_spans())


class SpanBuilder:
    """Builds the spans of one run, event by event: a model works from a result, or the start, to its next call."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._open: dict[str, Span] = {}
        self._thinking_since: float | None = None
        self._last_model: int | None = None

    def add_event(self, record: EventRecord) -> None:
        time = record.time
        match record.event:
            case RunStarted() | AttemptStarted():
                self._thinking_since = time
            case ToolCalled(call=call, name=name, args=args):
                self._end_model(time)
                label = to_one_line(format_call(name, args), MAX_LABEL_CHARS)
                kind: SpanKind = (
                    "child" if name.endswith(SPAWN_TOOL) else "tool"
                )  # also `mcp__retinue__spawn_subagent`
                self._open[call] = Span(kind=kind, name=name, label=label, started=time)
            case ToolReturned(call=call, is_error=is_error):
                if span := self._open.pop(call, None):
                    self._add(structs.replace(span, ended=time, failed=is_error))
                if not self._open:
                    self._thinking_since = time
            case MessageEnded():
                self._end_message(record.event, time)
            case RunEnded():
                self._end_model(time)
                for span in self._open.values():
                    self._add(structs.replace(span, ended=time))
                self._open.clear()
            case _:
                pass

    def list_spans(self) -> tuple[Span, ...]:
        """Return the spans in the order of their start; those of a live run that are open have no end."""
        found = [*self._spans, *self._open.values()]
        if self._thinking_since is not None:
            found.append(Span(kind="model", name="model", started=self._thinking_since))
        return tuple(sorted(found, key=lambda span: span.started))

    def _end_message(self, event: MessageEnded, time: float) -> None:
        self._end_model(time)
        self._thinking_since = None if self._open else time
        if self._last_model is not None:
            last, usage = self._spans[self._last_model], event.usage
            self._spans[self._last_model] = structs.replace(
                last,
                name=event.model or last.name,
                tokens=usage.tokens,
                cost=usage.cost,
                failed=event.stop_reason == "error",
            )
            self._last_model = None

    def _end_model(self, time: float) -> None:
        started, self._thinking_since = self._thinking_since, None
        if started is not None and time - started > SHORTEST_SPAN and len(self._spans) < MAX_SPANS:
            self._spans.append(Span(kind="model", name="model", started=started, ended=time))
            self._last_model = len(self._spans) - 1

    def _add(self, span: Span) -> None:
        if len(self._spans) < MAX_SPANS:
            self._spans.append(span)
