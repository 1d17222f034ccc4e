"""A scripted model server on loopback, for running agent programs without a network.

    async with ModelServer() as server:
        # point a program at server.url, and let its prompt carry script64([Step(text="Hello.")])
        assert server.requests[0].tools == ("read", "bash")

It speaks OpenAI chat completions, OpenAI responses and Anthropic messages, streaming or not. The script is
in the prompt, or set on the server; any number of agents can share one.
`python -m tests.support.model_server` runs it from a shell.
"""

from tests.support.model_server.request import ApiKind, ChatMessage, ChatRequest
from tests.support.model_server.script import (
    Decide,
    RawAnswer,
    Script,
    ScriptedCall,
    ScriptedError,
    ScriptedTurn,
    script64,
)
from tests.support.model_server.server import ModelServer

__all__ = [
    "ApiKind",
    "ChatMessage",
    "ChatRequest",
    "Decide",
    "ModelServer",
    "RawAnswer",
    "Script",
    "ScriptedCall",
    "ScriptedError",
    "ScriptedTurn",
    "script64",
]
