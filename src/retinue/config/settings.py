"""Layered settings: call > environment > project > user > toolset default, each value with its source.

A project's files may only lower limits or set what is displayed; anything else in them is ignored and reported.
Values out of range are clamped, values of a wrong type are ignored; both are reported, never silent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterator, Mapping
from enum import Enum
from functools import lru_cache, partial
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from retinue.model.providers import MAX_MODEL_CHARS, THINKING_LEVELS, ProviderSettings, covers_model
from retinue.model.runs import Limits, WorktreeBase
from retinue.model.sandbox import SANDBOX_MODES, SandboxMode, parse_host_pattern
from retinue.support.formatting import parse_duration, suggest_spelling

PROVIDERS_KEY = "providers"
PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""Names that can stand before the slash of a model."""


def parse_providers(value: Any) -> tuple[Mapping[str, ProviderSettings], tuple[str, ...]]:
    """Return the valid tables by name, and a message for each that is ignored."""
    if not isinstance(value, Mapping):
        return {}, (f"{PROVIDERS_KEY} ignored: expected tables such as [{PROVIDERS_KEY}.vllm]",)
    found: dict[str, ProviderSettings] = {}
    problems: list[str] = []
    for name, table in value.items():
        if not PROVIDER_NAME.fullmatch(name):
            problems.append(f"{PROVIDERS_KEY}.{name} ignored: a name has lowercase letters, digits, '-' and '_'")
            continue
        try:
            found[name] = msgspec.convert(table, ProviderSettings)
        except msgspec.ValidationError as error:
            problems.append(f"{PROVIDERS_KEY}.{name} ignored: {error}")
    return found, tuple(problems)


TRUE_WORDS = ("1", "true", "yes", "on")
FALSE_WORDS = ("0", "false", "no", "off")


class Settings(Struct, frozen=True, kw_only=True):
    """Every setting with its general default; a toolset may have other defaults."""

    enabled: bool = True
    engine: str = "auto"
    model: str | None = None
    effort: str | None = None
    """The thinking level of runs whose agent names none."""
    models: tuple[str, ...] | None = None
    """Patterns of the models that calls may choose. None: people and programs any, other models none."""
    timeout: float = 1800.0
    idle_timeout: float = 0.0
    """Seconds without an event while no tool runs; 0 is off."""
    ceiling_factor: float = 4.0
    extend_timeout_debounce: float = 30.0
    """Seconds each tool call after the timeout adds; 0 makes the timeout hard."""
    looping_tool_count: int = 5
    looping_pair_count: int = 20
    looping_pattern_count: int = 12
    looping_text_count: int = 10
    max_tasks: int = 16
    max_concurrency: int = 4
    max_depth: int = 3
    max_spawns: int = 64
    max_turns: int = 0
    max_tokens: int = 0
    max_cost: float = 0.0
    max_memory_bytes: int = 0
    max_processes: int = 0
    max_disk_bytes: int = 0
    max_conversation_turns: int = 0
    max_conversation_tokens: int = 0
    max_conversation_cost: float = 0.0
    isolation: Literal["none", "worktree"] = "none"
    """`none` or `worktree`: whether runs whose task and agent ask for neither work in a git worktree of their own."""
    worktree_base: WorktreeBase = "tree"
    """What a worktree starts from: `tree` has uncommitted and untracked files, `head` is the last commit."""
    allow_write: bool = True
    fetch_private_addresses: bool = False
    """Whether `fetch_content` may use addresses that are not public."""
    project_agents: Literal["ask", "allow", "deny"] = "ask"
    """`ask`, `allow` or `deny`: whether a project's own agents run before the user accepted them."""
    sandbox: Literal["off", "workspace", "strict"] = "off"
    """`off`, `workspace` or `strict`: how far processes and tools of runs are confined."""
    sandbox_read: tuple[str, ...] = ()
    sandbox_write: tuple[str, ...] = ()
    sandbox_hosts: tuple[str, ...] = ()
    vault: str | None = None
    finalize_retries: int = 2
    retry_attempts: int = 1
    max_lines_per_window: int = 15
    max_task_bytes: int = 2**20
    resume: Literal["text", "native"] = "text"
    """`text` or `native`: how a session is continued where the toolset continues it from its transcript."""
    warm_pool: bool = True
    """Whether an engine's process may serve one run after the other."""
    claude_settings: Literal["none", "user", "project", "both"] = "none"
    """Which of Claude Code's own settings its runs load: `none`, `user`, `project` or `both`."""
    policy: bool = False
    """Whether a host's model gets a hint when to delegate, and to which agents."""

    def limits(self) -> Limits:
        """Return the limits of one run under these settings."""
        return Limits(
            timeout=self.timeout,
            grace=self.extend_timeout_debounce,
            ceiling=max(self.ceiling_factor * self.timeout, self.timeout + self.extend_timeout_debounce),
            idle_timeout=self.idle_timeout or None,
            loop_count=self.looping_tool_count,
            pair_count=self.looping_pair_count,
            pattern_count=self.looping_pattern_count,
            text_count=self.looping_text_count,
            max_turns=self.max_turns or None,
            max_tokens=self.max_tokens or None,
            max_cost=self.max_cost or None,
            max_memory_bytes=self.max_memory_bytes or None,
            max_processes=self.max_processes or None,
            max_disk_bytes=self.max_disk_bytes or None,
            max_conversation_turns=self.max_conversation_turns or None,
            max_conversation_tokens=self.max_conversation_tokens or None,
            max_conversation_cost=self.max_conversation_cost or None,
            retry_attempts=self.retry_attempts,
            finalize_retries=self.finalize_retries,
            max_task_bytes=self.max_task_bytes,
        )


