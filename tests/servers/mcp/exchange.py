"""An SDK server behind our authentication and transport, for parts of the protocol that no tool of ours uses.

Content other than text, resources, logging, headers from arguments, and questions to the client during a call.
"""

from __future__ import annotations

import base64
import json
import secrets
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import anyio
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import BaseModel, Field

from retinue.servers.asgi.serving import bind_socket, serve_http
from retinue.servers.asgi.tokens import digest_token
from retinue.servers.mcp import sdk
from retinue.servers.mcp.serving import TokenGate

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
SILENCE = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
PNG = "image/png"

text = types.TextContent
image = types.ImageContent(type="image", data=PIXEL, mime_type=PNG)


def embedded(uri: str, content: str, kind: str = "text/plain") -> types.EmbeddedResource:
    return types.EmbeddedResource(
        type="resource", resource=types.TextResourceContents(uri=uri, mime_type=kind, text=content)
    )


class Reply(BaseModel):
    response: str


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: str = Field(default="active", json_schema_extra={"enum": ["active", "inactive", "pending"]})
    verified: bool = True


def titled(**titles: str) -> Any:
    return [{"const": name, "title": title} for name, title in titles.items()]


class Choices(BaseModel):
    untitledSingle: str = Field(json_schema_extra={"enum": ["option1", "option2"]})  # noqa: N815 - the suite's names
    titledSingle: str = Field(json_schema_extra={"oneOf": titled(a="First", b="Second")})  # noqa: N815
    legacyEnum: str = Field(json_schema_extra={"enum": ["a", "b"], "enumNames": ["First", "Second"]})  # noqa: N815
    untitledMulti: list[str] = Field(  # noqa: N815
        json_schema_extra={"items": {"type": "string", "enum": ["option1", "option2"]}}
    )
    titledMulti: list[str] = Field(json_schema_extra={"items": {"anyOf": titled(a="First", b="Second")}})  # noqa: N815


def exchange() -> MCPServer:
    """Return an SDK server with the tools, resources and prompts the suite requires."""
    server = MCPServer("exchange", log_level="ERROR")
    _add_contents(server)
    _add_questions(server)
    _add_later_answers(server)
    _add_resources(server)
    _add_prompts(server)

    @server.completion()  # type: ignore[untyped-decorator]
    async def complete(*_: Any) -> types.Completion:
        return types.Completion(values=["paris", "park"], total=2, has_more=False)

    async def accept(*_: Any) -> types.EmptyResult:
        return types.EmptyResult()

    low = server._lowlevel_server
    low.add_request_handler("logging/setLevel", types.SetLevelRequestParams, accept)
    low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, accept)
    low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, accept)
    return server


def _add_contents(server: MCPServer) -> None:
    @server.tool()
    def test_image_content() -> list[types.ImageContent]:
        return [image]

    @server.tool()
    def test_audio_content() -> list[types.AudioContent]:
        return [types.AudioContent(type="audio", data=SILENCE, mime_type="audio/wav")]

    @server.tool()
    def test_embedded_resource() -> list[types.EmbeddedResource]:
        return [embedded("test://embedded-resource", "Embedded.")]

    @server.tool()
    def test_multiple_content_types() -> list[Any]:
        mixed = embedded("test://mixed-content-resource", json.dumps({"test": "data"}), "application/json")
        return [text(type="text", text="Several."), image, mixed]

    @server.tool()
    async def test_tool_with_logging(context: Context) -> str:
        for content in ("begun", "at work", "done"):
            await context.info(content)
        return "Logged."

    @server.tool()
    def test_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        return region


