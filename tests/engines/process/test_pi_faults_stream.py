"""Part B of the fault catalogue, on the pi engine: faults of the stream. Each docstring names its row."""

import json
import math
import resource
import time

import anyio
import pytest
from tests.support.fake_pi import action as do
from tests.support.pi_setup import MODES, alive, ended, pi_stage, play, until_told, words

from retinue.engines.json_lines import MAX_LINE_BYTES
from retinue.model.errors import ErrorCode
from retinue.model.events import Event, MessageEnded, RunEnded, Text, ToolReturned

pytestmark = pytest.mark.process

MIB = 2**20


@pytest.fixture(autouse=True)
def assert_nothing_left(scratch_home):
    yield
    assert alive(scratch_home) == []


def message(text: str, **more) -> bytes:
    """Return a final answer as a line."""
    content = {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": "stop", **more}
    record = {"type": "message_end", "message": content}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def raw(data: bytes):
    return do("raw", data.decode("latin-1"))


async def read_events(retinue, result) -> list[Event]:
    return [record.event async for record in retinue.history(result.session)]


async def test_lines_up_to_the_limit_are_read_and_a_longer_one_is_reported(scratch_home):
    """B1"""
    sizes = [65_535, 65_536, 65_537, MIB, MAX_LINE_BYTES, MAX_LINE_BYTES + 1]
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, *[do("long", size) for size in sizes], do("say", "Done."))
        assert (result.failure, result.text) == (None, "Done.")
        assert f"A line of {MAX_LINE_BYTES + 1} bytes from pi was too long and was left out." in result.actual.notices
        assert result.usage.turns == 6
        assert result.actual.dropped_bytes >= MAX_LINE_BYTES + 1


@MODES
async def test_last_line_without_newline_is_read(scratch_home, version):
    """B2"""
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, raw(message("Done.").rstrip()), do("exit", 0))
        assert (result.failure, result.text) == (None, "Done.")


UPDATE = b'{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"'


@MODES
@pytest.mark.parametrize("start", [message("x")[:-20], UPDATE, b'{"type":"agent_end","messages":["'])
async def test_stream_cut_within_a_record_fails_and_keeps_earlier_text(scratch_home, version, start):
    """B3"""
    cut = start + b"x" * (65_536 - len(start))
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, do("say", "half", stop="toolUse"), raw(cut), do("exit", 0))
        assert ended(result) == (ErrorCode.ENGINE, "truncated_stream")
        assert result.text.startswith("half")


@MODES
async def test_output_written_before_the_exit_is_read_completely(scratch_home, version):
    """B4: it ends while we are still busy with the beginning."""
    async with pi_stage(scratch_home, version=version) as retinue, anyio.create_task_group() as group:
        async with retinue.events(deltas=False) as events:

            async def delay() -> None:
                await until_told(events, lambda event: isinstance(event, ToolReturned))
                time.sleep(1)  # noqa: ASYNC251 - that is the fault

            group.start_soon(delay)
            calls = [do("call", "read", {"path": f"{n}"}) for n in range(300)]
            result = await play(retinue, do("flood", "deltas", 5 * MIB), *calls, do("say", "Done."), do("exit", 0))
        assert (result.failure, result.text) == (None, "Done.")
        assert sum(isinstance(event, ToolReturned) for event in await read_events(retinue, result)) == 300


async def test_character_split_at_any_byte_is_read_whole(scratch_home):
    """B5"""
    text = "𝄞🜚é🏳️‍🌈 — " * 20
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, do("drip", message(text).decode("latin-1")))
        assert [event for event in await read_events(retinue, result) if isinstance(event, Text)] == [Text(text)]


async def test_only_a_line_feed_ends_a_record(scratch_home):
    """B6"""
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf"
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, raw(message(text)))
        assert [event for event in await read_events(retinue, result) if isinstance(event, Text)] == [Text(text)]


@MODES
async def test_noise_is_counted_and_records_within_it_are_read(scratch_home, version):
    """B7"""
    noise = b"\xef\xbb\xbf\n\r\n\x00\x00\nnpm warn deprecated glob@7.2.3\n"
    call = b'{"type":"tool_execution_start","toolCallId":"c","toolName":"read","args":{}}\r\n'
    titled = b"\x1b]1337;SetMark\x07" + message("Done.")
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, raw(noise + call + titled))
        assert (result.failure, result.text) == (None, "Done.")
        assert result.actual.tools_used == {"read": 1}
        assert any("pi printed 3 lines that are not events" in notice for notice in result.actual.notices)


async def test_invalid_text_is_stored_and_readable(scratch_home):
    """B8"""
    invalid = message("good MARK end").replace(b"MARK", b"\xff\xfe \xc0\xaf \xed\xa0\xbd")
    lonely = message("half MARK pair").replace(b"MARK", b"\\ud83d")
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, raw(invalid + lonely))
        assert result.failure is None
        assert result.text.startswith("half ")
        assert result.text.endswith(" pair")
    async with pi_stage(scratch_home) as again:
        texts = [event.text for event in await read_events(again, result) if isinstance(event, Text)]
        assert [text[:5] for text in texts] == ["good ", "half "]
        assert texts[1].encode()


HOSTILE = {
    "deep": b'{"type":"message_end","message":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "long number": message("bad", usage={"input": 0}).replace(b'"input":0', b'"input":' + b"9" * 5000).rstrip(),
    "nan": message("bad", usage={"input": math.nan}).rstrip(),
    "twice": b'{"type":"message_end","type":"unheard_of"}',
    "no object": b'["message_end"]',
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
async def test_hostile_record_loses_only_itself(scratch_home, line):
    """B9"""
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, do("call", "read"), raw(line + b"\n"), do("say", "Done."))
        assert (result.failure, result.text, result.actual.tools_used) == (None, "Done.", {"read": 1})


