"""The stored form of summaries in the index: JSON, compressed with what all summaries have in common."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from functools import cache

import msgspec
from msgspec.structs import replace

from retinue.model.errors import ErrorCode, Failure
from retinue.model.results import Usage
from retinue.sessions.store import RunSummary, SessionState, SessionSummary

_COMPRESSION_LEVEL = 1
"""Higher levels take longer and save a hundredth."""


class SummaryDecodeError(Exception):
    """Bytes are no encoded summary of this version."""


def encode_summary(summary: SessionSummary) -> bytes:
    """Return the stored form of a summary; equal summaries have equal forms."""
    compressor = zlib.compressobj(_COMPRESSION_LEVEL, zdict=_make_dictionary())
    return compressor.compress(msgspec.json.encode(summary)) + compressor.flush()


def decode_summaries(encoded: Iterable[bytes]) -> Sequence[SessionSummary]:
    """Return the summaries of stored forms, in the same order.

    Raises:
        SummaryDecodeError: one is damaged or of a version with other fields.
    """
    try:
        texts = [_decompress(each) for each in encoded]
        # Joined as one array: one decoder call for each of thousands would cost more than the query.
        return msgspec.json.decode(b"[%b]" % b",".join(texts), type=list[SessionSummary])
    except (zlib.error, msgspec.MsgspecError) as error:
        raise SummaryDecodeError(str(error)) from error


def _decompress(encoded: bytes) -> bytes:
    return zlib.decompressobj(zdict=_make_dictionary()).decompress(encoded)


@cache
def _make_dictionary() -> bytes:
    """Return the fields of a summary with common values. Decompression refuses what was made with another one."""
    usage = Usage(input=1, output=1, cache_read=1, cache_write=1, cost=0.01, turns=1)
    common = SessionSummary(
        session="",
        name="researcher",
        agent="implementer",
        task="",
        cwd="/home/",
        surface="",
        engine="",
        root="",
        timeout=900.0,
        created=1.0,
        updated=1.0,
        runs=1,
        latest=RunSummary(run="", state=SessionState.COMPLETED, started=1.0, usage=usage),
        file="/.local/state/retinue/sessions//session.jsonl",
    )
    failed = Failure(ErrorCode.TIMEOUT, "")
    rare = replace(common, latest=replace(common.latest, state=SessionState.ERROR, failure=failed))
    return msgspec.json.encode(rare) + msgspec.json.encode(common)