ToolsetDefaults = Mapping[str, Mapping[str, Any]]
"""The settings whose default differs from the general one, by toolset; it names every toolset."""


class ProjectPolicy(Enum):
    """Effect of a setting in a project's own file."""

    LOWER = "lower"
    """The value applies only where it is stricter."""
    DISPLAY = "display"
    """The value applies: it changes nothing but the display."""
    IGNORED = "ignored"


MAX_DOLLARS = 1e9


class SettingRule(Struct, frozen=True):
    """Range, choices and project policy of one setting."""

    low: float = 0.0
    high: float = 2.0**53
    """Larger numbers are not exact, and no limit means anything."""
    in_project: ProjectPolicy = ProjectPolicy.LOWER
    choices: tuple[str, ...] = ()
    zero_is_off: bool = False
    """0 switches the limit off: it is the laxest value, not the strictest."""
    is_duration: bool = False
    """A text may have a unit: `90s`, `15m`, `2h`."""
    is_restriction: bool = False
    """It restricts runs where its default does not: a value that cannot be read stops them."""
    note: str = ""


_NEVER = ProjectPolicy.IGNORED

SETTING_RULES: Mapping[str, SettingRule] = {
    "enabled": SettingRule(in_project=_NEVER, is_restriction=True, note="whether runs can be started"),
    "engine": SettingRule(in_project=_NEVER, note="`auto` or the name of an engine"),
    "model": SettingRule(in_project=_NEVER, note="the model of runs that name none"),
    "effort": SettingRule(
        in_project=_NEVER, choices=THINKING_LEVELS, note="how much a model thinks; default: the model's own"
    ),
    "models": SettingRule(
        note="models that calls may choose, such as `anthropic/*`; separated by commas in a variable"
    ),
    "timeout": SettingRule(
        low=1.0, high=7 * 86400.0, is_duration=True, note="time limit of a run in seconds, or a time such as `15m`"
    ),
    "idle_timeout": SettingRule(
        zero_is_off=True, is_duration=True, note="seconds without an event while no tool runs; 0 is off"
    ),
    "ceiling_factor": SettingRule(low=1.0, high=100.0, note="hard limit of extensions, as a multiple of the timeout"),
    "extend_timeout_debounce": SettingRule(
        high=300.0, is_duration=True, note="seconds that each tool call past the timeout adds"
    ),
    "looping_tool_count": SettingRule(
        high=50, zero_is_off=True, note="identical calls in a row that count as a loop; 0 is off"
    ),
    "looping_pair_count": SettingRule(
        high=1000, zero_is_off=True, note="unchanged pairs of calls that count as a loop; 0 is off"
    ),
    "looping_pattern_count": SettingRule(
        high=1000,
        zero_is_off=True,
        note="calls that differ only in a number or an id and return the same, which count as a loop; 0 is off",
    ),
    "looping_text_count": SettingRule(
        high=1000, zero_is_off=True, note="times an agent writes the same text that count as a loop; 0 is off"
    ),
    "max_tasks": SettingRule(low=1, high=100_000, note="maximum tasks in one call"),
    "max_concurrency": SettingRule(low=1, high=100_000, note="maximum runs at once; others are queued"),
    "max_depth": SettingRule(high=64, note="maximum depth of child runs; 1 is no delegation"),
    "max_spawns": SettingRule(low=1, high=10**9, note="maximum runs that agents start below one call"),
    "max_turns": SettingRule(
        zero_is_off=True, is_restriction=True, note="maximum assistant messages of a run; 0 is off"
    ),
    "max_tokens": SettingRule(zero_is_off=True, is_restriction=True, note="maximum tokens of a run; 0 is off"),
    "max_cost": SettingRule(
        high=MAX_DOLLARS, zero_is_off=True, is_restriction=True, note="maximum cost of a run in dollars; 0 is off"
    ),
    "max_memory_bytes": SettingRule(
        zero_is_off=True,
        is_restriction=True,
        note="maximum memory of the processes of a run together, in bytes; Linux only; 0 is off",
    ),
    "max_processes": SettingRule(
        zero_is_off=True, is_restriction=True, note="maximum processes of a run at once; Linux only; 0 is off"
    ),
    "max_disk_bytes": SettingRule(
        zero_is_off=True,
        is_restriction=True,
        note="maximum bytes that the processes of a run write to storage; Linux only; 0 is off",
    ),
    "max_conversation_turns": SettingRule(
        zero_is_off=True, is_restriction=True, note="maximum messages of all runs of a conversation; 0 is off"
    ),
    "max_conversation_tokens": SettingRule(
        zero_is_off=True, is_restriction=True, note="maximum tokens of all runs of a conversation; 0 is off"
    ),
    "max_conversation_cost": SettingRule(
        high=MAX_DOLLARS,
        zero_is_off=True,
        is_restriction=True,
        note="maximum cost of all runs of a conversation in dollars; 0 is off",
    ),
    "isolation": SettingRule(
        in_project=_NEVER,
        is_restriction=True,
        choices=("none", "worktree"),
        note="`worktree` lets each run work in a git worktree of its own",
    ),
    "worktree_base": SettingRule(
        in_project=_NEVER,
        choices=("tree", "head"),
        note="what a worktree starts from: your files as they are, or the last commit",
    ),
    "allow_write": SettingRule(
        in_project=_NEVER, is_restriction=True, note="whether agents may have tools that write or execute"
    ),
    "fetch_private_addresses": SettingRule(
        in_project=_NEVER, note="whether `fetch_content` may read addresses that are not public"
    ),
    "project_agents": SettingRule(
        in_project=_NEVER,
        is_restriction=True,
        choices=("ask", "allow", "deny"),
        note="what happens with a project's agents that you have not approved",
    ),
    "sandbox": SettingRule(
        choices=tuple(map(str, SANDBOX_MODES)),
        note="how far the processes and tools of runs are confined; a project can only tighten it",
    ),
    "sandbox_read": SettingRule(
        in_project=_NEVER, note="further paths that sandboxed runs read, such as `~/data`; separated by commas"
    ),
    "sandbox_write": SettingRule(
        in_project=_NEVER, note="further paths that sandboxed runs write, such as `~/.cache/pip`; separated by commas"
    ),
    "sandbox_hosts": SettingRule(
        in_project=_NEVER,
        note="hosts that runs in `strict` reach beside their provider, such as `github.com`, `*.example.org` or "
        "`localhost:8080`; separated by commas",
    ),
    "vault": SettingRule(in_project=_NEVER, note="your folder with `agents/<slug>/`; runs are logged there, too"),
    "finalize_retries": SettingRule(high=10, note="how often an agent is asked again for a missing finalization"),
    "retry_attempts": SettingRule(low=1, high=10, note="attempts of a run in total on temporary provider errors"),
    "max_lines_per_window": SettingRule(
        low=1, high=1000, in_project=ProjectPolicy.DISPLAY, note="lines of a live window"
    ),
    "max_task_bytes": SettingRule(low=1, high=2**30, note="maximum size of a task in bytes"),
    "warm_pool": SettingRule(in_project=_NEVER, note="whether an engine's process is reused for later runs"),
    "claude_settings": SettingRule(
        in_project=_NEVER,
        choices=("none", "user", "project", "both"),
        note="which Claude Code settings and `CLAUDE.md` its runs load; never hooks",
    ),
    "policy": SettingRule(in_project=_NEVER, note="whether a host's model gets instructions on when to delegate"),
    "resume": SettingRule(choices=("text", "native"), in_project=_NEVER, note="how a session is continued"),
}

