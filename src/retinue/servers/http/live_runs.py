"""Live runs: the state of each, folded from its events, its row in lists, and the text that is still streaming."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Container, Iterator

from msgspec import Struct, field

from retinue.model.event_codec import EventRecord, EventSource
from retinue.model.events import (
    EPHEMERAL_EVENTS,
    AttemptStarted,
    RunEnded,
    RunQueued,
    RunStarted,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolDelta,
    ToolReturned,
)
from retinue.output.untrusted_text import first_line, first_prose_sentence, to_one_line
from retinue.runtime.progress import SESSION_STATES, NoticeItem, RunState, RunView, TextItem, ToolCallItem
from retinue.servers.http.schemas import ApiValue, RunActions, RunOwner, RunRow, UsageTotals, copy_fields
from retinue.sessions.store import LeaseOwner, SessionSummary
from retinue.tui.event_lines import format_call

MAX_TASK_CHARS = 240
"""Characters of a task in a list."""
MAX_LINE_CHARS = 200
"""Characters of a preview and of the current activity."""

WAITING_TEXT, STARTING_TEXT, THINKING_TEXT = "waiting for a slot", "starting", "thinking"


class LiveRunState:
    """One run, as far as its events are known."""

    def __init__(
        self,
        first: EventRecord,
        *,
        number: int,
        address: str,
        steerable_engines: Container[str] = frozenset(),
        continues: SessionSummary | None = None,
        parent_session: str | None = None,
    ) -> None:
        """Start with the first known event of the run.

        `number` is its place in its session, from 1; `address` the control socket of the process that reported it,
        empty for this process. A run that continues a session takes the place of that session in the tree.
        """
        self._steerable_engines = steerable_engines
        self._continues = continues
        self._parent_session = parent_session
        self.origin: EventSource = first.origin
        self.number = number
        self.address = address
        self.owner: LeaseOwner | None = None
        """The owner of a run of another process, once its lease has been read."""
        self.seq = 0
        """Sequence number of the last durable event."""
        self.updated = first.time
        self.ended: RunEnded | None = None
        self._view = RunView.of(first)
        self._queued: RunQueued | None = None
        self.started: float | None = None
        self._ended: float | None = None

    @property
    def is_own(self) -> bool:
        """Whether this process executes the run."""
        return not self.address

    def add_event(self, record: EventRecord) -> None:
        event = record.event
        self._view = self._view.apply(record)
        self.updated = record.time
        if not isinstance(event, EPHEMERAL_EVENTS):
            self.seq = record.seq
        match event:
            case RunQueued():
                self._queued = event
            case RunStarted():
                self.started = record.time
            case RunEnded():
                self.ended, self._ended = event, record.time
            case _:
                pass

    def to_row(self) -> RunRow:
        view, origin, queued, ended = self._view, self.origin, self._queued, self.ended
        usage, session = ended.usage if ended else view.usage, self._continues
        return RunRow(
            run=origin.run,
            session=origin.session,
            root=origin.root,
            parent_run=session.parent_run if session else origin.parent_run,
            parent_session=self._parent_session,
            parent_tool_use_id=(session.parent_call or None) if session else origin.parent_tool_use_id,
            depth=session.depth if session else origin.depth,
            name=view.name,
            agent=view.agent,
            engine=(ended and ended.actual.engine) or view.engine,
            model=(ended and ended.actual.model) or view.model,
            provider=view.provider,
            surface=queued.surface if queued else "",
            state=SESSION_STATES[view.phase],
            task=view.task[:MAX_TASK_CHARS],
            doing=describe_activity(view),
            created=view.queued,
            started=self.started,
            ended=self._ended,
            elapsed=view.elapsed,
            timeout=view.timeout,
            tools=view.tools,
            turns=usage.turns or view.turns,
            usage=copy_fields(usage, UsageTotals),
            failure=view.failure,
            preview=self._preview_text(),
            cwd=queued.cwd if queued else "",
            session_runs=self.number,
            owner=None if ended else self._run_owner(),
            can=self._run_actions(),
            match=None,
        )

    def _run_actions(self) -> RunActions:
        if self.ended:
            return RunActions(resume=True)
        is_reachable = self.is_own or bool(self._control_address)
        is_running = is_reachable and self._view.phase is RunState.RUNNING
        return RunActions(
            cancel=is_reachable, steer=is_running and self._view.engine in self._steerable_engines, extend=is_running
        )

    @property
    def _control_address(self) -> str | None:
        return self.address or (self.owner.control if self.owner else None)

    def _run_owner(self) -> RunOwner | None:
        if self.is_own:
            return RunOwner(pid=os.getpid(), host=os.uname().nodename if hasattr(os, "uname") else "", here=True)
        return RunOwner(pid=self.owner.pid, host=self.owner.host, here=False) if self.owner else None

    def _preview_text(self) -> str:
        if self.ended:
            return preview_line(self.ended.failure.message if self.ended.failure else self.ended.text)
        return preview_line(
            next((item.text for item in reversed(self._view.items) if isinstance(item, TextItem)), "")
        )


class EndedRun(Struct, frozen=True):
    """The rest that is kept of a run that has ended."""

    seq: int
    row: RunRow


def preview_line(text: str) -> str:
    """Return the first sentence of a text, sanitized and shortened."""
    return to_one_line(first_prose_sentence(text[: 8 * MAX_LINE_CHARS]), MAX_LINE_CHARS)


def describe_activity(view: RunView) -> str:
    """Return what the run is doing, in one line; empty once it has ended."""
    if view.phase is not RunState.RUNNING:
        return WAITING_TEXT if view.phase is RunState.QUEUED else ""
    if view.partial.strip():
        return to_one_line(view.partial.strip().rsplit("\n", 1)[-1], MAX_LINE_CHARS)
    for item in reversed(view.items):
        if isinstance(item, ToolCallItem) and item.result is None:
            return to_one_line(format_call(item.name, item.args).replace(" → ", " ", 1), MAX_LINE_CHARS)
        if not isinstance(item, ToolCallItem):
            break
    last = view.items[-1] if view.items else None
    match last:
        case TextItem(text=text) if text.strip():
            return to_one_line(text.strip().rsplit("\n", 1)[-1], MAX_LINE_CHARS)
        case NoticeItem(message=message):
            return to_one_line(first_line(message), MAX_LINE_CHARS)
        case None:
            return STARTING_TEXT
        case _:
            return THINKING_TEXT


MAX_BLOCK_CHARS = 256 * 2**10
"""Characters of one block that are kept, the last."""
MAX_TOTAL_CHARS = 32 * 2**20
"""Characters of all blocks together; beyond them the oldest blocks lose their text."""

DeltaEvent = TextDelta | ThinkingDelta | ToolDelta
BlockKey = tuple[str, str]
"""A run and its tool call, or the kind of delta: a run never streams two blocks of one kind at once."""


class BlockUpdate(ApiValue, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a block, or the whole block so far."""

    run: str
    type: str
    text: str
    at: int
    """Characters of the block before this piece, as far as they were seen."""
    call: str | None = None
    """Id of the tool call whose output this is."""


