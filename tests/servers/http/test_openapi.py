"""The OpenAPI document: complete, and true of every response."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote, urlencode

import anyio
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.servers.http.conftest import BASE

from retinue.engines.scripted import RunCallback, reply
from retinue.model.event_codec import event_schema as schema_of_events
from retinue.model.events import TextDelta

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        "agent",
        "task",
        "tasks",
        "mode",
        "name",
        "cwd",
        "timeout",
        "engine",
        "files",
        "seconds",
        "text",
        "maxTurns",
        "code",
    ]
)
QUERIES = st.dictionaries(
    st.sampled_from(
        ["limit", "before", "state", "agent", "engine", "q", "root", "live", "after", "format", "surface", "x"]
    ),
    st.text(max_size=12) | st.sampled_from(["1", "0", "true", "running", "1.5~x", "nan~", "inf~x"]),
    max_size=4,
)


@pytest.fixture
async def document(serve) -> Any:
    async with serve(reply("done")) as client:
        return (await client.get("openapi.json")).json


async def test_openapi_document_is_valid_and_complete(document):
    assert document["openapi"] == "3.1.0"
    names = set()
    for path, operations in document["paths"].items():
        assert path.startswith(BASE)
        for operation in operations.values():
            names.add(operation["operationId"])
            in_path = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
            assert in_path == set(re.findall(r"\{(\w+)\}", path))
            assert operation["summary"].endswith(".")
    assert len(names) == sum(map(len, document["paths"].values()))
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    referred = set(re.findall(r'"#/components/schemas/([\w.]+)"', json.dumps(document)))
    assert "$defs" not in json.dumps(document)
    assert referred <= set(document["components"]["schemas"])


async def test_run_row_schema_requires_every_field(document):
    row = document["components"]["schemas"]["RunRow"]
    assert {"parentToolUseId", "sessionRuns", "doing", "can"} <= set(row["required"])
    assert set(row["required"]) == set(row["properties"])


async def test_openapi_descriptions_are_the_field_docstrings(document):
    parts, paths = document["components"]["schemas"], document["paths"]
    assert (
        parts["RunRow"]["properties"]["doing"]["description"]
        == "A line about the current activity; empty once the run has ended."
    )
    assert parts["RunDetail"]["properties"]["tools"]["description"] == "Number of tool calls."
    assert parts["UsageTotals"]["properties"]["cost"]["description"].startswith("In dollars; null ")
    described = {each["name"]: each.get("description") for each in paths[f"{BASE}/runs"]["get"]["parameters"]}
    assert described["q"] == "Text to search for in names, tasks, answers and tool calls."
    assert parts["StartRunBody"]["properties"]["maxDepth"]["anyOf"][0] == {
        "type": "integer",
        "minimum": 0,
        "maximum": 64,
    }


async def test_openapi_lists_stream_messages_and_transcript_formats(document):
    stream = document["paths"][f"{BASE}/events"]["get"]
    assert set(stream["responses"]["200"]["x-messages"]) == {"happened", "row", "delta", "resync"}
    assert "Last-Event-ID" in {each["name"] for each in stream["parameters"]}
    told = document["paths"][f"{BASE}/runs/{{id}}/transcript"]["get"]["responses"]["200"]
    assert set(told["content"]) == {"text/html", "text/markdown", "text/plain", "application/jsonl"}


async def test_stream_messages_match_their_schemas(serve):
    go = anyio.Event()
    script = (TextDelta("done and more "), RunCallback(go.wait), reply("done"))
    async with serve(*script) as client, client.watch("?deltas=1&after=gone") as stream:
        document = (await client.get("openapi.json")).json
        await client.post("runs", {"agent": "explorer", "task": "x"})
        told = await stream.until(lambda message: message.event == "delta")
        go.set()
        told += await stream.until(lambda message: message.data.get("event", {}).get("type") == "run_ended")
    messages = document["paths"][f"{BASE}/events"]["get"]["responses"]["200"]["x-messages"]
    for message in told:
        schema = {**messages[message.event], "components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(message.data)
    assert {message.event for message in told} == {"happened", "delta", "resync"}


async def test_events_of_a_page_match_the_event_schema(serve):
    async with serve(reply("done")) as client:
        run = (await client.post("runs", {"agent": "explorer", "task": "x"})).json["run"]["run"]
        await client.hub.wait_final_row(run)
        events = (await client.get(f"runs/{run}/events")).json["events"]
    validator = jsonschema.Draft202012Validator(schema_of_events())
    for event in events:
        validator.validate(event)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_generated_requests_never_cause_an_internal_error(serve, data):
    """Whatever a path, a query and a body are: the answer is one that the document knows, and never a fault of ours."""

    async def main() -> None:
        async with serve(reply("done")) as client:
            document = (await client.get("openapi.json")).json
            for _ in range(8):
                template, operations = data.draw(st.sampled_from(sorted(document["paths"].items())))
                method = data.draw(st.sampled_from(sorted(operations))).upper()
                name = data.draw(st.text(min_size=1, max_size=12) | st.sampled_from(["explorer", "0123456789abcdef"]))
                path = re.sub(r"\{\w+\}", quote(name, safe=""), template)
                query = urlencode(data.draw(QUERIES))
                body = data.draw(ANYTHING | st.dictionaries(FIELDS, ANYTHING, max_size=4))
                if path == f"{BASE}/events":
                    query = "run=nothing"
                written = json.dumps(body).encode() if method == "POST" else b""
                answer = await client.ask(method, f"{path}?{query}", written, content_type="application/json")
                assert answer.status in {200, 202, 400, 401, 403, 404, 405, 409, 429}

    anyio.run(main)