_TYPES: Mapping[str, Any] = {field.name: field.type for field in structs.fields(Settings)}
ENVIRONMENT = "environment"
"""The source of settings that are variables."""
OTHER_VARIABLES = frozenset({
    "RETINUE_AGENT_API_KEY", "RETINUE_CLAUDE", "RETINUE_DEBUG", "RETINUE_PI", "RETINUE_SCRIPT", "RETINUE_STATE",
})  # fmt: skip
"""Variables of Retinue that are no settings."""
_VARIABLES = {key: f"RETINUE_{key.upper()}" for key in SETTING_RULES}


class SettingProblem(Struct, frozen=True):
    """A value or key of a source that was ignored or changed."""

    source: str
    message: str
    is_restriction: bool = False
    """Whether it is a restriction that was not applied."""


class SettingsLayer(Struct, frozen=True, kw_only=True):
    """The raw values of one source, strongest layer first in a list of them."""

    name: str
    """`call`, `environment`, or the file."""
    values: Mapping[str, Any]
    """Flat keys, and a table per toolset."""
    is_project: bool = False
    is_user_file: bool = False
    """Whether it is the user's own file, which alone may configure providers."""
    problems: tuple[SettingProblem, ...] = ()
    """Problems found when it was read."""


class SettingValue(Struct, frozen=True):
    value: Any
    source: str


