"""Map the keys of a header to the fields of an agent, and parse their values.

Keys are compared without case, `_` and `-`: `fallback_models` and `fallbackModels` are one key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from retinue.agents.agent import Diagnostic, SourceLayer
from retinue.agents.parse import AgentFileError, AgentHeader, HeaderValue, PlainText
from retinue.config.settings import FALSE_WORDS, TRUE_WORDS
from retinue.model.providers import THINKING_LEVELS
from retinue.model.runs import Secret
from retinue.model.sandbox import SANDBOX_MODES, SandboxMode

if TYPE_CHECKING:
    from retinue.model.hooks import Hook
    from retinue.model.mcp import McpServer

INHERIT_WORDS = frozenset({"*", "all", "inherit", "null", "~"})
"""Values of a tool list that inherit the caller's tools."""
EMPTY_WORDS = frozenset({"none", "null", "~", ""})

MIN_TIMEOUT, MAX_TIMEOUT = 1.0, 7 * 86400.0
MAX_TURNS = 10_000
MAX_DEPTH = 64


class ValueFormatError(Exception):
    """The value has the wrong format; `nearest` is the nearest valid one, if there is one."""

    def __init__(self, expected: str, nearest: float | None = None) -> None:
        super().__init__(expected)
        self.nearest = nearest


ParseValue = Callable[[HeaderValue], object]
"""Parses a value; the reference page describes each parser by its name."""


def parse_text(value: HeaderValue) -> str:
    if not isinstance(value, str):
        raise ValueFormatError("one text")
    return value.strip()


def parse_optional_text(value: HeaderValue) -> str | None:
    found = parse_text(value)
    return None if found.lower() in EMPTY_WORDS else found


def parse_model(value: HeaderValue) -> str | None:
    """Return the model; None for `inherit` and `default`, which mean the engine's own."""
    found = parse_optional_text(value)
    return None if found is None or found.lower() in {"inherit", "default"} else found


def parse_json_object(value: HeaderValue) -> str | None:
    """Return the JSON text of a mapping, or of a text that is a JSON object."""
    if isinstance(value, str) and value.strip().lower() in EMPTY_WORDS:
        return None
    given = str(value) if isinstance(value, str) else msgspec.json.encode(_to_json(value))
    try:
        return msgspec.json.encode(msgspec.json.decode(given, type=dict[str, Any])).decode()
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        raise ValueFormatError("a JSON object") from None


def _to_json(value: HeaderValue) -> Any:
    """Return the JSON value that YAML means: words without quotes may be numbers, booleans or null."""
    match value:
        case PlainText():
            try:
                found = msgspec.json.decode(str(value))
            except msgspec.DecodeError:
                return str(value)
            return found if found is None or isinstance(found, int | float) else str(value)
        case str():
            return value
        case tuple():
            return [_to_json(part) for part in value]
        case _:
            return {str(name): _to_json(part) for name, part in value.items()}


def parse_mcp_servers(value: HeaderValue) -> tuple[McpServer, ...]:
    """Return the MCP servers of a list of names or definitions, or of a mapping of definitions."""
    if isinstance(value, str) and value.strip().lower() in EMPTY_WORDS:
        return ()
    from retinue.agents.mcp_servers import ServersFormatError, parse_servers

    try:
        return parse_servers(value)
    except ServersFormatError:
        raise ValueFormatError("a list of names or definitions of servers") from None


def parse_secret(value: HeaderValue) -> Secret | None:
    found = parse_text(value)
    return Secret(found) if found else None


def parse_flag(value: HeaderValue) -> bool:
    word = parse_text(value).lower()
    if word not in (*TRUE_WORDS, *FALSE_WORDS, ""):
        raise ValueFormatError("true or false")
    return word in TRUE_WORDS


def parse_sandbox(value: HeaderValue) -> SandboxMode:
    word = parse_text(value).lower()
    if word not in SANDBOX_MODES:
        raise ValueFormatError(f"one of {', '.join(SANDBOX_MODES)}")
    return SandboxMode(word)


def parse_inverted_flag(value: HeaderValue) -> bool:
    return not parse_flag(value)


