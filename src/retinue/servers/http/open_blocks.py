"""Text blocks that are being streamed: the pieces of each, until the whole block arrives as an event."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from msgspec import Struct, field

from retinue.model.event_codec import EventRecord
from retinue.model.events import (
    AttemptStarted,
    RunEnded,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolDelta,
    ToolReturned,
)
from retinue.servers.http.schemas import ApiValue

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