class ResolvedSettings(Struct, frozen=True):
    """Settings with the source of each value and the problems found in the sources."""

    settings: Settings
    sources: Mapping[str, SettingValue]
    problems: tuple[SettingProblem, ...]

    @property
    def unreadable_restrictions(self) -> tuple[SettingProblem, ...]:
        """The user's restrictions that cannot be read: no run starts without them."""
        return tuple(problem for problem in self.problems if problem.is_restriction)


def resolve_settings(toolset: str, layers: list[SettingsLayer], defaults: ToolsetDefaults) -> ResolvedSettings:
    """Merge the layers, strongest first, over the defaults of the toolset."""
    problems: list[SettingProblem] = []
    sources = dict(_default_values(toolset, tuple(defaults.get(toolset, {}).items())))
    for layer in reversed(layers):
        for key, value in _layer_entries(layer, toolset, defaults, problems):
            accepted = _validate_value(layer, key, value, sources[key].value, problems)
            if accepted is not None:
                sources[key] = SettingValue(accepted.value, layer.name)
    settings = Settings(**{key: source.value for key, source in sources.items()})
    return ResolvedSettings(settings, sources, tuple(problems))


@lru_cache(maxsize=16)
def _default_values(toolset: str, own: tuple[tuple[str, Any], ...]) -> Mapping[str, SettingValue]:
    default = structs.asdict(Settings(**dict(own)))
    return {key: SettingValue(value, f"default of {toolset}") for key, value in default.items()}


def environment_layer(environ: Mapping[str, str]) -> SettingsLayer:
    """Return the settings of the environment; a variable whose name is nearly that of a setting is a problem."""
    found = {key: environ[name] for key, name in _VARIABLES.items() if name in environ}
    problems = tuple(_find_misspelled_variables(environ))
    return SettingsLayer(name=ENVIRONMENT, values=found, problems=problems)


def _find_misspelled_variables(environ: Mapping[str, str]) -> Iterator[SettingProblem]:
    known = frozenset(_VARIABLES.values()) | OTHER_VARIABLES
    for name in environ:
        if (
            name.startswith("RETINUE_")
            and name not in known
            and (near := suggest_spelling(name, _VARIABLES.values()))
        ):
            yield SettingProblem(ENVIRONMENT, f"{name} is not a setting and was ignored.{near}")