class _StreamingBlock(Struct):
    run: str
    root: str
    kind: str
    call: str | None
    sent: int = 0
    """Characters received in all."""
    size: int = 0
    """Characters that are kept."""
    pieces: deque[tuple[int, str]] = field(default_factory=deque)
    """Sequence number and text of each piece."""

    def snapshot(self) -> BlockUpdate:
        text = "".join(text for _, text in self.pieces)
        return BlockUpdate(run=self.run, type=self.kind, text=text, at=self.sent - self.size, call=self.call)


class StreamingBlocks:
    """The open blocks of all runs."""

    def __init__(self, *, max_block: int = MAX_BLOCK_CHARS, max_total: int = MAX_TOTAL_CHARS) -> None:
        self._max_block = max_block
        self._max_total = max_total
        self._open: dict[BlockKey, _StreamingBlock] = {}
        self._size = 0

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    def append(self, record: EventRecord, piece: DeltaEvent) -> BlockUpdate:
        """Add a piece to its block and return the update for watchers."""
        origin, call = record.origin, piece.call if isinstance(piece, ToolDelta) else None
        kind = str(piece.__struct_config__.tag)
        key = (origin.run, call or kind)
        block = self._open.setdefault(key, _StreamingBlock(origin.run, origin.root, kind, call))
        at = block.sent
        self._extend_block(block, record.seq, piece.text)
        self._evict()
        return BlockUpdate(run=origin.run, type=kind, text=piece.text, at=at, call=call)

    def close(self, record: EventRecord) -> list[BlockUpdate]:
        """Close the blocks that an event completes or abandons, and return the updates of blocks that start anew.

        Pieces arrive on another channel than events and can be ahead of them: pieces with a higher sequence number
        than the event are the start of the next block.
        """
        if not self._open:
            return []
        restarted = []
        for key in self._keys_ended_by(record):
            block = self._open.pop(key, None)
            if block is None:
                continue
            self._size -= block.size
            ahead = [(seq, text) for seq, text in block.pieces if seq > record.seq]
            if ahead and not isinstance(record.event, RunEnded):
                block = self._open[key] = _StreamingBlock(block.run, block.root, block.kind, block.call)
                for seq, text in ahead:
                    self._extend_block(block, seq, text)
                restarted.append(block.snapshot())
        return restarted

    def snapshot_all(self, wants: Callable[[str, str], bool]) -> Iterator[BlockUpdate]:
        """Yield every open block whose run and root `wants` accepts, as far as its text is kept."""
        return (block.snapshot() for block in self._open.values() if block.pieces and wants(block.run, block.root))

    def _extend_block(self, block: _StreamingBlock, seq: int, text: str) -> None:
        before = block.size
        block.pieces.append((seq, text))
        block.sent += len(text)
        block.size += len(text)
        while block.size > self._max_block and len(block.pieces) > 1:
            block.size -= len(block.pieces.popleft()[1])
        self._size += block.size - before

    def _evict(self) -> None:
        for block in self._open.values():
            if self._size <= self._max_total:
                break
            self._size -= block.size
            block.size = 0
            block.pieces.clear()

    def _keys_ended_by(self, record: EventRecord) -> list[BlockKey]:
        run, event = record.origin.run, record.event
        match event:
            case Text():
                return [(run, "text_delta")]
            case Thinking():
                return [(run, "thinking_delta")]
            case ToolReturned(call=call):
                return [(run, call)]
            case AttemptStarted() | RunEnded():
                return [key for key in self._open if key[0] == run]
            case _:
                return []