def parse_thinking(value: HeaderValue) -> str | None:
    level = parse_optional_text(value)
    if level is not None and level.lower() not in THINKING_LEVELS:
        raise ValueFormatError(f"one of {', '.join(THINKING_LEVELS)}")
    return level.lower() if level else None


def parse_isolation(value: HeaderValue) -> str | None:
    found = parse_optional_text(value)
    if found is not None and found.lower() != "worktree":
        raise ValueFormatError("worktree or none")
    return found.lower() if found else None


def parse_hooks(value: HeaderValue) -> tuple[Hook, ...]:
    """Return the hooks of a mapping in Claude Code's form."""
    from retinue.agents import hooks

    try:
        return hooks.parse_hooks(value)
    except hooks.HookFormatError as expected:
        raise ValueFormatError(str(expected)) from None


def parse_seconds(value: HeaderValue) -> float:
    return _parse_timeout(value, 1.0)


def parse_milliseconds(value: HeaderValue) -> float:
    return _parse_timeout(value, 0.001)


def parse_turns(value: HeaderValue) -> int:
    return _parse_integer(value, 1, MAX_TURNS)


def parse_depth(value: HeaderValue) -> int:
    return _parse_integer(value, 0, MAX_DEPTH)


def parse_names(value: HeaderValue) -> tuple[str, ...]:
    """Return the names of a list, or of a text with commas, each once, in order."""
    return tuple(dict.fromkeys(_split_items(value, _split_commas)))


def parse_subagents(value: HeaderValue) -> tuple[str, ...] | None:
    """Return the agents of a list; None for `*` and `all`."""
    found = parse_names(value)
    return None if len(found) == 1 and found[0].lower() in {"*", "all"} else found


def parse_arguments(value: HeaderValue) -> tuple[str, ...]:
    """Return a list unchanged, or a text split at commas; repetitions are kept."""
    if isinstance(value, tuple):
        return tuple(parse_text(item) for item in value)
    return tuple(_split_commas(parse_text(value)))


def parse_tool_list(value: HeaderValue) -> tuple[str, ...]:
    """Return the tools of a list, or of a text such as `read, bash`, `Bash(git:*) Read` or `none`."""
    found = _split_tools(value)
    return () if len(found) == 1 and found[0].lower() in EMPTY_WORDS else found


def parse_allow_list(value: HeaderValue) -> tuple[str, ...] | None:
    """Return the tools of a list; None if it inherits them."""
    found = _split_tools(value)
    return None if len(found) == 1 and found[0].lower() in INHERIT_WORDS else parse_tool_list(value)


def _split_tools(value: HeaderValue) -> tuple[str, ...]:
    """Return the tools of a text, or of a list, whose entries may have spaces: `Microsoft Docs` is one tool."""
    split = _split_tool_names if isinstance(value, str) else _split_listed_tools
    return tuple(dict.fromkeys(_split_items(value, split)))


def _split_items(value: HeaderValue, split: Callable[[str], Iterator[str]]) -> Iterator[str]:
    if isinstance(value, str):
        yield from split(value)
    elif isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        for item in value:
            yield from split(str(item))
    else:
        raise ValueFormatError("a list of names")


def _split_commas(joined: str) -> Iterator[str]:
    return (item for part in joined.split(",") if (item := part.strip()))


def _split_listed_tools(joined: str) -> Iterator[str]:
    return _split_tool_names(joined, at_spaces=False)


def _split_tool_names(joined: str, *, at_spaces: bool = True) -> Iterator[str]:
    """Split at commas and white space outside parentheses: patterns may contain both."""
    word, open_parentheses = "", 0
    for character in f"{joined},":
        if open_parentheses == 0 and (character == "," or (at_spaces and character.isspace())):
            if word.strip():
                yield word.strip()
            word = ""
            continue
        open_parentheses = max(0, open_parentheses + (character == "(") - (character == ")"))
        word += character
    if word.strip():
        yield word.strip()


def _parse_timeout(value: HeaderValue, unit: float) -> float:
    try:
        number = float(parse_text(value)) * unit
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number <= 0:
        raise ValueFormatError("a number above 0")
    if number > MAX_TIMEOUT:
        raise ValueFormatError("at most a week", MAX_TIMEOUT)
    if number < MIN_TIMEOUT:
        raise ValueFormatError("at least a second", MIN_TIMEOUT)
    return number