def _layer_entries(
    layer: SettingsLayer, toolset: str, toolsets: Container[str], problems: list[SettingProblem]
) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a layer, those of the toolset's own table last; report unknown keys."""
    for key, value in layer.values.items():
        if key in SETTING_RULES:
            yield key, value
        elif key == PROVIDERS_KEY and layer.is_user_file:
            problems += (SettingProblem(layer.name, message) for message in parse_providers(value)[1])
        elif key == PROVIDERS_KEY and layer.is_project:
            problems.append(SettingProblem(layer.name, f"{key} cannot be set by a project; ignored"))
        elif key not in toolsets:
            problems.append(
                SettingProblem(layer.name, f"unknown setting {key!r} ignored.{suggest_spelling(key, SETTING_RULES)}")
            )
    table = layer.values.get(toolset)
    if not isinstance(table, Mapping):
        return
    for key, value in table.items():
        if key in SETTING_RULES:
            yield key, value
        else:
            near = suggest_spelling(key, SETTING_RULES)
            problems.append(SettingProblem(layer.name, f"unknown setting {toolset}.{key} ignored.{near}"))


class _AcceptedValue(Struct, frozen=True):
    value: Any


def _validate_value(
    layer: SettingsLayer, key: str, value: Any, weaker: Any, problems: list[SettingProblem]
) -> _AcceptedValue | None:
    """Return the value that applies, or None if it is ignored."""
    rule = SETTING_RULES[key]
    if layer.is_project and rule.in_project is ProjectPolicy.IGNORED:
        problems.append(SettingProblem(layer.name, f"{key} cannot be set by a project; ignored"))
        return None
    try:
        converted = _convert(key, value)
    except (SettingValueError, msgspec.ValidationError) as error:
        expected = (
            error if isinstance(error, SettingValueError) else f"expected {_TYPE_NAMES.get(_TYPES[key], 'text')}"
        )
        is_restriction = rule.is_restriction and not layer.is_project
        effect = "cannot be read" if is_restriction else "ignored"
        message = f"{_quote_setting(layer, key, value)} {effect}: {expected}"
        problems.append(SettingProblem(layer.name, message, is_restriction))
        return None
    except SandboxModeError as error:
        # A restriction that cannot be read is not lifted.
        problems.append(SettingProblem(layer.name, f"{_quote_setting(layer, key, value)}: {error}"))
        converted = str(SandboxMode.STRICT)
    clamped = _clamp(rule, converted)
    if clamped != converted:
        problems.append(
            SettingProblem(layer.name, f"{_quote_setting(layer, key, value)} is out of range; {clamped!r} is used")
        )
    if layer.is_project and isinstance(clamped, tuple):
        return _narrow(layer, key, clamped, weaker, problems)
    if (
        layer.is_project
        and rule.in_project is ProjectPolicy.LOWER
        and _laxness(rule, clamped) > _laxness(rule, weaker)
    ):
        problems.append(SettingProblem(layer.name, f"{key} = {value!r} would raise a limit ({weaker!r}); ignored"))
        return None
    return _AcceptedValue(clamped)


class SettingValueError(Exception):
    """A value that a setting cannot have; the message has what was expected."""


class SandboxModeError(Exception):
    """A text that is no mode of a sandbox; the message has what was expected and which mode is used."""