@MODES
async def test_flood_on_stderr_is_drained_and_then_stopped(scratch_home, version):
    """B10: nothing is content on stdout meanwhile."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with pi_stage(scratch_home, version=version) as retinue:
        endured = await play(retinue, do("flood", "stderr", 50 * MIB), do("say", "Done."))
        assert (endured.failure, endured.text) == (None, "Done.")
        flood = do("flood", "stderr", 80 * MIB)
        stopped = await play(retinue, do("say", "half", stop="toolUse"), flood, do("hang", deaf=True), timeout=30)
        assert ended(stopped) == (ErrorCode.OUTPUT_LIMIT, "stderr")
        assert stopped.text == "half"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


@pytest.mark.parametrize(
    ("kind", "size", "reason"), [("events", 80 * MIB, "stdout"), ("line", 1100 * MIB, "raw_output")]
)
async def test_flood_of_output_is_stopped_and_earlier_text_is_kept(scratch_home, kind, size, reason):
    """B11"""
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, do("say", "half", stop="toolUse"), do("flood", kind, size))
        assert ended(result) == (ErrorCode.OUTPUT_LIMIT, reason)
        assert words(result).startswith("Subagent child output exceeded")
        assert result.text == "half"


async def test_line_torn_by_another_writer_loses_only_itself(scratch_home):
    """B12"""
    line = message("torn")
    async with pi_stage(scratch_home) as retinue:
        actions = [
            do("call", "read"),
            raw(line[:40]),
            do("shell", "echo intruder"),
            raw(line[40:]),
            do("say", "Done."),
        ]
        result = await play(retinue, *actions)
        assert (result.failure, result.text, result.actual.tools_used) == (None, "Done.", {"read": 1})
        assert "torn" not in str(await read_events(retinue, result))


async def test_idle_subscriber_delays_no_run(scratch_home):
    """B13"""
    async with pi_stage(scratch_home) as retinue, retinue.events() as events:
        result = await play(retinue, *[do("say", "word " * 200, deltas=200)] * 20)
        assert result.failure is None
        record = await until_told(events, lambda event: isinstance(event, RunEnded))
        assert record.origin.run == result.run


@MODES
async def test_last_of_two_answers_is_the_result(scratch_home, version):
    """B14"""
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, do("say", "First."), do("say", "Second."))
        assert (result.failure, result.text) == (None, "Second.")


@MODES
async def test_events_after_the_end_are_reported_and_ignored(scratch_home, version):
    """B14"""
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, do("raw", _settled_and(message("Late."))))
        assert (result.failure, result.text) == (None, "In time.")
        assert "pi sent 2 more events after its last answer; they were left out." in result.actual.notices


def _settled_and(late: bytes) -> str:
    """Return all in one write, so that one read may return all of it."""
    return (message("In time.") + b'{"type":"agent_settled"}\n' + late).decode("latin-1")


async def test_failure_that_pi_retries_does_not_end_the_run(scratch_home):
    """B14"""
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, do("fail", "500: oops", will_retry=True), do("say", "Made it."))
        assert (result.failure, result.text) == (None, "Made it.")
        assert any("pi retries" in notice for notice in result.actual.notices)
        assert [attempt.reason for attempt in result.actual.attempts] == ["first"]


async def test_tool_end_without_start_and_foreign_session_are_ignored(scratch_home):
    """B14"""
    ended_first = {"type": "tool_execution_end", "toolCallId": "x", "toolName": "read", "result": {"content": []}}
    async with pi_stage(scratch_home) as retinue:
        result = await play(
            retinue,
            do("emit", ended_first),
            do("emit", {"type": "session", "id": "somebody-else", "cwd": "/"}),
            do("emit", {"id": "r999", "type": "response", "command": "prompt", "success": False, "error": "no"}),
            do("say", "Done."),
        )
        assert (result.failure, result.text) == (None, "Done.")


@MODES
async def test_unknown_records_are_ignored(scratch_home, version):
    """B15"""
    unknown = [{"type": "quantum_update", "v": 99}, {"type": 7}, {"no": "type"}, {"type": "message_end"}]
    async with pi_stage(scratch_home, version=version) as retinue:
        result = await play(retinue, *[do("emit", record) for record in unknown], do("say", "Done."))
        assert (result.failure, result.text) == (None, "Done.")


async def test_keep_alive_lines_do_not_reset_the_idle_timeout(scratch_home):
    """B16"""
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, do("beat", 1000, 0.05), do("say", "never"), idle_timeout=1)
        assert ended(result)[0] is ErrorCode.IDLE_TIMEOUT


async def test_hundred_thousand_single_bytes_are_read(scratch_home):
    """B17: how quickly is a matter of benchmarks."""
    text = "x" * 100_000
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, do("drip", message(text).decode()))
        assert result.text == text


@pytest.mark.parametrize("number", [-5, "many", 1e308, [1], None, 10**30])
async def test_implausible_usage_numbers_leave_sums_finite(scratch_home, number):
    """B18"""
    usage = {"input": number, "output": number, "cacheRead": number, "cost": {"total": number}}
    async with pi_stage(scratch_home) as retinue:
        result = await play(retinue, do("say", "Well."), do("say", "Done.", usage=usage))
        assert (result.failure, result.text) == (None, "Done.")
        used = result.usage
        assert used.input >= 0
        assert math.isfinite(used.tokens)
        assert math.isfinite(used.cost or 0.0)
        ends = [event for event in await read_events(retinue, result) if isinstance(event, MessageEnded)]
        assert len(ends) == 2
