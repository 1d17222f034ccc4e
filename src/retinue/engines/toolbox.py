"""Tools for the agent loop: typed Python functions with their schemas, and calls whose failures do not end a run.

async def weather(city: Annotated[str, Meta(description="Name of the city")]) -> str:
    "Return the weather of a city."

toolbox = AgentToolbox([make_tool(weather)])
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, get_type_hints

import anyio.to_thread
import msgspec
from msgspec import Meta, Struct

from retinue.engines.base import EngineError
from retinue.model.results import Finalization
from retinue.model.runs import (
    Delegation,
    ImageBlock,
    ToolArguments,
    ToolFunction,
    ToolGate,
    ToolServers,
    ToolUse,
)
from retinue.output.truncate import truncate_result


class ToolError(Exception):
    """A failed tool call; its message, which the model reads, names the reason and the remedy."""


class InvalidToolUse(ToolUse, frozen=True):
    """A tool call whose arguments are no JSON object; it is answered with the problem."""

    problem: str = ""


class ToolSchema(Struct, frozen=True):
    """The description of a tool that a model receives."""

    name: str
    description: str
    schema: dict[str, Any]
    """JSON schema of the arguments."""


class FunctionTool(Struct, frozen=True):
    schema: ToolSchema
    decode: Callable[[ToolArguments], ToolArguments]
    """Convert the model's arguments to those of the function. Raises `msgspec.ValidationError`."""
    function: ToolFunction


class RemoteTool(Struct, frozen=True):
    """A tool outside the engine, which validates the arguments and bounds the result."""

    schema: ToolSchema
    call: Callable[[ToolUse], Awaitable[ToolOutcome]]


class ToolOutcome(Struct, frozen=True):
    """The result of a tool call."""

    text: str
    is_error: bool = False
    images: tuple[ImageBlock, ...] = ()


def make_tool(function: ToolFunction, *bound: object) -> FunctionTool:
    """Make a tool of a function, described to the model by its name, docstring and annotated parameters.

    The model sees parameter names in camelCase, without the first ones, which are `bound`. A plain function runs in
    a worker thread, which is abandoned when the run is cancelled. A result is text, a
    `ToolOutcome`, or sent as JSON.

    Raises:
        TypeError: a parameter has no annotation, or cannot be given by name.
    """
    schema, decode = _build_schema(function, len(bound))
    return FunctionTool(schema, decode, partial(function, *bound))


class AgentToolbox:
    """The tools of a run, by name, in the order given."""

    def __init__(self, tools: Iterable[FunctionTool | RemoteTool] = (), gate: ToolGate | None = None) -> None:
        self._tools = {each.schema.name: each for each in tools}
        self._gate = gate
        self.schemas = tuple(each.schema for each in self._tools.values())

    def restricted_to(self, names: Iterable[str]) -> AgentToolbox:
        """Return a toolbox with the named tools only."""
        names = frozenset(names)
        return AgentToolbox((each for name, each in self._tools.items() if name in names), self._gate)

    def with_tools(self, *tools: FunctionTool | RemoteTool) -> AgentToolbox:
        return AgentToolbox((*self._tools.values(), *tools), self._gate)

    def behind(self, gate: ToolGate | None) -> AgentToolbox:
        """Return the same toolbox, whose calls the gate decides about."""
        return AgentToolbox(self._tools.values(), gate)

    async def call(self, use: ToolUse) -> ToolOutcome:
        """Call a tool. Every failure of the tool is an outcome for the model.

        Raises:
            EngineError: the run cannot continue, such as after a limit on what its processes use.
        """
        tool = self._tools.get(use.name)
        if tool is None:
            return ToolOutcome(
                f"Unknown tool: {use.name}. Available tools: {', '.join(self._tools) or '(none)'}", is_error=True
            )
        if isinstance(use, InvalidToolUse):
            return ToolOutcome(f"The arguments of {use.name} are not valid JSON: {use.problem}", is_error=True)
        if self._gate is None or not self._gate.covers(use.name):
            return await self._execute(tool, use)
        decision = await self._gate.check(use)
        if decision.denied is not None:
            return ToolOutcome(truncate_result(decision.denied), is_error=True)
        if decision.args is not None:
            use = msgspec.structs.replace(use, args=decision.args)
        outcome = await self._execute(tool, use)
        if not decision.context:
            return outcome
        return msgspec.structs.replace(outcome, text=f"{outcome.text}\n\n{decision.context}")

    async def _execute(self, tool: FunctionTool | RemoteTool, use: ToolUse) -> ToolOutcome:
        if isinstance(tool, RemoteTool):
            return await tool.call(use)
        try:
            arguments = tool.decode(use.args)
        except msgspec.ValidationError as error:
            return ToolOutcome(_argument_error(tool.schema, error), is_error=True)
        try:
            outcome = await _run_function(tool.function, arguments)
            return msgspec.structs.replace(outcome, text=truncate_result(outcome.text))
        except ToolError as error:
            return ToolOutcome(truncate_result(str(error)), is_error=True)
        except EngineError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool is foreign code, and this is its border
            return ToolOutcome(truncate_result(f"{use.name} failed: {type(error).__name__}: {error}"), is_error=True)