def _parse_integer(value: HeaderValue, low: int, high: int) -> int:
    try:
        number = int(parse_text(value))
    except ValueError:
        number = low - 1
    if number < low:
        raise ValueFormatError(f"a whole number from {low} to {high}")
    if number > high:
        raise ValueFormatError(f"a whole number from {low} to {high}", high)
    return number


class _FieldSpec(NamedTuple):
    field: str
    parse: ParseValue
    spellings: tuple[str, ...]
    essential: bool = False
    """Whether an invalid value makes the file unusable: a restriction must not be lost."""


_FIELD_SPECS = (
    _FieldSpec("name", parse_text, ("name",), essential=True),
    _FieldSpec("description", parse_text, ("description",)),
    _FieldSpec("title", parse_text, ("title",)),
    _FieldSpec("tools", parse_allow_list, ("tools", "approved_tools", "allowed_tools"), essential=True),
    _FieldSpec(
        "denied_tools", parse_tool_list, ("denied_tools", "exclude_tools", "disallowed_tools"), essential=True
    ),
    _FieldSpec("optional_tools", parse_tool_list, ("optional_tools",), essential=True),
    _FieldSpec("readonly", parse_flag, ("readonly",), essential=True),
    _FieldSpec("no_tools", parse_flag, ("no_tools",), essential=True),
    _FieldSpec("grants", parse_allow_list, ("grants",), essential=True),
    _FieldSpec("delegates", parse_flag, ("delegates",), essential=True),
    _FieldSpec("allowed_subagents", parse_subagents, ("allowed_subagents", "allowed_agents"), essential=True),
    _FieldSpec("enabled", parse_flag, ("enabled",), essential=True),
    _FieldSpec("enabled", parse_inverted_flag, ("disabled", "disable"), essential=True),
    _FieldSpec("engine", parse_optional_text, ("engine",)),
    _FieldSpec("provider", parse_optional_text, ("provider",)),
    _FieldSpec("model", parse_model, ("model",)),
    _FieldSpec("fallback_models", parse_names, ("fallback_models",)),
    _FieldSpec("thinking", parse_thinking, ("thinking", "thinking_level", "effort")),
    _FieldSpec("append_system_prompt", parse_text, ("append_system_prompt",)),
    _FieldSpec("extensions", parse_names, ("extensions",)),
    _FieldSpec("no_extensions", parse_flag, ("no_extensions",), essential=True),
    _FieldSpec("load_skills", parse_names, ("load_skills", "skills")),
    _FieldSpec("suggested_skills", parse_names, ("suggested_skills",)),
    _FieldSpec("no_skills", parse_flag, ("no_skills",), essential=True),
    _FieldSpec("no_context_files", parse_flag, ("no_context_files",), essential=True),
    _FieldSpec("extra_args", parse_arguments, ("extra_args",)),
    _FieldSpec("isolation", parse_isolation, ("isolation",), essential=True),
    _FieldSpec("environment", parse_names, ("environment", "env")),
    _FieldSpec("hooks", parse_hooks, ("hooks",), essential=True),
    _FieldSpec("sandbox", parse_sandbox, ("sandbox",), essential=True),
    _FieldSpec("mcp_servers", parse_mcp_servers, ("mcp_servers",)),
    _FieldSpec("api_key", parse_secret, ("api_key",)),
    _FieldSpec("timeout", parse_seconds, ("timeout",)),
    _FieldSpec("timeout", parse_milliseconds, ("timeout_ms",)),
    _FieldSpec("max_turns", parse_turns, ("max_turns",)),
    _FieldSpec("max_subagent_depth", parse_depth, ("max_subagent_depth",)),
    _FieldSpec("output", parse_optional_text, ("output",)),
    _FieldSpec("output_schema", parse_json_object, ("output_schema", "response_schema"), essential=True),
    _FieldSpec("default_reads", parse_names, ("default_reads",)),
    _FieldSpec("default_progress", parse_flag, ("default_progress",)),
    _FieldSpec("color", parse_optional_text, ("color",)),
    _FieldSpec("avatar_emoji", parse_optional_text, ("avatar_emoji",)),
)

