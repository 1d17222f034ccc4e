"""The alias table: which keys of a header mean which field of an agent, and how their values are read.

Keys are compared without case, `_` and `-`: `fallback_models` and `fallbackModels` are one key.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from retinue.agents import values
from retinue.agents.definition import Layer, Remark
from retinue.agents.files import Broken
from retinue.agents.header import Header, Value
from retinue.agents.values import Expected, Reader


class _Key(NamedTuple):
    field: str
    read: Reader
    spellings: tuple[str, ...]
    essential: bool = False
    """Whether the file is broken when the value cannot be read: a restriction must not be guessed away."""


_TABLE = (
    _Key("name", values.text, ("name",), essential=True),
    _Key("description", values.text, ("description",)),
    _Key("tools", values.allow_list, ("tools", "approved_tools", "allowed_tools"), essential=True),
    _Key("denied_tools", values.tool_list, ("denied_tools", "exclude_tools", "disallowed_tools"), essential=True),
    _Key("optional_tools", values.tool_list, ("optional_tools",), essential=True),
    _Key("readonly", values.flag, ("readonly",), essential=True),
    _Key("no_tools", values.flag, ("no_tools",), essential=True),
    _Key("grants", values.allow_list, ("grants",), essential=True),
    _Key("delegates", values.flag, ("delegates",), essential=True),
    _Key("enabled", values.flag, ("enabled",), essential=True),
    _Key("enabled", values.inverted_flag, ("disabled", "disable"), essential=True),
    _Key("engine", values.optional_text, ("engine",)),
    _Key("provider", values.optional_text, ("provider",)),
    _Key("model", values.model, ("model",)),
    _Key("fallback_models", values.names, ("fallback_models",)),
    _Key("thinking", values.thinking, ("thinking", "thinking_level", "effort")),
    _Key("append_system_prompt", values.text, ("append_system_prompt",)),
    _Key("extensions", values.names, ("extensions",)),
    _Key("no_extensions", values.flag, ("no_extensions",), essential=True),
    _Key("load_skills", values.names, ("load_skills", "skills")),
    _Key("suggested_skills", values.names, ("suggested_skills",)),
    _Key("no_skills", values.flag, ("no_skills",), essential=True),
    _Key("no_context_files", values.flag, ("no_context_files",), essential=True),
    _Key("extra_args", values.arguments, ("extra_args",)),
    _Key("environment", values.names, ("environment", "env")),
    _Key("api_key", values.secret, ("api_key",)),
    _Key("timeout", values.seconds, ("timeout",)),
    _Key("timeout", values.milliseconds, ("timeout_ms",)),
    _Key("max_turns", values.turns, ("max_turns",)),
    _Key("max_subagent_depth", values.depth, ("max_subagent_depth",)),
    _Key("output", values.optional_text, ("output",)),
    _Key("default_reads", values.names, ("default_reads",)),
    _Key("default_progress", values.flag, ("default_progress",)),
    _Key("color", values.optional_text, ("color",)),
    _Key("avatar_emoji", values.optional_text, ("avatar_emoji",)),
)

_SHOWN = 80
"""Characters of an unreadable value in a remark."""

_WITHOUT_EFFECT = ("default_progress",)
"""Known, and nothing to do: progress is always reported."""


def _plain(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


_KEYS = {_plain(spelling): key for key in _TABLE for spelling in key.spellings}


def field_names(header: Header) -> set[str]:
    """The fields a header speaks of, readable or not."""
    return {key.field for spelling in header.values if (key := _KEYS.get(_plain(spelling)))}


class Fields:
    """The fields of an agent that a header gives, and what was odd about them.

    Raises:
        Broken: a name or restriction cannot be read.
    """

    def __init__(self, file: str, header: Header, layer: Layer) -> None:
        self._file, self._lines, self._layer = file, header.lines, layer
        self.values: dict[str, Any] = {}
        self.unknown: list[str] = []
        self.notices = [Remark(file, text, line) for line, text in header.notes]
        self._spelled: dict[str, str] = {}
        for spelling, value in header.values.items():
            self._take(spelling, value)
        for field in _WITHOUT_EFFECT:
            self.values.pop(field, None)
        self._switch("extensions", "no_extensions")
        self._switch("load_skills", "no_skills")

    def note(self, field: str, text: str) -> None:
        """Adds a remark on a field, under the key that gave it."""
        key = self._spelled.get(field, field)
        self.notices.append(Remark(self._file, f"{key}: {text}", self._lines.get(key)))

    def _take(self, spelling: str, value: Value) -> None:
        key = _KEYS.get(_plain(spelling))
        if key is None:
            self.unknown.append(spelling)
        elif key.field == "api_key" and self._layer is Layer.PROJECT:
            self._remark(spelling, "a project's file may not bring a key; ignored")
        elif (first := self._spelled.setdefault(key.field, spelling)) == spelling:
            self._set(key, spelling, value)
        elif key.field == "denied_tools":
            # Every deny list holds; of other keys with one meaning the first does.
            earlier = self.values["denied_tools"]
            self._set(key, spelling, value)
            self.values["denied_tools"] = (*earlier, *self.values["denied_tools"])
        else:
            self._remark(spelling, f"means the same as {first}, which counts")

    def _set(self, key: _Key, spelling: str, value: Value) -> None:
        try:
            self.values[key.field] = key.read(value)
        except Expected as expected:
            problem = f"{_shown(value)} is not {expected}"
            if key.essential:
                raise Broken(f"{spelling}: {problem}", self._lines.get(spelling)) from None
            if expected.instead is not None:
                self.values[key.field] = expected.instead
            self._remark(spelling, f"{problem}; {expected.instead or 'the default'} is used")
        if key.field == "tools" and value == "":
            self._remark(spelling, "is empty, so there are no tools; leave the key out to inherit them")

    def _remark(self, spelling: str, text: str) -> None:
        self.notices.append(Remark(self._file, f"{spelling}: {text}", self._lines.get(spelling)))

    def _switch(self, names: str, off: str) -> None:
        """Reads `extensions: false` and `skills: none` as what they say: none at all."""
        match self.values.get(names):
            case (str(word),) if word.lower() in {"true", "all", "*"}:
                self.values[names] = ()
            case (str(word),) if word.lower() in {"false", "none"}:
                self.values[names] = ()
                self.values[off] = True


def _shown(value: Value) -> str:
    shown = ascii(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
