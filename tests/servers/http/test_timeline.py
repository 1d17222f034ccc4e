"""The timeline of a conversation: spans of models and tools."""

from __future__ import annotations

from msgspec import structs
from tests.support.event_story import START, EventStory

from retinue.engines.scripted import call, reply, spawn
from retinue.model.event_codec import EventRecord
from retinue.model.events import Event, MessageEnded, RunStarted, ToolCalled, ToolReturned
from retinue.model.results import Usage
from retinue.servers.http.schemas import Span
from retinue.servers.http.timeline import MAX_SPANS, SpanBuilder


def build_spans(*steps: tuple[float, Event]) -> tuple[Span, ...]:
    builder = SpanBuilder()
    for seconds, event in steps:
        story = EventStory()
        story.add("a", event)
        record: EventRecord = structs.replace(story.records[0], time=START + seconds)
        builder.add_event(record)
    return builder.list_spans()


def test_model_and_tool_spans_follow_each_other():
    spans = build_spans(
        (0, RunStarted()),
        (2, ToolCalled("c", "read", {"path": "a.py"})),
        (2, MessageEnded(stop_reason="tool_use", model="m-1", usage=Usage(input=10, output=5, cost=0.5))),
        (3, ToolReturned("c", "read", text="gone", is_error=True)),
        (7, MessageEnded(stop_reason="stop", model="m-2", usage=Usage(input=1))),
    )
    assert spans == (
        Span(kind="model", name="m-1", started=START, ended=START + 2, tokens=15, cost=0.5),
        Span(kind="tool", name="read", label="read → a.py", started=START + 2, ended=START + 3, failed=True),
        Span(kind="model", name="m-2", started=START + 3, ended=START + 7, tokens=1),
        Span(kind="model", name="model", started=START + 7),
    )


def test_overlapping_tools_keep_their_own_spans_and_open_ones_have_no_end():
    spans = build_spans(
        (0, RunStarted()),
        (1, ToolCalled("c", "read", {})),
        (1, ToolCalled("d", "grep", {})),
        (4, ToolReturned("c", "read", text="")),
    )
    assert [(span.name, span.started - START, span.ended and span.ended - START) for span in spans] == [
        ("model", 0, 1),
        ("read", 1, 4),
        ("grep", 1, None),
    ]


def test_spans_of_a_run_are_bounded():
    builder = SpanBuilder()
    for number in range(MAX_SPANS + 10):
        story = EventStory()
        story.add("a", ToolCalled(f"c{number}", "read", {}), ToolReturned(f"c{number}", "read", text=""))
        for record in story.records:
            builder.add_event(record)
    assert len(builder.list_spans()) <= MAX_SPANS + 1


async def test_timeline_has_the_spans_of_every_run_of_the_tree(serve, place):
    agents = place / ".retinue" / "agents"
    agents.mkdir(parents=True)
    (agents / "lead.md").write_text("---\nname: lead\ndescription: d\ntools: [read, spawn_subagent]\n---\nLead.")

    def script(spec):
        if spec.agent.name == "lead":
            return [spawn("explorer", "find it"), reply("led")]
        return [call("read", path="a.py", returns="x"), reply("found")]

    async with serve(script, settings={"project_agents": "allow"}) as client:
        begun = (await client.post("runs", {"agent": "lead", "task": "lead", "maxDepth": 3})).json["run"]
        await client.hub.wait_final_row(begun["run"])
        tree = (await client.get(f"runs/{begun['run']}/tree")).json
        found = (await client.get(f"runs/{begun['run'][:8]}/timeline")).json
        again = (await client.get(f"runs/{tree['runs'][1]['run']}/timeline")).json
        missing = await client.get("runs/00000000/timeline")
    assert [run["run"] for run in found["runs"]] == [row["run"] for row in tree["runs"]]
    calls = [
        [(span["kind"], span["name"]) for span in run["spans"] if span["kind"] != "model"] for run in found["runs"]
    ]
    assert calls == [[("child", "spawn_subagent")], [("tool", "read")]]
    assert (again, missing.status) == (found, 404)