@lru_cache(maxsize=256)
def _build_schema(
    function: ToolFunction, skipped: int
) -> tuple[ToolSchema, Callable[[ToolArguments], ToolArguments]]:
    name: str = getattr(function, "__name__", type(function).__name__)
    hints = get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    for parameter in list(inspect.signature(function).parameters.values())[skipped:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{name}: a tool's parameter must be one that can be given by name: {parameter}")
        if parameter.name not in hints:
            raise TypeError(f"{name}: parameter {parameter.name} needs an annotation")
        default = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((parameter.name, hints[parameter.name], *default))
    arguments_type = msgspec.defstruct(name, fields, rename="camel", forbid_unknown_fields=True, kw_only=True)
    schema = ToolSchema(name, inspect.getdoc(function) or "", _json_schema(arguments_type))
    return schema, partial(_decode_arguments, arguments_type)


def _json_schema(arguments_type: type[Struct]) -> dict[str, Any]:
    # msgspec puts a reference at the root; model providers want the object itself there.
    schema = msgspec.json.schema(arguments_type)
    components: dict[str, Any] = schema["$defs"]
    root: dict[str, Any] = components.pop(schema["$ref"].rpartition("/")[2])
    return {**root, "$defs": components} if components else root


def _decode_arguments(arguments_type: type[Struct], args: ToolArguments) -> ToolArguments:
    # Models write null for "not given" and quote their numbers.
    arguments = {key: value for key, value in args.items() if value is not None}
    return msgspec.structs.asdict(msgspec.convert(arguments, arguments_type, strict=False))


def _argument_error(schema: ToolSchema, error: msgspec.ValidationError) -> str:
    known = ", ".join(schema.schema.get("properties", ())) or "(none)"
    return f"Invalid arguments for {schema.name}: {error}. Its parameters: {known}"


async def _run_function(function: ToolFunction, arguments: ToolArguments) -> ToolOutcome:
    if inspect.iscoroutinefunction(function):
        result = await function(**arguments)
    else:
        result = await anyio.to_thread.run_sync(partial(function, **arguments), abandon_on_cancel=True)
        if inspect.isawaitable(result):
            result = await result
    if isinstance(result, ToolOutcome):
        return result
    return ToolOutcome(result if isinstance(result, str) else msgspec.json.encode(result).decode())


def delegation_tools(delegation: Delegation) -> tuple[RemoteTool, ...]:
    """Return the tools that a run delegates with."""
    return tuple(
        RemoteTool(
            ToolSchema(tool.name, tool.description, dict(tool.input_schema)), partial(call_delegation, delegation)
        )
        for tool in delegation.list_tools()
    )


async def call_delegation(delegation: Delegation, use: ToolUse) -> ToolOutcome:
    """Call a delegation tool and return its outcome, failures included; cancelling it stops the child runs."""
    answer = await delegation.call(use.name, use.id, use.args)
    return ToolOutcome(answer.text, is_error=answer.is_error)


async def server_tools(servers: ToolServers) -> tuple[RemoteTool, ...]:
    """Return the granted tools of the MCP servers of a run, once these have started."""

    async def call(use: ToolUse) -> ToolOutcome:
        answer = await servers.call(use.name, use.args)
        return ToolOutcome(answer.text, is_error=answer.is_error, images=answer.images)

    return tuple(
        RemoteTool(ToolSchema(tool.name, tool.description, dict(tool.input_schema)), call)
        for tool in await servers.list_tools()
    )


def finalize_tool(output_schema: Mapping[str, Any] | None = None) -> FunctionTool:
    """Return the tool that validates a finalization; the loop that calls it reports it and ends the run.

    With an output schema, that is the type of `result`.
    """
    tool = make_tool(subagent_finalize)
    if output_schema is None:
        return tool
    schema = finalize_schema(tool.schema, output_schema)
    return FunctionTool(schema, _decode_finalization, partial(_check_finalization, output_schema))


def finalize_schema(tool: ToolSchema, output_schema: Mapping[str, Any]) -> ToolSchema:
    """Return the schema of a finalize tool whose `result` has this type; its definitions move to the root."""
    from retinue.output.schemas import embed_schema

    result, definitions = embed_schema(output_schema, "#/properties/result")
    properties = {**tool.schema["properties"], "result": result}
    return msgspec.structs.replace(tool, schema={**tool.schema, "properties": properties, **definitions})


def _decode_finalization(args: ToolArguments) -> ToolArguments:
    return {"finalization": Finalization.from_arguments(args)}


async def _check_finalization(output_schema: Mapping[str, Any], finalization: Finalization) -> str:
    from retinue.output.schemas import match_result

    if finalization.status == "ERROR":
        return await subagent_finalize("ERROR", "", finalization.error or "")
    value = finalization.result if finalization.structured is None else finalization.structured
    if value is None:
        raise ToolError("SUCCESS requires a result")
    if violations := match_result(output_schema, value)[1]:
        raise ToolError(f"The result does not match its schema:\n{violations}")
    return await subagent_finalize("SUCCESS", finalization.result or "")


async def subagent_finalize(
    status: Literal["SUCCESS", "ERROR"],
    result: Annotated[str, Meta(description="The answer; with ERROR, partial findings")] = "",
    error: Annotated[str, Meta(description="Why the task could not be done")] = "",
) -> str:
    """Report the final result of this task. Must be your last action."""
    if status == "SUCCESS" and not result.strip():
        raise ToolError("SUCCESS requires a non-empty result")
    if status == "ERROR" and not error.strip():
        raise ToolError("ERROR requires a non-empty error")
    return "finalized"
