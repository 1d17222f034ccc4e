"""Tools for the agent loop: typed Python functions with their schemas, and calls that never end a run.

async def weather(city: Annotated[str, Meta(description="Where")]) -> str:
    "Tells the weather."

toolbox = Toolbox([tool(weather)])
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache, partial
from typing import Any, get_type_hints

import anyio.to_thread
import msgspec
from msgspec import Struct

from retinue.engines.bounds import bounded
from retinue.types import Args, ToolUse

Function = Callable[..., str | Awaitable[str]]


class ToolError(Exception):
    """A tool could not do what it was asked; the message tells the model why and what to do instead."""


class Declaration(Struct, frozen=True):
    """What a model is told of a tool."""

    name: str
    description: str
    schema: dict[str, Any]
    """JSON schema of the arguments."""


class Tool(Struct, frozen=True):
    declaration: Declaration
    decode: Callable[[Args], Args]
    """Arguments as the model gave them → as the function takes them. Raises `msgspec.ValidationError`."""
    function: Function


class Elsewhere(Struct, frozen=True):
    """A tool that is carried out elsewhere, where its arguments are judged and its result is bounded, too."""

    declaration: Declaration
    call: Callable[[ToolUse], Awaitable[Outcome]]


class Outcome(Struct, frozen=True):
    """What a call came to."""

    text: str
    is_error: bool = False


def tool(function: Function, *bound: object) -> Tool:
    """Makes a tool of a function: its name, docstring and annotated parameters are what the model sees.

    Parameters are camelCase to the model; the first ones, as many as are `bound`, it does not see. A plain
    function runs in a worker thread, which is left to itself when the run is cancelled.

    Raises:
        TypeError: a parameter has no annotation, or cannot be given by name.
    """
    declaration, decode = _declare(function, len(bound))
    return Tool(declaration, decode, partial(function, *bound))


class Toolbox:
    """The tools of a run, by name, in the order given."""

    def __init__(self, tools: Iterable[Tool | Elsewhere] = ()) -> None:
        self._tools = {each.declaration.name: each for each in tools}
        self.declarations = tuple(each.declaration for each in self._tools.values())

    def only(self, names: Iterable[str]) -> Toolbox:
        """The same tools without those not named."""
        names = frozenset(names)
        return Toolbox(each for name, each in self._tools.items() if name in names)

    def plus(self, *tools: Tool | Elsewhere) -> Toolbox:
        return Toolbox((*self._tools.values(), *tools))

    async def call(self, use: ToolUse) -> Outcome:
        """Calls a tool. Whatever goes wrong is an outcome that tells the model; only cancellation gets through."""
        wanted = self._tools.get(use.name)
        if wanted is None:
            return Outcome(
                f"Unknown tool: {use.name}. Available tools: {', '.join(self._tools) or '(none)'}", is_error=True
            )
        if isinstance(wanted, Elsewhere):
            return await wanted.call(use)
        try:
            arguments = wanted.decode(use.args)
        except msgspec.ValidationError as error:
            return Outcome(_complaint(wanted.declaration, error), is_error=True)
        try:
            return Outcome(bounded(await _run(wanted.function, arguments)))
        except ToolError as error:
            return Outcome(bounded(str(error)), is_error=True)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool is foreign code, and this is its border
            return Outcome(bounded(f"{use.name} failed: {type(error).__name__}: {error}"), is_error=True)


@lru_cache(maxsize=256)
def _declare(function: Function, skipped: int) -> tuple[Declaration, Callable[[Args], Args]]:
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
    shape = msgspec.defstruct(name, fields, rename="camel", forbid_unknown_fields=True, kw_only=True)
    return Declaration(name, inspect.getdoc(function) or "", _schema(shape)), partial(_decode, shape)


def _schema(shape: type[Struct]) -> dict[str, Any]:
    # msgspec puts a reference at the root; model providers want the object itself there.
    schema = msgspec.json.schema(shape)
    components: dict[str, Any] = schema["$defs"]
    root: dict[str, Any] = components.pop(schema["$ref"].rpartition("/")[2])
    return {**root, "$defs": components} if components else root


def _decode(shape: type[Struct], args: Args) -> Args:
    # Models write null for "not given" and quote their numbers.
    given = {key: value for key, value in args.items() if value is not None}
    return msgspec.structs.asdict(msgspec.convert(given, shape, strict=False))


def _complaint(declaration: Declaration, error: msgspec.ValidationError) -> str:
    known = ", ".join(declaration.schema.get("properties", ())) or "(none)"
    return f"Invalid arguments for {declaration.name}: {error}. Its parameters: {known}"


async def _run(function: Function, arguments: Args) -> str:
    if inspect.iscoroutinefunction(function):
        text: str = await function(**arguments)
        return text
    result = await anyio.to_thread.run_sync(partial(function, **arguments), abandon_on_cancel=True)
    return result if isinstance(result, str) else await result
