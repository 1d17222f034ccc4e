"""Redact secrets for every output, and abbreviate paths and stack traces for human readers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from retinue.output.redaction.patterns import find_candidate_rows, fold_case, may_contain_name
from retinue.output.redaction.stream import MIN_SECRET_CHARS, KnownSecrets, KnownSecretStream, PatternStream
from retinue.output.untrusted_text import MAX_DEPTH, TOO_DEEP, replace_surrogates
from retinue.support.cache import compile_pattern

BLOCK_CHARS = 64 * 1024
"""Characters processed at once: text without any anchor of a secret costs little."""

_encode = msgspec.json.Encoder().encode


class Redactor:
    """Redacts secrets by pattern, and given values exactly; returns valid Unicode.

    Linear in the length of any text, and idempotent. It does not find secrets that are encoded, encrypted or written
    in an unknown format.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = frozenset(secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS)
        self._known = KnownSecrets(self._secrets)

    def with_secrets(self, secrets: Iterable[str]) -> Redactor:
        """Return a redactor that knows these values, too; itself if that adds none."""
        added = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS} - self._secrets
        return Redactor(self._secrets | added) if added else self

    def open_stream(self) -> StreamRedactor:
        return StreamRedactor(self._known)

    def redact(self, text: str) -> tuple[str, int]:
        """Return the text with marks for its secrets, and their number; the same object if nothing changes."""
        text = replace_surrogates(text)
        if len(text) > BLOCK_CHARS:
            stream = self.open_stream()
            redacted, count = stream.feed(text) + stream.close(), stream.redaction_count
            return (redacted, count) if count else (text, 0)
        if not self._known.occur_in(text) and not find_candidate_rows(text, fold_case(text)):
            return text, 0
        known, patterns = KnownSecretStream(self._known), PatternStream()
        redacted = patterns.feed(known.feed(text, last=True), last=True)
        count = known.redaction_count + patterns.redaction_count
        return (redacted, count) if count else (text, 0)

    def redact_value(self, value: Any, depth: int = 0) -> tuple[Any, int]:
        """Do the same for strings anywhere in a JSON-like value, keys included; too deep parts are left out.

        The value of a key such as `api_key` is treated as in `api_key=…`.
        """
        if isinstance(value, str):
            return self.redact(value)
        if not isinstance(value, dict | list | tuple):
            return value, 0
        if depth >= MAX_DEPTH:
            return TOO_DEEP, 1
        parts: list[tuple[Any, Any]] = []
        total, changed = 0, False
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            name, in_name = self.redact(key) if isinstance(key, str) else (key, 0)
            label = _render_label(key, part)
            after, count = self.redact(label + part) if label else ("", 0)
            if count and after.startswith(label):
                after = after[len(label) :]
            else:
                after, count = self.redact(part) if isinstance(part, str) else self.redact_value(part, depth + 1)
            parts.append((name, after))
            total += in_name + count
            changed = changed or name is not key or after is not part
        if not changed:
            return value, 0
        return (dict(parts) if isinstance(value, dict) else type(value)(after for _, after in parts)), total

    def is_clean(self, value: Any) -> bool:
        """Return whether no part of the value can be a secret or too deep, by one check of its JSON text."""
        if isinstance(value, str):
            return False
        try:
            text = _encode(value).decode()
        except (UnicodeEncodeError, RecursionError, TypeError):
            return False
        if len(text) > BLOCK_CHARS or text.count("[") + text.count("{") >= MAX_DEPTH:
            return False
        return not self._known.occur_in(text) and not find_candidate_rows(text, fold_case(text))


def _render_label(key: Any, part: Any) -> str:
    """Return the key as it would stand before a text of its own; empty if it cannot name a secret."""
    if not isinstance(key, str) or not isinstance(part, str) or not may_contain_name(fold_case(key)):
        return ""
    return f'{replace_surrogates(key)[-64:]}="'


class StreamRedactor:
    """Redacts a text in pieces; the output equals that of redacting the whole text."""

    def __init__(self, known: KnownSecrets) -> None:
        self._known = KnownSecretStream(known) if known else None
        self._patterns = PatternStream()

    @property
    def redaction_count(self) -> int:
        return self._patterns.redaction_count + (self._known.redaction_count if self._known else 0)

    def feed(self, chunk: str) -> str:
        """Return the redacted text that is decided by now."""
        chunk = replace_surrogates(chunk)
        if len(chunk) > BLOCK_CHARS:
            return "".join(self.feed(chunk[at : at + BLOCK_CHARS]) for at in range(0, len(chunk), BLOCK_CHARS))
        return self._patterns.feed(self._known.feed(chunk) if self._known else chunk)

    def close(self) -> str:
        """Return the text that was held back; nothing may be fed after it."""
        return self._patterns.feed(self._known.feed("", last=True) if self._known else "", last=True)


# -- secrets of the environment ------------------------------------------------------------------------------

_NAME_OF_SENSITIVE_VALUE = (
    r"(?i)(?:^|[_-])(?:(?:API|ACCESS|SECRET|PRIVATE|AUTH)?KEYS?|[A-Z]*TOKENS?|SECRETS?|PASSWORD|PASSWD|PASS|PWD"
    r"|PASSPHRASE|CREDENTIALS?|CREDS|AUTH|PAT|COOKIES?|[A-Z]*DSN|CERT)(?:[_-]|\d|$)"
)
_PLAIN_VALUE = r"(?s)[~.]{0,2}[/\\].*|[A-Za-z]:[/\\].*|[\d.,:eE+-]+|[A-Za-z]?[a-z]{1,15}|[A-Z]{1,16}"
"""A path, a number, a flag or a single word: redacting it everywhere would do harm and hide nothing."""


def find_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables whose names suggest secrets, if they look like secrets themselves."""
    named, plain = compile_pattern(_NAME_OF_SENSITIVE_VALUE), compile_pattern(_PLAIN_VALUE)
    return tuple(
        dict.fromkeys(
            value
            for name, value in environ.items()
            if len(value) >= MIN_SECRET_CHARS and named.search(name) and not plain.fullmatch(value)
        )
    )


# -- for human readers ------------------------------------------------------------------------------------

_WINDOWS_NAME = r"[^\s\\/:\"'<>|*?]"
_HOMES = (
    # `/var/home` of Fedora's immutable systems; `/mnt/c` and `/c` are Windows' drives in WSL and Git Bash.
    r"(?<![\w.~-])(?:(?:/(?:var/)?home|(?:/(?:mnt/)?[A-Za-z])?/(?i:users))/\w(?:[\w.@+-]{0,62}\w)?"
    r"|(?i:[a-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/))"
    # A name with blanks counts only if the path continues.
    rf"(?:{_WINDOWS_NAME}(?:(?:{_WINDOWS_NAME}| ){{0,62}}{_WINDOWS_NAME})?(?=\\)"
    rf"|(?:(?![,;()]){_WINDOWS_NAME}){{1,64}}))"
)


def sanitize_for_display(text: str, home: str, cwd: str = "") -> str:
    """Return the text for a human reader: home folders as `~`, long stack traces shortened."""
    from retinue.output.traces import fold_stack_traces

    return abbreviate_home(fold_stack_traces(text, cwd), home)


def abbreviate_home(text: str, home: str) -> str:
    """Return the text with `~` for the home folder and any other under `/home`, `/Users` and Windows' Users."""
    home = home.rstrip("/\\")
    if home and home in text:
        text = re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w-]|\.\w)", "~", text)
    return compile_pattern(_HOMES).sub("~", text)
