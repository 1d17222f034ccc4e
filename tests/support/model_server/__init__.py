"""A model on loopback that says what a script says, for trying agent programs without a network.

    async with ModelServer() as server:
        # point a program at server.url, and let its prompt carry script64([Step(text="Hello.")])
        assert server.requests[0].tools == ("read", "bash")

It speaks OpenAI chat completions, OpenAI responses and Anthropic messages, streaming or not. What it says is
carried by the prompt, or given to the server; any number of agents can share one.
`python -m tests.support.model_server` runs it for people.
"""

from tests.support.model_server.request import ApiKind, ChatMessage, ChatRequest
from tests.support.model_server.script import Decide, Script, ScriptedCall, ScriptedError, ScriptedTurn, script64
from tests.support.model_server.server import ModelServer

__all__ = [
    "ApiKind",
    "ChatMessage",
    "ChatRequest",
    "Decide",
    "ModelServer",
    "Script",
    "ScriptedCall",
    "ScriptedError",
    "ScriptedTurn",
    "script64",
]
