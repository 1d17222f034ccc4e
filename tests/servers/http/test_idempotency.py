"""Idempotency keys: a repeated request gets the run of the first one."""

import json
import os
import time

import anyio
import pytest

from retinue.engines.scripted import HangStep, reply
from retinue.model.errors import ErrorCode
from retinue.servers.asgi.request_checks import HttpError
from retinue.servers.http import idempotency
from retinue.servers.http.idempotency import MAX_KEY_AGE, KeyStore
from retinue.sessions.store import SessionFilter

TASK = {"agent": "explorer", "task": "look"}
KEY = {"idempotency_key": "order-7"}


async def test_repeated_request_with_a_key_gets_the_same_run_and_starts_nothing(serve):
    async with serve(reply("done")) as client:
        first = await client.post("runs", TASK, **KEY)
        again = await client.post("runs", {**TASK, "files": []}, **KEY)
        other = await client.post("runs", TASK, idempotency_key="order-8")
        without = await client.post("runs", TASK)
        runs = (await client.get("runs")).json["runs"]
    assert [each.status for each in (first, again, other, without)] == [202] * 4
    assert first.json["run"]["run"] == again.json["run"]["run"]
    assert len({each.json["run"]["run"] for each in (first, other, without)}) == len(runs) == 3


async def test_hundred_requests_at_once_with_one_key_start_one_run(serve):
    started = []
    async with serve(HangStep()) as client:

        async def start():
            started.append((await client.post("runs", TASK, **KEY)).json["run"]["run"])

        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(start)
        runs = (await client.get("runs")).json["runs"]
    assert (len(started), len(set(started)), len(runs)) == (100, 1, 1)


async def test_key_with_another_body_is_refused_and_starts_nothing(serve):
    async with serve(reply("done")) as client:
        await client.post("runs", TASK, **KEY)
        answer = await client.post("runs", {**TASK, "task": "look again"}, **KEY)
        runs = (await client.get("runs")).json["runs"]
    assert (answer.status, answer.error, len(runs)) == (422, "conflict", 1)
    assert "Use a new key" in answer.json["error"]["message"]


@pytest.mark.parametrize("key", ["x" * 256, "two words", "ümlaut", "\x07", " "])
async def test_invalid_key_is_refused_and_starts_nothing(serve, key):
    async with serve(reply("done")) as client:
        answer = await client.post("runs", TASK, idempotency_key=key)
        assert (answer.status, answer.error) == (400, "invalid_input")
        assert (await client.get("runs")).json["runs"] == []


async def test_refused_start_does_not_use_up_its_key(serve):
    async with serve(reply("done"), settings={"enabled": False}) as client:
        refused = await client.post("runs", TASK, **KEY)
        assert (refused.status, list((client.retinue.state / "requests").iterdir())) == (403, [])


async def test_key_survives_a_restart_of_the_server(serve):
    async with serve(reply("done"), store=None) as client:
        first = (await client.post("runs", TASK, **KEY)).json["run"]
        await client.hub.wait_final_row(first["run"])
    async with serve(reply("done"), store=None) as client:
        again = (await client.post("runs", TASK, **KEY)).json["run"]
        stored = await client.retinue.sessions(SessionFilter())
    assert (again["run"], again["preview"], len(stored)) == (first["run"], "done", 1)


@pytest.mark.parametrize("rest", [b"", b"4f0"], ids=["without its run", "with a torn run"])
async def test_start_that_was_cut_off_after_its_run_was_recorded_is_found(serve, rest):
    async with serve(reply("done"), store=None) as client:
        first = (await client.post("runs", TASK, **KEY)).json["run"]
        await client.hub.wait_final_row(first["run"])
        (file,) = (client.retinue.state / "requests").iterdir()
        start, _, _ = file.read_bytes().partition(b"\n")
    file.write_bytes(start + b"\n" + rest)
    async with serve(reply("done"), store=None) as client:
        assert (await client.post("runs", TASK, **KEY)).json["run"]["run"] == first["run"]


async def test_start_that_was_cut_off_before_its_run_was_recorded_starts_it(serve):
    async with serve(reply("done"), store=None) as client:
        await client.post("runs", TASK, **KEY)
        (file,) = (client.retinue.state / "requests").iterdir()
        start, _, _ = file.read_bytes().partition(b"\n")
        file.write_bytes(json.dumps({**json.loads(start), "root": "0" * 32}).encode() + b"\n")
        run = (await client.post("runs", TASK, **KEY)).json["run"]
        assert run["root"] == "0" * 32
        assert (await client.post("runs", TASK, **KEY)).json["run"]["run"] == run["run"]


def test_key_that_another_process_is_using_is_refused(tmp_path):
    claimed = KeyStore(tmp_path).claim("k", b"body")
    with pytest.raises(HttpError, match="in a moment") as refused:
        KeyStore(tmp_path).claim("k", b"body")
    claimed.close()
    assert (refused.value.status, refused.value.headers) == (409, {"retry-after": "1"})


def test_key_older_than_a_day_is_new_again(tmp_path):
    store = KeyStore(tmp_path)
    claimed = store.claim("k", b"body")
    claimed.record_run("ab" * 16)
    claimed.close()
    (file,) = tmp_path.iterdir()
    os.utime(file, (0, time.time() - MAX_KEY_AGE - 1))
    again = store.claim("k", b"another body")
    again.close()
    assert (again.run, again.start.root != claimed.start.root) == (None, True)


def test_number_of_stored_keys_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(idempotency, "MAX_KEYS", 10)
    monkeypatch.setattr(idempotency, "PRUNE_EVERY", 5)
    store = KeyStore(tmp_path)
    for number in range(50):
        store.claim(str(number), b"").close()
    assert len(list(tmp_path.iterdir())) <= 15


async def test_key_that_cannot_be_stored_starts_nothing(serve):
    async with serve(reply("done")) as client:
        client.retinue.state.mkdir(parents=True, exist_ok=True)
        (client.retinue.state / "requests").write_text("a file")
        answer = await client.post("runs", TASK, **KEY)
        assert (answer.status, answer.error) == (503, ErrorCode.STORAGE)
        assert (await client.get("runs")).json["runs"] == []


async def test_undeclared_method_is_answered_405_whatever_its_content_type(serve):
    async with serve(reply("done")) as client:
        for kind in (None, "text/plain", "application/json"):
            for method, path in (("DELETE", "runs"), ("POST", "health"), ("DELETE", "runs/x"), ("POST", "runs/x")):
                answer = await client.ask(method, path, b"", content_type=kind)
                assert (answer.status, answer.error) == (405, "method_not_allowed")
