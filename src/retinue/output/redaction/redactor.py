"""Takes out what must not be seen. Masking goes for every sink; folding paths and traces only for a reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from retinue.output.redaction.prefilter import find_candidate_rows, fold_case, may_contain_name
from retinue.output.redaction.stream import MIN_SECRET_CHARS, KnownSecrets, KnownSecretStream, PatternStream
from retinue.output.traces import fold_stack_traces
from retinue.output.untrusted_text import MAX_DEPTH, TOO_DEEP, replace_surrogates
from retinue.support.patterns import compile_pattern

BLOCK_CHARS = 64 * 1024
"""Characters looked at together: text without any anchor of a secret costs little."""

_encode = msgspec.json.Encoder().encode


class Redactor:
    """Masks secrets by what they look like, and the given values exactly; what it gives back is valid Unicode.

    It is linear in the text, whatever the text is, and idempotent. It does not find secrets that are encoded,
    encrypted or spelled in an unknown way.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = frozenset(secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS)
        self._known = KnownSecrets(self._secrets)

    def with_secrets(self, secrets: Iterable[str]) -> Redactor:
        """A masker that knows these values too; itself if that adds nothing."""
        added = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS} - self._secrets
        return Redactor(self._secrets | added) if added else self

    def open_stream(self) -> StreamRedactor:
        return StreamRedactor(self._known)

    def redact(self, text: str) -> tuple[str, int]:
        """The text with marks for its secrets, and how many there are; the text itself if nothing need be changed."""
        text = replace_surrogates(text)
        if (
            len(text) <= BLOCK_CHARS
            and not self._known.occur_in(text)
            and not find_candidate_rows(text, fold_case(text))
        ):
            return text, 0
        stream = self.open_stream()
        redacted = stream.feed(text) + stream.close()
        return (redacted, stream.redaction_count) if stream.redaction_count else (text, 0)

    def redact_value(self, value: Any) -> tuple[Any, int]:
        """The same for strings anywhere in a JSON-like value, keys included; what lies too deep is left out.

        What stands under a name such as `api_key` is judged as in `api_key=…`.
        """
        return (value, 0) if self.is_clean(value) else self._redact_value(value, 0)

    def is_clean(self, value: Any) -> bool:
        """Whether no part of the value can be a secret or too deep: one look at all of it, written as JSON."""
        if isinstance(value, str):
            return False
        try:
            text = _encode(value).decode()
        except (UnicodeEncodeError, RecursionError, TypeError):
            return False
        if len(text) > BLOCK_CHARS or text.count("[") + text.count("{") >= MAX_DEPTH:
            return False
        return not self._known.occur_in(text) and not find_candidate_rows(text, fold_case(text))

    def _redact_value(self, value: Any, depth: int) -> tuple[Any, int]:
        if isinstance(value, str):
            return self.redact(value)
        if depth >= MAX_DEPTH and isinstance(value, dict | list | tuple):
            return TOO_DEEP, 1
        if isinstance(value, dict):
            return self._redact_dict(value, depth)
        if isinstance(value, list | tuple):
            parts = [self._redact_value(part, depth + 1) for part in value]
            if all(after is before for (after, _), before in zip(parts, value, strict=True)):
                return value, 0
            return type(value)(after for after, _ in parts), sum(count for _, count in parts)
        return value, 0

    def _redact_dict(self, value: dict[Any, Any], depth: int) -> tuple[dict[Any, Any], int]:
        redacted, count, changed = {}, 0, False
        for key, part in value.items():
            name, in_name = self.redact(key) if isinstance(key, str) else (key, 0)
            named = isinstance(key, str) and isinstance(part, str)
            after, in_part = self._redact_named(key, part) if named else self._redact_value(part, depth + 1)
            redacted[name] = after
            count += in_name + in_part
            changed = changed or name is not key or after is not part
        return (redacted, count) if changed else (value, 0)

    def _redact_named(self, name: str, text: str) -> tuple[str, int]:
        if may_contain_name(fold_case(name)):
            label = f'{replace_surrogates(name)[-64:]}="'
            redacted, count = self.redact(label + text)
            if count and redacted.startswith(label):
                return redacted[len(label) :], count
        return self.redact(text)


class StreamRedactor:
    """Masks text that comes in pieces: together they are what masking the whole gives."""

    def __init__(self, known: KnownSecrets) -> None:
        self._known = KnownSecretStream(known) if known else None
        self._patterns = PatternStream()

    @property
    def redaction_count(self) -> int:
        return self._patterns.redaction_count + (self._known.redaction_count if self._known else 0)

    def feed(self, chunk: str) -> str:
        """What may leave by now."""
        chunk = replace_surrogates(chunk)
        if len(chunk) <= BLOCK_CHARS:
            return self._step(chunk)
        return "".join(self._step(chunk[at : at + BLOCK_CHARS]) for at in range(0, len(chunk), BLOCK_CHARS))

    def close(self) -> str:
        """What was held back; nothing may be fed after it."""
        return self._step("", last=True)

    def _step(self, chunk: str, *, last: bool = False) -> str:
        if self._known:
            chunk = self._known.feed(chunk, last=last)
        return self._patterns.feed(chunk, last=last)


# -- secrets of our own ------------------------------------------------------------------------------

_NAME_OF_SENSITIVE_VALUE = (
    r"(?i)(?:^|[_-])(?:(?:API|ACCESS|SECRET|PRIVATE|AUTH)?KEYS?|[A-Z]*TOKENS?|SECRETS?|PASSWORD|PASSWD|PASS|PWD"
    r"|PASSPHRASE|CREDENTIALS?|AUTH)(?:[_-]|\d|$)"
)
_PLAIN_VALUE = r"(?s)[~.]{0,2}[/\\].*|[A-Za-z]:[/\\].*|[\d.,:eE+-]+|[A-Za-z]?[a-z]{1,15}|[A-Z]{1,16}"
"""A path, a number, a flag or a single word: masking it wherever it stands would do harm and hide nothing."""


def find_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables whose names look secret, as far as they look like secrets themselves."""
    named, plain = compile_pattern(_NAME_OF_SENSITIVE_VALUE), compile_pattern(_PLAIN_VALUE)
    return tuple(
        dict.fromkeys(
            value
            for name, value in environ.items()
            if len(value) >= MIN_SECRET_CHARS and named.search(name) and not plain.fullmatch(value)
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


def sanitize_for_display(text: str, home: str, cwd: str = "") -> str:
    """Return the text as a reader needs it: home folders as `~`, long stack traces shortened."""
    return abbreviate_home(fold_stack_traces(text, cwd), home)


def abbreviate_home(text: str, home: str) -> str:
    """The text with `~` for the home folder, and for anyone's under `/home`, `/Users` and Windows' Users folder."""
    home = home.rstrip("/\\")
    if home and home in text:
        text = re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w-]|\.\w)", "~", text)
    return compile_pattern(_HOMES).sub("~", text)
