"""pi's output lines parsed into events; anything else on its output is harmless."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retinue.engines.json_lines import LineSplitter, LineTooLong
from retinue.engines.pi.events import (
    AgentIdle,
    CommandResponse,
    ExtensionPrompt,
    ExtensionReady,
    PiEventReader,
    UserMessageDelivered,
)
from retinue.model.events import (
    Finalized,
    MessageEnded,
    Notice,
    Text,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCalled,
    ToolDelta,
    ToolReturned,
)
from retinue.model.results import Finalization, Usage

USAGE = {"input": 10, "output": 3, "cacheRead": 2, "cacheWrite": 1, "cost": {"total": 0.5}}


def line(**record) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode()


def message_end(*content, stop="stop", role="assistant", **more) -> bytes:
    message = {"role": role, "content": list(content), "provider": "local", "model": "m", "stopReason": stop, **more}
    return line(type="message_end", message=message)


def update(kind: str, delta: str, **more) -> bytes:
    return line(
        type="message_update",
        usage={},
        assistantMessageEvent={"type": kind, "contentIndex": 0, "delta": delta},
        **more,
    )


def read(*lines):
    return PiEventReader().read(lines)


def test_an_assistant_message_is_its_blocks_its_calls_and_its_end():
    said = read(
        message_end(
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "I will look."},
            {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "a"}},
            stop="toolUse",
            usage=USAGE,
        )
    )
    usage = Usage(input=10, output=3, cache_read=2, cache_write=1, cost=0.5, turns=1)
    assert said == [
        Thinking("hm"),
        Text("I will look."),
        ToolCalled("c1", "read", {"path": "a"}),
        MessageEnded(stop_reason="tool_use", model="local/m", usage=usage),
    ]


@pytest.mark.parametrize("role", ["system", "toolResult"])
def test_messages_of_other_roles_give_no_events(role):
    assert read(message_end({"type": "text", "text": "x"}, role=role)) == []


def test_user_message_is_reported_as_delivered():
    assert read(message_end({"type": "text", "text": "x"}, role="user")) == [UserMessageDelivered()]


@pytest.mark.parametrize(
    ("stop", "reason", "error"),
    [
        ("stop", "stop", None),
        ("length", "length", None),
        ("aborted", "aborted", None),
        ("pending", "error", "pi ended its message with an unknown stop reason: pending"),
        (["odd"], "error", "pi ended its message with an unknown stop reason: ['odd']"),
    ],
)
def test_pi_stop_reasons_map_to_stop_reasons_of_events(stop, reason, error):
    assert read(message_end(stop=stop)) == [
        MessageEnded(stop_reason=reason, model="local/m", usage=Usage(turns=1), error=error)
    ]


def test_error_message_of_the_provider_is_kept():
    (ended,) = read(message_end(stop="error", errorMessage="401: no"))
    assert (ended.stop_reason, ended.error) == ("error", "401: no")


def test_consecutive_deltas_are_merged():
    said = read(update("text_delta", "a"), update("text_delta", 'b\n"c"'), update("thinking_delta", "d"))
    assert said == [TextDelta('ab\n"c"'), ThinkingDelta("d")]


def test_a_delta_is_found_beside_the_whole_message_of_older_versions():
    whole = {
        "role": "assistant",
        "content": [{"type": "text", "text": '"assistantMessageEvent":{"type":"text_delta","delta":"no"'}],
    }
    before = line(
        type="message_update",
        message=whole,
        assistantMessageEvent={"type": "text_delta", "delta": "é", "partial": whole},
    )
    assert read(before) == [TextDelta("é")]


def test_updates_without_a_delta_give_no_events():
    assert read(update("toolcall_delta", "{"), line(type="message_update"), b'{"type":"message_update","assist') == []


def test_repeated_tool_output_is_reported_once():
    def tool_update(text):
        return line(
            type="tool_execution_update",
            toolCallId="c1",
            toolName="bash",
            partialResult={"content": [{"type": "text", "text": text}]},
        )

    done = line(
        type="tool_execution_end",
        toolCallId="c1",
        toolName="bash",
        result={"content": [{"type": "text", "text": "ab"}]},
        isError=False,
    )
    assert read(tool_update("a"), tool_update("ab"), tool_update("ab"), tool_update("zz"), done) == [
        ToolDelta("c1", "a"),
        ToolDelta("c1", "b"),
        ToolDelta("c1", "zz"),
        ToolReturned("c1", "bash", "ab", is_error=False),
    ]


def test_tool_call_outside_any_message_is_reported_at_its_start():
    start = line(type="tool_execution_start", toolCallId="c2", toolName="grep", args={"q": 1})
    in_message = message_end({"type": "toolCall", "id": "c2", "name": "grep", "arguments": {"q": 1}}, stop="toolUse")
    assert read(start) == [ToolCalled("c2", "grep", {"q": 1})]
    assert [type(said) for said in read(in_message, start)] == [ToolCalled, MessageEnded]


@pytest.mark.parametrize(
    ("details", "finalized"),
    [
        ({"status": "SUCCESS", "result": "fine"}, Finalization("SUCCESS", "fine")),
        ({"status": "ERROR", "error": "no", "result": "half"}, Finalization("ERROR", "half", "no")),
        ({"status": "SUCCESS", "result": "  "}, None),
        ({"status": "ERROR", "result": "x"}, None),
        ({"status": "DONE", "result": "x"}, None),
        ("text", None),
        (None, None),
    ],
)
def test_a_finalization_counts_only_if_it_keeps_the_rules(details, finalized):
    ended = line(
        type="tool_execution_end",
        toolCallId="c",
        toolName="subagent_finalize",
        result={"details": details},
        isError=False,
    )
    assert read(ended)[1:] == ([Finalized(finalized)] if finalized else [])


def test_a_finalization_the_child_refused_does_not_count():
    details = {"details": {"status": "SUCCESS", "result": "fine"}}
    assert read(
        line(type="tool_execution_end", toolCallId="c", toolName="subagent_finalize", result=details, isError=True)
    ) == [ToolReturned("c", "subagent_finalize", "", is_error=True)]


def test_retries_compaction_and_extension_errors_are_notices():
    said = read(
        line(type="auto_retry_start", attempt=1, maxAttempts=3, delayMs=2000, errorMessage="500"),
        line(type="compaction_start", reason="threshold"),
        line(type="extension_error", extensionPath="x.ts", error="boom"),
    )
    assert [(notice.code, notice.message) for notice in said] == [
        ("provider_retry", "pi retries in 2s (1 of 3) after: 500"),
        ("compaction", "pi compacts its conversation, which is too long for the model."),
        ("extension_error", "An extension of pi failed (x.ts): boom"),
    ]


def test_rpc_responses_and_extension_prompts_are_parsed():
    said = read(
        b'{"id":"r1","type":"response","command":"prompt","success":true}',
        b'{"id":"r2","type":"response","command":"set_model","success":false,"error":"no"}',
        line(type="extension_ui_request", id="u", method="confirm", title="Sure?", message="m"),
        line(type="extension_ui_request", id="u", method="notify", message='retinue {"missing":["lsp"]}'),
        line(type="extension_ui_request", id="u", method="setStatus", message="x"),
        line(type="agent_settled", aborted=False),
    )
    assert said == [
        CommandResponse("r1"),
        CommandResponse("r2", "no"),
        ExtensionPrompt("u", "Sure?"),
        ExtensionReady(("lsp",)),
        AgentIdle(),
    ]


def test_noise_is_counted_and_later_records_are_read():
    reader = PiEventReader()
    good = message_end({"type": "text", "text": "x\u2028y"})
    said = reader.read(
        [b"npm warn something", b"", b"\xef\xbb\xbf" + good, b"\x1b]1337;x\x07" + good, b"\x00", b"\xff{"]
    )
    assert [type(one) for one in said] == [Text, MessageEnded] * 2
    assert said[0] == Text("x\u2028y")
    assert (reader.noise, reader.first_noise, reader.is_truncated) == (3, "npm warn something", False)


@pytest.mark.parametrize(
    "bad",
    [
        b'{"type":"message_end","message":{"role":"assis',
        b'{"type":"message_end","message":' + b"[" * 100_000,
        b'{"type":"message_end","message":{"role":"assistant","usage":{"input":NaN}}}',
        b'{"type":"message_end","message":{"role":"assistant","usage":{"input":' + b"9" * 5000 + b"}}}",
        b'{"type":"message_end","message":7}',
        b'{"type":"message_end"}',
        b'{"type":["message_end"]}',
        b'{"type":"unheard_of","x":1}',
        b"[1,2]",
        b"3",
    ],
)
def test_bad_record_does_not_affect_the_next(bad):
    good = message_end({"type": "text", "text": "x"})
    said = read(bad, good)
    assert said[-2:] == read(good)
    assert all(isinstance(one, MessageEnded) for one in said[:-2])


def test_output_that_ends_within_a_record_is_truncated():
    reader = PiEventReader()
    reader.read([message_end({"type": "text", "text": "x"}), b'{"type":"agent_e'])
    assert reader.is_truncated


def test_message_with_a_lone_surrogate_is_kept():
    said = read(
        b'{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"a\\ud83d"}],"stopReason":"stop"}}'
    )
    assert [type(one) for one in said] == [Text, MessageEnded]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input": -5, "output": 1}, Usage(output=1, turns=1)),
        ({"input": "many", "cost": {"total": "much"}}, Usage(turns=1)),
        ({"input": 1e308, "cost": {"total": -1}}, Usage(input=10**15, cost=0.0, turns=1)),
        ([], Usage(turns=1)),
    ],
)
def test_usage_is_brought_into_range(usage, expected):
    (ended,) = read(message_end(usage=usage))
    assert ended.usage == expected


def test_repeating_lines_do_not_count_as_durable_output():
    reader = PiEventReader()
    kept = message_end({"type": "text", "text": "x"})
    reader.read([kept, update("text_delta", "abc"), LineTooLong(99)])
    assert (reader.stdout, reader.dropped) == (len(kept), 99)


def test_too_long_line_is_a_notice():
    assert read(LineTooLong(99)) == [
        Notice("line_too_long", "A line of 99 bytes from pi was too long and was left out.")
    ]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([message_end(), update("text_delta", "x"), b"{"]), max_size=8)
)
def test_reader_survives_arbitrary_lines(lines):
    PiEventReader().read(LineSplitter().feed(b"\n".join(lines) + b"\n"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    [
        "message",
        "toolCallId",
        "toolName",
        "args",
        "result",
        "partialResult",
        "content",
        "isError",
        "id",
        "method",
        "delayMs",
    ]
)
kinds = st.sampled_from(
    [
        "message_end",
        "tool_execution_start",
        "tool_execution_update",
        "tool_execution_end",
        "auto_retry_start",
        "response",
        "extension_ui_request",
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    kinds,
    st.dictionaries(fields, json_values, max_size=5),
    st.dictionaries(st.sampled_from(["role", "content", "usage", "stopReason"]), json_values, max_size=4),
)
def test_reader_survives_records_of_any_shape(kind, record, message):
    read(line(**{"type": kind, **record}), line(type=kind, message={"role": "assistant", **message}))
