"""No secret of any kind reaches a route or the stream."""

from tests.servers.http.test_stream import TASK, is_end
from tests.support.secret_examples import find_leaks, make_leaking_text

from retinue.engines.scripted import call, reply

SEED = 19
LEAK = make_leaking_text(SEED)


async def test_no_route_or_stream_has_a_secret_of_an_agent(serve):
    async with serve(call("bash", command=LEAK, returns=LEAK), reply(LEAK)) as client, client.watch() as stream:
        run = (await client.post("runs", TASK)).json["run"]["run"]
        await stream.until(is_end)
        parts = ("", "/events", "/tree", "/timeline", "/result")
        formats = ("md", "html", "txt", "jsonl")
        paths = [
            *("activity", "runs", "sessions", "statistics", "runs?q=echo"),
            *(f"runs/{run}{part}" for part in parts),
            *(f"runs/{run}/transcript?format={name}" for name in formats),
        ]
        answers = {path: await client.get(path) for path in paths}
    assert {path for path, answer in answers.items() if answer.status != 200} == set()
    bodies = {"stream": stream.raw, **{path: answer.body for path, answer in answers.items()}}
    assert sum(b"REDACTED" in body for body in bodies.values()) >= 6
    assert {path: leaks for path, body in bodies.items() if (leaks := find_leaks(SEED, body))} == {}
