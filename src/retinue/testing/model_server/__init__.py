"""A model on loopback that says what a script says, for trying agent programs without a network.

    async with ModelServer() as server:
        # point a program at server.url, and let its prompt carry script64([Step(text="Hello.")])
        assert server.requests[0].tools == ("read", "bash")

It speaks OpenAI chat completions, OpenAI responses and Anthropic messages, streaming or not. What it says is
carried by the prompt, or given to the server; any number of agents can share one.
`python -m retinue.testing.model_server` runs it for people.
"""

from retinue.testing.model_server.request import Api, Message, Request
from retinue.testing.model_server.script import Call, Decide, Fail, Script, Step, script64
from retinue.testing.model_server.server import ModelServer

__all__ = ["Api", "Call", "Decide", "Fail", "Message", "ModelServer", "Request", "Script", "Step", "script64"]
