"""What the text of a header can mean: flags, numbers, names. Each reader returns a value or says what it expects."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from retinue.agents.header import Value
from retinue.secret import Secret
from retinue.settings import OFF, ON

INHERIT = frozenset({"*", "all", "inherit", "null", "~"})
"""Instead of a tool list: whatever the caller has."""
NOTHING = frozenset({"none", "null", "~", ""})

THINKING = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
MIN_TIMEOUT, MAX_TIMEOUT = 1.0, 7 * 86400.0
MAX_TURNS = 10_000
MAX_DEPTH = 64


class Expected(Exception):  # noqa: N818 - it names what should have stood there
    """The text is not what the key needs; `instead` is the nearest value that is, where there is one."""

    def __init__(self, what: str, instead: float | None = None) -> None:
        super().__init__(what)
        self.instead = instead


Reader = Callable[[Value], object]


def text(value: Value) -> str:
    if not isinstance(value, str):
        raise Expected("one text")
    return value.strip()


def optional_text(value: Value) -> str | None:
    found = text(value)
    return None if found.lower() in NOTHING else found


def model(value: Value) -> str | None:
    """None for `inherit` too: the engine's own default."""
    found = optional_text(value)
    return None if found is None or found.lower() in {"inherit", "default"} else found


def secret(value: Value) -> Secret | None:
    found = text(value)
    return Secret(found) if found else None


def flag(value: Value) -> bool:
    word = text(value).lower()
    if word not in (*ON, *OFF, ""):
        raise Expected("true or false")
    return word in ON


def inverted_flag(value: Value) -> bool:
    return not flag(value)


def thinking(value: Value) -> str | None:
    level = optional_text(value)
    if level is not None and level.lower() not in THINKING:
        raise Expected(f"one of {', '.join(THINKING)}")
    return level.lower() if level else None


def seconds(value: Value) -> float:
    return _number(value, 1.0)


def milliseconds(value: Value) -> float:
    return _number(value, 0.001)


def turns(value: Value) -> int:
    return _integer(value, 1, MAX_TURNS)


def depth(value: Value) -> int:
    return _integer(value, 0, MAX_DEPTH)


def names(value: Value) -> tuple[str, ...]:
    """A list, or a text with commas; each once, in order."""
    return tuple(dict.fromkeys(_items(value, _at_commas)))


def arguments(value: Value) -> tuple[str, ...]:
    """A list as it stands, or a text with commas; repetitions count."""
    if isinstance(value, tuple):
        return tuple(text(item) for item in value)
    return tuple(_at_commas(text(value)))


def tool_list(value: Value) -> tuple[str, ...]:
    """A list, or a text with commas or spaces: `read, bash`, `Bash(git:*) Read`, `none`."""
    found = tuple(dict.fromkeys(_items(value, _words)))
    return () if len(found) == 1 and found[0].lower() in NOTHING else found


def allow_list(value: Value) -> tuple[str, ...] | None:
    """A tool list; None where it says to inherit."""
    found = tuple(dict.fromkeys(_items(value, _words)))
    return None if len(found) == 1 and found[0].lower() in INHERIT else tool_list(value)


def _items(value: Value, split: Callable[[str], Iterator[str]]) -> Iterator[str]:
    if isinstance(value, str):
        yield from split(value)
    elif isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        for item in value:
            yield from split(str(item))
    else:
        raise Expected("a list of names")


def _at_commas(joined: str) -> Iterator[str]:
    return (item for part in joined.split(",") if (item := part.strip()))


def _words(joined: str) -> Iterator[str]:
    """Splits at commas and white space outside parentheses: patterns may hold both."""
    word, open_ones = "", 0
    for character in f"{joined} ":
        if open_ones == 0 and (character == "," or character.isspace()):
            if word:
                yield word
            word = ""
            continue
        open_ones = max(0, open_ones + (character == "(") - (character == ")"))
        word += character
    if word.strip():
        yield word.strip()


def _number(value: Value, unit: float) -> float:
    try:
        number = float(text(value)) * unit
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number <= 0:
        raise Expected("a number above 0")
    if number > MAX_TIMEOUT:
        raise Expected("at most a week", MAX_TIMEOUT)
    if number < MIN_TIMEOUT:
        raise Expected("at least a second", MIN_TIMEOUT)
    return number


def _integer(value: Value, low: int, high: int) -> int:
    try:
        number = int(text(value))
    except ValueError:
        number = low - 1
    if number < low:
        raise Expected(f"a whole number from {low} to {high}")
    if number > high:
        raise Expected(f"a whole number from {low} to {high}", high)
    return number