PATTERNS_EXPECTED = "expected patterns such as anthropic/*"
_TYPE_NAMES: Mapping[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _quote_setting(layer: SettingsLayer, key: str, value: Any) -> str:
    """Return a setting as it is written in its source."""
    return f"{_VARIABLES[key]}={value!r}" if layer.name == ENVIRONMENT else f"{key} = {value!r}"


def _narrow(
    layer: SettingsLayer, key: str, patterns: tuple[str, ...], wider: Any, problems: list[SettingProblem]
) -> _AcceptedValue | None:
    """Return the patterns of a project that allow nothing new, or None where only the user's list would allow any."""
    if wider is None:
        problems.append(SettingProblem(layer.name, f"{key} ignored: a project can only shorten your list"))
        return None
    kept = tuple(each for each in patterns if any(covers_model(other, each) for other in wider))
    if dropped := [each for each in patterns if each not in kept]:
        message = f"{key}: {', '.join(dropped)} ignored: your list ({', '.join(wider)}) does not cover it"
        problems.append(SettingProblem(layer.name, message))
    return _AcceptedValue(kept)


def _convert_patterns(value: Any) -> tuple[str, ...]:
    try:
        given = value.split(",") if isinstance(value, str) else msgspec.convert(value, tuple[str, ...])
    except msgspec.ValidationError as error:
        raise SettingValueError(PATTERNS_EXPECTED) from error
    patterns = tuple(each.strip() for each in given if each.strip())
    if any(len(each) > MAX_MODEL_CHARS or not each.isprintable() for each in patterns):
        raise SettingValueError(PATTERNS_EXPECTED)
    return patterns


def _convert_sandbox_mode(value: Any) -> str:
    """Return the mode.

    Raises:
        SandboxModeError: it is none.
    """
    if isinstance(value, str) and value.strip().lower() in SANDBOX_MODES:
        return value.strip().lower()
    raise SandboxModeError(f"expected one of {', '.join(SANDBOX_MODES)}; {SandboxMode.STRICT} is used")


def _is_sandbox_path(path: str) -> bool:
    return path.startswith(("/", "~/")) and bool(path.strip("/~")) and path.isprintable()


_PATHS_EXPECTED = "expected absolute paths, or paths that begin with ~/"
_LIST_ITEMS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "sandbox_read": (_is_sandbox_path, _PATHS_EXPECTED),
    "sandbox_write": (_is_sandbox_path, _PATHS_EXPECTED),
    "sandbox_hosts": (parse_host_pattern, "expected hosts such as github.com, *.example.org or localhost:8080"),
}
"""The check of each item of a list, and what is expected."""


def _convert_list(key: str, value: Any) -> tuple[str, ...]:
    is_valid, expected = _LIST_ITEMS[key]
    try:
        given = value.split(",") if isinstance(value, str) else msgspec.convert(value, tuple[str, ...])
    except msgspec.ValidationError as error:
        raise SettingValueError(expected) from error
    items = tuple(item.strip() for item in given if item.strip())
    if not all(map(is_valid, items)):
        raise SettingValueError(expected)
    return items


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "models": _convert_patterns,
    "sandbox": _convert_sandbox_mode,
    **{key: partial(_convert_list, key) for key in _LIST_ITEMS},
}


def _convert(key: str, value: Any) -> Any:
    """Return the value in the type of the setting.

    Raises:
        SettingValueError: it has another type, or is none of the choices.
        SandboxModeError: it is no mode of a sandbox.
    """
    kind = _TYPES[key]
    if kind is bool and isinstance(value, str):
        if value.lower() not in TRUE_WORDS + FALSE_WORDS:
            raise SettingValueError("expected true or false")
        return value.lower() in TRUE_WORDS
    if SETTING_RULES[key].is_duration:
        return _convert_duration(value)
    if kind in (int, float) and isinstance(value, bool):
        raise SettingValueError("expected a number")
    if convert := _CONVERTERS.get(key):
        return convert(value)
    choices = SETTING_RULES[key].choices
    if choices and value not in choices:
        raise SettingValueError(f"expected one of {', '.join(choices)}")
    try:
        converted = msgspec.convert(value, kind, strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        raise SettingValueError(f"expected {_TYPE_NAMES.get(kind, 'text')}") from error
    if isinstance(converted, float) and not math.isfinite(converted):
        raise SettingValueError("expected a finite number")
    return converted


def _convert_duration(value: Any) -> float:
    """Return the seconds of a number or of a text such as `15m`.

    Raises:
        SettingValueError: it is neither.
    """
    seconds = parse_duration(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise SettingValueError("expected seconds, e.g. 300 or 5m")
    return float(seconds)


def _clamp(rule: SettingRule, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return type(value)(min(max(value, rule.low), rule.high))


def _laxness(rule: SettingRule, value: Any) -> float:
    if rule.choices:  # the laxest is the first
        return -rule.choices.index(value)
    if rule.zero_is_off and value == 0:
        return math.inf
    return float(value)
