"""Redact a text that arrives in pieces, with the same output wherever it is cut.

Only text that may still become a secret is held back: the last word, with the name before it if there is one, the
start of a private key, the start of a known value. Never more than `MAX_REACH` characters, or that value's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from retinue.output.redaction.patterns import (
    BLOCK_BEGIN,
    CONTEXT,
    LINE_START,
    MAX_REACH,
    SECRET_PATTERNS,
    find_candidate_rows,
    fold_case,
    may_contain_name,
)
from retinue.output.redaction.tokens import REDACTION_MARK, SecretPattern
from retinue.output.untrusted_text import replace_surrogates
from retinue.support.cache import compile_pattern

MIN_SECRET_CHARS = 8
"""A shorter known value is not redacted: it would occur in ordinary words."""
_HELD_WORDS = 6
"""Words of the longest head: `machine HOST login USER password …`."""

Span = tuple[int, int, int]
"""Start of a secret, its row in the table, and its end."""


class KnownSecrets:
    """Exact values to redact, verbatim and as encoded in JSON, URLs and base64."""

    def __init__(self, values: Iterable[str]) -> None:
        marks = REDACTION_MARK + "".join(family.mark for family in SECRET_PATTERNS)
        spelled = {
            replace_surrogates(form)
            for value in values
            if len(value) >= MIN_SECRET_CHARS
            for form in _encoded_forms(value)
        }
        forms = {form for form in spelled if form not in marks}
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        self._spaced = [form for form in self._forms if compile_pattern(r"\s").search(form)]
        self._reach = max((len(form) for form in self._forms if form not in self._spaced), default=1) - 1
        self._probes = [(_find_probe(form), form) for form in self._forms]

    def __bool__(self) -> bool:
        return bool(self._forms)

    def occur_in(self, text: str) -> bool:
        for probe, form in self._probes:  # noqa: SIM110 - runs on every text; any() takes three times as long
            if probe in text and form in text:
                return True
        return False

    def find_in(self, text: str) -> Iterator[re.Match[str]]:
        """Return the leftmost occurrences, the longest at each position."""
        present = [re.escape(form) for probe, form in self._probes if probe in text and form in text]
        return re.finditer("|".join(present), text) if present else iter(())

    def find_decided_end(self, text: str) -> int:
        """Return the position before which no value can start whose end is still to come."""
        tail = text[max(0, len(text) - self._reach) :]
        held = len(tail.rsplit(None, 1)[-1]) if tail and not tail[-1].isspace() else 0
        return min([len(text) - held, *(_find_partial_start(form, text) for form in self._spaced)])


class KnownSecretStream:
    """Redacts known values."""

    def __init__(self, values: KnownSecrets) -> None:
        self._values = values
        self._held = ""
        self.redaction_count = 0

    def feed(self, chunk: str, *, last: bool = False) -> str:
        text = self._held + chunk
        cut = len(text) if last else self._values.find_decided_end(text)
        out: list[str] = []
        at = 0
        for match in self._values.find_in(text):
            if match.start() >= cut:
                break
            out += text[at : match.start()], REDACTION_MARK
            at = match.end()
            self.redaction_count += 1
        out.append(text[at:cut])
        self._held = text[max(at, cut) :]
        return "".join(out)


class PatternStream:
    """Redacts what matches a secret pattern."""

    def __init__(self) -> None:
        self._text = ""
        """The end of the emitted text, for look-behind, and the text held back."""
        self._start = 0
        """Start of the text held back."""
        self._open: list[Span] = []
        """Secrets that reach beyond the emitted text, or may continue."""
        self.redaction_count = 0

    def feed(self, chunk: str, *, last: bool = False) -> str:
        text = self._text + chunk
        folded = fold_case(text)
        cut, line = (len(text), -1) if last else (_find_decided_end(text, folded, self._start), text.rfind("\n") + 1)
        spans = self._find_spans(text, folded, cut, line)
        if any(_waits(span, line) for span in spans) and line < cut:
            # The line is held back until it is known whether the secret continues in it.
            cut = line
            spans = self._find_spans(text, folded, cut, line)
        redacted = self._redact_spans(text, spans, cut)
        gone = max(0, cut - CONTEXT)
        self._text, self._start = text[gone:], cut - gone
        self._open = [(begin - gone, row, end - gone) for begin, row, end in spans if end >= cut]
        return redacted

    def _find_spans(self, text: str, folded: str, cut: int, line: int) -> list[Span]:
        """Return all secrets that start before `cut`, with their ends as far as they are known.

        A head within a secret of the same row is no secret of its own.
        """
        spans = [(begin, row, _find_end(row, text, folded, end, line)) for begin, row, end in self._open]
        covered = {row: end for _, row, end in spans}
        for row in find_candidate_rows(text, folded):
            family = SECRET_PATTERNS[row]
            source = folded if family.folded else text
            head = compile_pattern(family.head)
            position, end = self._start, covered.get(row, -1)
            while (match := head.search(source, position)) and match.start() < cut:
                if match.end() > end:
                    end = _find_end(row, text, folded, match.end(), line)
                    spans.append((match.start("value"), row, end))
                # Not from its end: another head may start within this one and reach further.
                position = match.start() + 1
        return sorted(spans)

    def _redact_spans(self, text: str, spans: list[Span], cut: int) -> str:
        out: list[str] = []
        at = self._start
        for begin, row, end in spans:
            if begin >= cut:
                break
            if begin >= at:  # else it continues one that has its mark
                out += text[at:begin], SECRET_PATTERNS[row].mark
                self.redaction_count += 1
            at = max(at, end)
        out.append(text[at:cut])
        return "".join(out)


def _find_end(row: int, text: str, folded: str, start: int, line: int) -> int:
    """Return the end of the run from `start`; the start of the last line if that is not decided yet."""
    family = SECRET_PATTERNS[row]
    match = compile_pattern(family.run).match(folded if family.folded else text, start)
    assert match is not None  # a run may be empty
    end = match.end()
    return line if family.line_start and start <= line <= end and _is_open(family, text, line) else end


def _is_open(family: SecretPattern, text: str, line: int) -> bool:
    """Return whether the last line may still turn out to belong to the run."""
    return len(text) - line < LINE_START and not compile_pattern(family.line_start).match(text, line)


def _waits(span: Span, line: int) -> bool:
    _, row, end = span
    return end == line and bool(SECRET_PATTERNS[row].line_start)


def _find_decided_end(text: str, folded: str, start: int) -> int:
    """Return the position before which no secret can start whose head is still to come."""
    end = len(text)
    floor = max(start, end - MAX_REACH)
    words = _find_last_word_starts(text, max(floor, text.rfind("\n", floor) + 1))
    cut = end if not words or text[-1].isspace() else words[-1]
    if words and may_contain_name(folded[words[0] :]):
        cut = min(cut, _find_name_start(folded, words))
    block = text.find(BLOCK_BEGIN, floor)
    return max(floor, min(cut, block) if block >= 0 else cut)


def _find_name_start(folded: str, words: list[int]) -> int:
    """Return the start of the first of the words that may contain a name; the end of the text if none does."""
    end = len(folded)
    return next((at for at, until in pairwise([*words, end]) if may_contain_name(folded[at:until])), end)


def _find_last_word_starts(text: str, start: int) -> list[int]:
    """Return the starts of the last few words."""
    pieces = text[start:].rsplit(None, _HELD_WORDS)
    before = len(pieces[0]) if len(pieces) > _HELD_WORDS else 0
    return [match.start() for match in compile_pattern(r"\S+").finditer(text, start + before)]


def _find_probe(form: str) -> str:
    """Return a sign of the form that ordinary text rarely has, or the form: one character is searched much faster."""
    return next((sign for sign in "%\\+=/" if sign in form), form)


def _encoded_forms(value: str) -> Iterator[str]:
    """Yield the value, and the value as JSON, URLs and base64 have it."""
    from json import dumps
    from urllib.parse import quote, quote_plus

    yield value
    yield dumps(value)[1:-1]
    yield dumps(value, ensure_ascii=False)[1:-1]
    for encoded in (quote(value, safe="", errors="replace"), quote_plus(value, errors="replace")):
        yield encoded
        yield compile_pattern("%..").sub(lambda escape: escape[0].lower(), encoded)
    yield from _base64_forms(value.encode("utf-8", "replace"))


def _base64_forms(value: bytes) -> Iterator[str]:
    """Yield the value in base64 at each of the three offsets it may have in a longer text, in both alphabets."""
    from base64 import b64encode

    yield b64encode(value).decode()
    for before in range(3):
        encoded = b64encode(b" " * before + value).decode()
        # Only characters that depend on nothing but the value.
        certain = encoded[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
        if len(certain) >= MIN_SECRET_CHARS:
            yield certain
            yield certain.replace("+", "-").replace("/", "_")


def _find_partial_start(form: str, text: str) -> int:
    """Return where a prefix of the form starts at the end of the text; the text's length if none does."""
    at = text.find(form[0], max(0, len(text) - len(form) + 1))
    while at >= 0 and not form.startswith(text[at:]):
        at = text.find(form[0], at + 1)
    return len(text) if at < 0 else at
