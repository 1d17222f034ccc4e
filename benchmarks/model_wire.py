"""A model server that plays OpenAI chat completions as fast as a socket takes them. It prints its port first.

`python -m benchmarks.model_wire`. The model in a request names what is played:

- `turns-N`: a tool call, until the conversation has N assistant messages; then an answer of 1 KB.
- `held`: an answer of 1 KB whose stream does not end until a request for `release` arrives.
- `waiting-N`: once N streams are held, the number of bytes in their requests.
- `deltas-N`: an answer in N deltas of 100 characters.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
USAGE = {"prompt_tokens": 1000, "completion_tokens": 250, "total_tokens": 1250}
WORDS = "word " * 12 + "end."
DELTAS_PER_CHUNK = 50
"""Deltas in one chunk of HTTP: models on one's own machine send many before a client reads."""


def encode_events(*deltas: Mapping[str, object], finish: str | None = None) -> bytes:
    """Return deltas, and the end of the reply, as server-sent events."""
    base = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    events = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    if finish:
        events.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        events.append({**base, "choices": [], "usage": USAGE})
    text = b"".join(b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n" for event in events)
    return text + b"data: [DONE]\n\n" if finish else text


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


ANSWER = chunk(encode_events(*({"content": WORDS} for _ in range(16)), finish="stop"))
HALF = [chunk(encode_events({"content": WORDS})) for _ in range(15)]
REST = chunk(encode_events({"content": WORDS}, finish="stop"))
FINISH = chunk(encode_events(finish="stop"))


def encode_call(number: int) -> bytes:
    call = {"index": 0, "id": f"c{number}", "type": "function"}
    function = {"name": "ls", "arguments": f'{{"path": "d{number % 10}"}}'}
    deltas = {"content": "I look."}, {"tool_calls": [{**call, "function": function}]}
    return chunk(encode_events(*deltas, finish="tool_calls"))


CALLS = [encode_call(number) for number in range(100)]


class ModelWire:
    """The connections of the server."""

    def __init__(self) -> None:
        self._held = 0
        self._held_bytes = 0
        self._changed = asyncio.Condition()
        self._release = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
                body = json.loads(await reader.readexactly(size))
                if body["model"] == "held":
                    self._held_bytes += size
                writer.write(HEAD)
                await self._play(body, writer)
                writer.write(END)
                await writer.drain()
        writer.close()

    async def _play(self, body: dict[str, object], writer: asyncio.StreamWriter) -> None:
        kind, _, count = str(body["model"]).partition("-")
        match kind:
            case "turns":
                messages = body["messages"]
                assert isinstance(messages, list)
                done = sum(message["role"] == "assistant" for message in messages)
                writer.write(ANSWER if done + 1 >= int(count) else CALLS[done])
            case "held":
                for part in HALF:
                    writer.write(part)
                    await asyncio.sleep(0.002)  # each is read alone, as from a real model
                async with self._changed:
                    self._held += 1
                    self._changed.notify_all()
                await self._release.wait()
                writer.write(REST)
            case "deltas":
                some = chunk(encode_events(*({"content": "word " * 20} for _ in range(DELTAS_PER_CHUNK))))
                for _ in range(int(count) // DELTAS_PER_CHUNK):
                    writer.write(some)
                    await writer.drain()
                writer.write(FINISH)
            case "waiting":
                async with self._changed:
                    await self._changed.wait_for(lambda: self._held >= int(count))
                writer.write(chunk(b"%d" % self._held_bytes))
            case "release":
                self._release.set()
                writer.write(ANSWER)
            case _:
                raise ValueError(kind)


async def main() -> None:
    server = await asyncio.start_server(ModelWire().serve, "127.0.0.1", 0, backlog=4096, limit=2**24)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
