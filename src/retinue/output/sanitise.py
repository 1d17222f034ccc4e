"""Takes out what must not be seen. Masking goes for every sink; folding paths and traces only for a reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from retinue.output.gates import fold, may_name, rows_for
from retinue.output.patterns import compiled
from retinue.output.streams import SHORTEST, FamilyStream, KnownStream, KnownValues
from retinue.output.texts import DEEPEST, TOO_DEEP, mended
from retinue.output.traces import fold_stack_traces

BLOCK = 64 * 1024
"""Characters looked at together: text without any anchor of a secret costs little."""

_encode = msgspec.json.Encoder().encode


class Masker:
    """Masks secrets by what they look like, and the given values exactly; what it gives back is valid Unicode.

    It is linear in the text, whatever the text is, and idempotent. It does not find secrets that are encoded,
    encrypted or spelled in an unknown way.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = frozenset(secret for secret in secrets if len(secret) >= SHORTEST)
        self._known = KnownValues(self._secrets)

    def plus(self, secrets: Iterable[str]) -> Masker:
        """A masker that knows these values too; itself if that adds nothing."""
        added = {secret for secret in secrets if len(secret) >= SHORTEST} - self._secrets
        return Masker(self._secrets | added) if added else self

    def stream(self) -> MaskStream:
        return MaskStream(self._known)

    def mask(self, text: str) -> tuple[str, int]:
        """The text with marks for its secrets, and how many there are; the text itself if nothing need be changed."""
        text = mended(text)
        if len(text) <= BLOCK and not self._known.occur_in(text) and not rows_for(text, fold(text)):
            return text, 0
        stream = self.stream()
        masked = stream.feed(text) + stream.close()
        return (masked, stream.masks) if stream.masks else (text, 0)

    def mask_value(self, value: Any) -> tuple[Any, int]:
        """The same for strings anywhere in a JSON-like value, keys included; what lies too deep is left out.

        What stands under a name such as `api_key` is judged as in `api_key=…`.
        """
        return (value, 0) if self.is_clean(value) else self._masked_value(value, 0)

    def is_clean(self, value: Any) -> bool:
        """Whether no part of the value can be a secret or too deep: one look at all of it, written as JSON."""
        if isinstance(value, str):
            return False
        try:
            text = _encode(value).decode()
        except (UnicodeEncodeError, RecursionError, TypeError):
            return False
        if len(text) > BLOCK or text.count("[") + text.count("{") >= DEEPEST:
            return False
        return not self._known.occur_in(text) and not rows_for(text, fold(text))

    def _masked_value(self, value: Any, depth: int) -> tuple[Any, int]:
        if isinstance(value, str):
            return self.mask(value)
        if depth >= DEEPEST and isinstance(value, dict | list | tuple):
            return TOO_DEEP, 1
        if isinstance(value, dict):
            return self._masked_dict(value, depth)
        if isinstance(value, list | tuple):
            members = [self._masked_value(member, depth + 1) for member in value]
            if all(after is before for (after, _), before in zip(members, value, strict=True)):
                return value, 0
            return type(value)(after for after, _ in members), sum(masks for _, masks in members)
        return value, 0

    def _masked_dict(self, value: dict[Any, Any], depth: int) -> tuple[dict[Any, Any], int]:
        masked, count, changed = {}, 0, False
        for key, member in value.items():
            name, in_name = self.mask(key) if isinstance(key, str) else (key, 0)
            named = isinstance(key, str) and isinstance(member, str)
            after, in_member = self._masked_named(key, member) if named else self._masked_value(member, depth + 1)
            masked[name] = after
            count += in_name + in_member
            changed = changed or name is not key or after is not member
        return (masked, count) if changed else (value, 0)

    def _masked_named(self, name: str, text: str) -> tuple[str, int]:
        if may_name(fold(name)):
            label = f'{mended(name)[-64:]}="'
            masked, count = self.mask(label + text)
            if count and masked.startswith(label):
                return masked[len(label) :], count
        return self.mask(text)


class MaskStream:
    """Masks text that comes in pieces: together they are what masking the whole gives."""

    def __init__(self, known: KnownValues) -> None:
        self._known = KnownStream(known) if known else None
        self._families = FamilyStream()

    @property
    def masks(self) -> int:
        return self._families.masks + (self._known.masks if self._known else 0)

    def feed(self, chunk: str) -> str:
        """What may leave by now."""
        chunk = mended(chunk)
        if len(chunk) <= BLOCK:
            return self._step(chunk)
        return "".join(self._step(chunk[at : at + BLOCK]) for at in range(0, len(chunk), BLOCK))

    def close(self) -> str:
        """What was held back; nothing may be fed after it."""
        return self._step("", last=True)

    def _step(self, chunk: str, *, last: bool = False) -> str:
        if self._known:
            chunk = self._known.feed(chunk, last=last)
        return self._families.feed(chunk, last=last)


# -- secrets of our own ------------------------------------------------------------------------------

_TELLING_NAME = (
    r"(?i)(?:^|[_-])(?:(?:API|ACCESS|SECRET|PRIVATE|AUTH)?KEYS?|[A-Z]*TOKENS?|SECRETS?|PASSWORD|PASSWD|PASS|PWD"
    r"|PASSPHRASE|CREDENTIALS?|AUTH)(?:[_-]|\d|$)"
)
_PLAIN_VALUE = r"(?s)[~.]{0,2}[/\\].*|[A-Za-z]:[/\\].*|[\d.,:eE+-]+|[A-Za-z]?[a-z]{1,15}|[A-Z]{1,16}"
"""A path, a number, a flag or a single word: masking it wherever it stands would do harm and hide nothing."""


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables whose names look secret, as far as they look like secrets themselves."""
    named, plain = compiled(_TELLING_NAME), compiled(_PLAIN_VALUE)
    return tuple(
        dict.fromkeys(
            value
            for name, value in environ.items()
            if len(value) >= SHORTEST and named.search(name) and not plain.fullmatch(value)
        )
    )


# -- for a reader ------------------------------------------------------------------------------------

_WINDOWS_NAME = r"[^\s\\/:\"'<>|*?]"
_HOMES = (
    # `/var/home` of Fedora's immutable systems; `/mnt/c` and `/c` are Windows' drives in WSL and Git Bash.
    r"(?<![\w.~-])(?:(?:/(?:var/)?home|(?:/(?:mnt/)?[A-Za-z])?/(?i:users))/\w(?:[\w.@+-]{0,62}\w)?"
    r"|(?i:[a-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/))"
    # A name with blanks in it is one only where the path goes on.
    rf"(?:{_WINDOWS_NAME}(?:(?:{_WINDOWS_NAME}| ){{0,62}}{_WINDOWS_NAME})?(?=\\)"
    rf"|(?:(?![,;()]){_WINDOWS_NAME}){{1,64}}))"
)


def for_reader(text: str, home: str, cwd: str = "") -> str:
    """Return the text as a reader needs it: home folders as `~`, long stack traces shortened."""
    return fold_home(fold_stack_traces(text, cwd), home)


def fold_home(text: str, home: str) -> str:
    """The text with `~` for the home folder, and for anyone's under `/home`, `/Users` and Windows' Users folder."""
    home = home.rstrip("/\\")
    if home and home in text:
        text = re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w-]|\.\w)", "~", text)
    return compiled(_HOMES).sub("~", text)