def _add_questions(server: MCPServer) -> None:
    @server.tool()
    async def test_sampling(prompt: str, context: Context) -> str:
        asked = types.SamplingMessage(role="user", content=text(type="text", text=prompt))
        said = await context.session.create_message(messages=[asked], max_tokens=100)
        return f"LLM response: {said.content}"

    async def answered(context: Context, message: str, schema: type[BaseModel]) -> str:
        result = await context.elicit(message=message, schema=schema)
        return f"The user's answer: {result.action}"

    @server.tool()
    async def test_elicitation(message: str, context: Context) -> str:
        return await answered(context, message, Reply)

    @server.tool()
    async def test_elicitation_sep1034_defaults(context: Context) -> str:
        return await answered(context, "Who?", Defaults)

    @server.tool()
    async def test_elicitation_sep1330_enums(context: Context) -> str:
        return await answered(context, "Which?", Choices)


def _add_later_answers(server: MCPServer) -> None:
    """The same in the current revision: what is asked is a result, and the call is made again with the answers."""
    questions: dict[str, types.InputRequest] = {
        "user_name": _form("What is your name?", "name"),
        "greeting": types.CreateMessageRequest(
            params=types.CreateMessageRequestParams(
                messages=[types.SamplingMessage(role="user", content=text(type="text", text="Greet."))], max_tokens=50
            )
        ),
        "client_roots": types.ListRootsRequest(),
    }

    def add(name: str, *rounds: tuple[str, ...]) -> None:
        async def run(context: Context) -> str | types.InputRequiredResult:
            at, answers = int(context.request_state or "0"), context.input_responses or {}
            if all(key in answers for key in rounds[at]):
                at += 1
            if at == len(rounds):
                return f"state-ok: {json.dumps({key: str(answer) for key, answer in answers.items()})}"
            wanted = {key: questions[key] for key in rounds[at] if _is_declared(context, questions[key])}
            return types.InputRequiredResult(input_requests=wanted, request_state=str(at))

        server.add_tool(run, name=f"test_input_required_result_{name}")

    add("elicitation", ("user_name",))
    add("sampling", ("greeting",))
    add("list_roots", ("client_roots",))
    add("request_state", ("user_name",))
    add("tampered_state", ("user_name",))
    add("multiple_inputs", tuple(questions))
    add("multi_round", ("user_name",), ("greeting",))
    add("capabilities", tuple(questions))

    @server.prompt()
    def test_input_required_result_prompt(context: Context) -> str | types.InputRequiredResult:
        if "user_context" in (context.input_responses or {}):
            return "Thank you."
        return types.InputRequiredResult(input_requests={"user_context": _form("Which context?", "context")})


def _form(message: str, field: str) -> types.ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def _is_declared(context: Context, asked: types.InputRequest) -> bool:
    declared = context.client_capabilities
    kind = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling"}.get(asked.method, "roots")
    return declared is not None and getattr(declared, kind) is not None


def _add_resources(server: MCPServer) -> None:
    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "Static."

    @server.resource("test://static-binary", mime_type=PNG)
    def static_binary() -> bytes:
        return base64.b64decode(PIXEL)

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:  # noqa: A002 - the suite's name
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    @server.resource("test://watched-resource", mime_type="text/plain")
    def watched() -> str:
        return "Watched."


def _add_prompts(server: MCPServer) -> None:
    @server.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803 - the suite's name
        return [UserMessage(embedded(resourceUri, "Embedded.")), UserMessage("Look at it.")]

    @server.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        return [UserMessage(image), UserMessage("Look at it.")]


@asynccontextmanager
async def open_exchange_server() -> AsyncIterator[tuple[int, str]]:
    """The port and the token of such a server."""
    token = secrets.token_urlsafe()
    with warnings.catch_warnings(), bind_socket(0) as bound:
        warnings.simplefilter("ignore", MCPDeprecationWarning)  # logging and sampling go with the revision before
        port = bound.getsockname()[1]
        async with sdk.open_http_app(exchange()._lowlevel_server, port) as app, anyio.create_task_group() as group:
            group.start_soon(serve_http, TokenGate({digest_token(token): app}, port), bound)
            yield port, token
            group.cancel_scope.cancel()