_MAX_SHOWN_CHARS = 80
"""Characters of an invalid value in a diagnostic."""

_IGNORED_FIELDS = ("default_progress",)
"""Accepted without effect: progress is always reported."""


def _normalize_key(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


_SPECS_BY_SPELLING = {_normalize_key(spelling): key for key in _FIELD_SPECS for spelling in key.spellings}


def list_field_names(header: AgentHeader) -> set[str]:
    """Return the fields a header has, valid or not."""
    return {key.field for spelling in header.values if (key := _SPECS_BY_SPELLING.get(_normalize_key(spelling)))}


class FieldReader:
    """The fields of an agent from a header, with diagnostics.

    Raises:
        AgentFileError: a name or restriction is invalid.
    """

    def __init__(self, file: str, header: AgentHeader, layer: SourceLayer) -> None:
        self._file, self._lines, self._layer = file, header.lines, layer
        self.values: dict[str, Any] = {}
        self.unknown: list[str] = []
        self.notices = [Diagnostic(file, text, line) for line, text in header.notes]
        self._spelled: dict[str, str] = {}
        for spelling, value in header.values.items():
            self._read(spelling, value)
        for field in _IGNORED_FIELDS:
            self.values.pop(field, None)
        self._assign_flag("extensions", "no_extensions")
        self._assign_flag("load_skills", "no_skills")

    def add_notice(self, field: str, text: str) -> None:
        """Add a diagnostic on a field, under the key that set it."""
        key = self._spelled.get(field, field)
        self.notices.append(Diagnostic(self._file, f"{key}: {text}", self._lines.get(key)))

    def _read(self, spelling: str, value: HeaderValue) -> None:
        key = _SPECS_BY_SPELLING.get(_normalize_key(spelling))
        if key is None:
            self.unknown.append(spelling)
        elif key.field == "api_key" and self._layer is SourceLayer.PROJECT:
            self._add_diagnostic(spelling, "ignored: a project's file may not contain a key")
        elif (first := self._spelled.setdefault(key.field, spelling)) == spelling:
            self._assign(key, spelling, value)
        elif key.field == "denied_tools":
            # All deny lists apply; of other keys for one field only the first does.
            earlier = self.values["denied_tools"]
            self._assign(key, spelling, value)
            self.values["denied_tools"] = (*earlier, *self.values["denied_tools"])
        else:
            self._add_diagnostic(spelling, f"ignored: it means the same as {first}")

    def _assign(self, key: _FieldSpec, spelling: str, value: HeaderValue) -> None:
        try:
            self.values[key.field] = key.parse(value)
        except ValueFormatError as expected:
            problem = f"{_shorten_value(value)} is not {expected}"
            if key.essential:
                raise AgentFileError(f"{spelling}: {problem}", self._lines.get(spelling)) from None
            if expected.nearest is not None:
                self.values[key.field] = expected.nearest
            self._add_diagnostic(spelling, f"{problem}; {expected.nearest or 'the default'} is used")
        if key.field == "hooks":
            from retinue.agents.hooks import list_unused

            if unused := list_unused(value):
                self._add_diagnostic(spelling, f"{', '.join(unused)} not run")
        if key.field == "tools" and value == "":
            self._add_diagnostic(spelling, "is empty, so the agent has no tools; remove the key to inherit tools")

    def _add_diagnostic(self, spelling: str, text: str) -> None:
        self.notices.append(Diagnostic(self._file, f"{spelling}: {text}", self._lines.get(spelling)))

    def _assign_flag(self, names: str, off: str) -> None:
        """Set the flag for `extensions: false` and `skills: none`; both mean none at all."""
        match self.values.get(names):
            case (str(word),) if word.lower() in {"true", "all", "*"}:
                self.values[names] = ()
            case (str(word),) if word.lower() in {"false", "none"}:
                self.values[names] = ()
                self.values[off] = True


def _shorten_value(value: HeaderValue) -> str:
    shown = ascii(value)
    return shown if len(shown) <= _MAX_SHOWN_CHARS else f"{shown[:_MAX_SHOWN_CHARS]}…"
