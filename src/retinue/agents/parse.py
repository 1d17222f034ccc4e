"""Parse agent files: bounded text, header and body, YAML that may be plain or broken."""

from __future__ import annotations

import errno
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from retinue.support.safe_files import FileTooLargeError, NotRegularFileError, read_regular_file, resolve_path

MAX_FILE_BYTES = 2 * 2**20
"""Bytes of a definition; the longest prompts in use have a tenth of it."""
LINK_LOOP = "is a link that cannot be followed"
_NOT_FILE_REASONS = {"a directory": "is a directory, not a file", "a link": LINK_LOOP}


class AgentFileError(Exception):
    """A file cannot be used, with the reason and the line."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.file: Path | None = None
        """The file, if it is one of several in a folder."""


def read_bytes(
    path: Path, *, within: Path | None = None, limit: int = MAX_FILE_BYTES, follow_link: bool = True
) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    Links are followed, since people link their own files into place; with `within` only if they stay below it.

    Raises:
        AgentFileError: it is no regular file, too large, unreadable, or a link that leaves `within`.
    """
    try:
        return read_regular_file(_resolve_within(path, within), limit, follow_link=follow_link and within is None)
    except NotRegularFileError as error:
        raise AgentFileError(_NOT_FILE_REASONS.get(error.kind, "is not a regular file")) from error
    except FileTooLargeError as error:
        raise AgentFileError(f"is too large ({error.size_bytes} bytes; at most {limit})") from error
    except OSError as error:
        raise AgentFileError(_describe_error(error)) from error
    except ValueError as error:
        raise AgentFileError(f"has no usable name: {error}") from error


def decode_text(content: bytes) -> str:
    """Return the text of UTF-8 bytes with or without a byte order mark, every line ended by a line feed.

    Raises:
        AgentFileError: another encoding, or NUL bytes.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise AgentFileError("is UTF-16; save it as UTF-8", 1)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise AgentFileError(f"is not UTF-8 (byte 0x{content[error.start]:02x}); save it as UTF-8", line) from error
    if "\0" in text:
        raise AgentFileError("contains a NUL byte; it is not a text file", text.count("\n", 0, text.index("\0")) + 1)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _resolve_within(path: Path, within: Path | None) -> Path:
    if within is None:
        return path
    real = resolve_path(path)
    if not real.is_relative_to(within):
        raise AgentFileError(f"leads out of {within}, to {real}, and is ignored")
    return real


def _describe_error(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "is missing"
    if error.errno == errno.ELOOP:
        return LINK_LOOP
    return f"cannot be read: {error.strerror or error}"


MAX_DEPTH = 16
MAX_NODES = 1000
"""Keys, values and lists together; real headers have a few dozen."""

HeaderValue = str | tuple["HeaderValue", ...] | Mapping[str, "HeaderValue"]


class PlainText(str):
    """A text without quotes, which may be a number, `true`, `false` or `null` where a JSON value is expected."""

    __slots__ = ()


_PLAIN_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]{0,63}):(?: +(.*))?")
_PLAIN_START = re.compile(r"[^-?:,\[\]{}#&*!|>'\"%@` ]")
_QUOTED = re.compile(r"\"([^\"\\]*)\"|'([^']*)'")


class AgentHeader(Struct, frozen=True):
    """The keys of a header with their values and lines, and notes on them."""

    values: Mapping[str, HeaderValue] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[tuple[int, str], ...] = ()
    """Line and text of each note."""


EMPTY_HEADER = AgentHeader()


def parse_header(source: str, *, first_line: int = 1) -> AgentHeader:
    """Return the keys and values of a header. Of a key given twice the first counts, as readers expect.

    Raises:
        AgentFileError: hostile YAML, or text without a readable name or description.
    """
    pairs = _parse_plain_lines(source)
    if pairs is not None:
        return _build_header(pairs, first_line)
    import yaml

    try:
        return _build_header(_parse_yaml(source, first_line), first_line)
    except yaml.YAMLError as error:
        return _recover_broken_yaml(source, error, first_line)


def _build_header(pairs: list[tuple[str, int, HeaderValue]], first_line: int, *notes: tuple[int, str]) -> AgentHeader:
    values: dict[str, HeaderValue] = {}
    lines: dict[str, int] = {}
    odd = list(notes)
    for key, index, value in pairs:
        if key in values:
            odd.append((first_line + index, f"{key} is given twice; the first one is used (line {lines[key]})"))
        else:
            values[key], lines[key] = value, first_line + index
    return AgentHeader(values, lines, tuple(odd))


# -- plain lines -----------------------------------------------------------------------------------


def _parse_plain_lines(source: str) -> list[tuple[str, int, HeaderValue]] | None:
    """Return the pairs of a header that is unambiguous YAML of one line per key; None for any other.

    Spares most files the import of the YAML library, which costs more than all the rest of reading them.
    """
    pairs: list[tuple[str, int, HeaderValue]] = []
    for index, line in enumerate(source.split("\n")):
        if not line.isprintable():
            return None
        if not line.strip() or line.startswith("#"):
            continue
        found = _PLAIN_LINE.fullmatch(line)
        if found is None or (value := _parse_plain_value((found[2] or "").strip())) is None:
            return None
        pairs.append((found[1], index, value))
    return pairs if 2 * len(pairs) < MAX_NODES else None


def _parse_plain_value(text: str) -> str | None:
    if not text:
        return ""
    if quoted := _QUOTED.fullmatch(text):
        return quoted[1] if quoted[1] is not None else quoted[2]
    plain = _PLAIN_START.match(text) and ": " not in text and " #" not in text and not text.endswith(":")
    return text if plain else None


# -- YAML ------------------------------------------------------------------------------------------


def _parse_yaml(source: str, first_line: int) -> list[tuple[str, int, HeaderValue]]:
    import yaml

    # The C parser if it is there: the same events, faster.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    builder = _HeaderBuilder(yaml.parse(source, Loader=loader), first_line)
    return builder.build()


class _HeaderBuilder:
    """Builds strings, tuples and mappings from YAML events, and nothing else."""

    def __init__(self, events: Iterator[Any], first_line: int) -> None:
        self._events = events
        self._first_line = first_line
        self._nodes = 0
        self._mappings = 0
        """Mappings around the current value, beside the header itself."""

    def build(self) -> list[tuple[str, int, HeaderValue]]:
        while (event := next(self._events)).__class__.__name__ in {"StreamStartEvent", "DocumentStartEvent"}:
            pass
        match event.__class__.__name__:
            case "StreamEndEvent":
                return []
            case "MappingStartEvent":
                self._check_limits(event, 0)
                pairs = list(self._read_pairs(0))
            case _:
                raise self._limit_error(event, "the header does not consist of `key: value` lines")
        for event in self._events:
            if event.__class__.__name__ not in {"DocumentEndEvent", "StreamEndEvent"}:
                raise self._limit_error(event, "the header holds more than one YAML document")
        return pairs

    def _read_pairs(self, depth: int) -> Iterator[tuple[str, int, HeaderValue]]:
        while (event := next(self._events)).__class__.__name__ != "MappingEndEvent":
            line = event.start_mark.line
            key = self._read_value(event, depth + 1)
            if not isinstance(key, str):
                raise self._limit_error(event, "a key is a list or a mapping")
            yield str(key), line, self._read_value(next(self._events), depth + 1)

    def _read_value(self, event: Any, depth: int) -> HeaderValue:
        self._check_limits(event, depth)
        match event.__class__.__name__:
            case "ScalarEvent":
                return PlainText(event.value) if self._mappings and not event.style else str(event.value)
            case "SequenceStartEvent":
                return tuple(self._read_items(depth))
            case _:
                found: dict[str, HeaderValue] = {}
                self._mappings += 1
                for key, _, value in self._read_pairs(depth):
                    found.setdefault(key, value)
                self._mappings -= 1
                return found

    def _read_items(self, depth: int) -> Iterator[HeaderValue]:
        while (event := next(self._events)).__class__.__name__ != "SequenceEndEvent":
            yield self._read_value(event, depth + 1)

    def _check_limits(self, event: Any, depth: int) -> None:
        self._nodes += 1
        if event.anchor is not None:
            raise self._limit_error(event, "YAML anchors and aliases (& and *) are not allowed; quote the value")
        if event.tag not in {None, "tag:yaml.org,2002:str"}:
            raise self._limit_error(
                event, f"YAML tags ({event.tag.removeprefix('tag:yaml.org,2002:')}) are not allowed"
            )
        if depth > MAX_DEPTH:
            raise self._limit_error(event, f"the header is nested too deeply (at most {MAX_DEPTH})")
        if self._nodes > MAX_NODES:
            raise self._limit_error(event, f"the header has too many entries (at most {MAX_NODES})")

    def _limit_error(self, event: Any, reason: str) -> AgentFileError:
        return AgentFileError(reason, self._first_line + int(event.start_mark.line))


# -- broken YAML -----------------------------------------------------------------------------------


def _recover_broken_yaml(source: str, error: Any, first_line: int) -> AgentHeader:
    """Return the header read line by line; most broken YAML has an unquoted colon in a description."""
    mark = getattr(error, "problem_mark", None)
    line = first_line + (int(mark.line) if mark else 0)
    reason = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable")

    pairs: list[tuple[str, int, HeaderValue]] = [*read_lines(source)]
    if not {key.lower() for key, _, _ in pairs} & {"name", "description"}:
        raise AgentFileError(f"the header is not valid YAML: {reason}", line)
    note = f"the header is not valid YAML ({reason}) and is read line by line; quote the value to be sure"
    return _build_header(pairs, first_line, (line, note))


HEADER_BYTES = 64 * 2**10
"""Bytes of a header; real ones fill a screen."""

_AGENT_KEY = re.compile(
    r"^[\"']?(?:name|description|readonly|[a-z_-]*tools)[\"']?[ \t]*:", re.MULTILINE | re.IGNORECASE
)
_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)


class MarkdownDocument(Struct, frozen=True):
    """A markdown file: its header and its text."""

    header: AgentHeader
    body: str


def split_frontmatter(text: str) -> MarkdownDocument:
    """Return the header and the body of a file; a file without a header is all body.

    Raises:
        AgentFileError: its header is not closed, too large or unreadable.
    """
    start = len(text) - len(text.lstrip("\n"))
    opening = _FENCE.match(text, start)
    if not opening:
        return MarkdownDocument(EMPTY_HEADER, text.strip())
    line = start + 1
    closing = _FENCE.search(text, opening.end() + 1)
    if not closing:
        if _AGENT_KEY.search(text, opening.end()):
            # Taken as body, it would be an agent without its restrictions.
            raise AgentFileError("the header is not closed by a --- line", line)
        return MarkdownDocument(EMPTY_HEADER, text.strip())
    source = text[opening.end() + 1 : closing.start()]
    if len(source.encode()) > HEADER_BYTES:
        raise AgentFileError(f"the header is too large (at most {HEADER_BYTES} bytes)", line)
    return MarkdownDocument(parse_header(source, first_line=line + 1), text[closing.end() :].strip())


_KEY = re.compile(r"[\"']?([A-Za-z_][A-Za-z0-9_-]{0,63})[\"']?[ \t]*:(?:[ \t]+(.*))?")
_BLOCK = re.compile(r"[|>][+-]?[0-9]?")
# With a space on both sides: `issue #12` is prose.
_COMMENT = re.compile(r"(?:^|\s)# .*$")
_EXAMPLE, _EXAMPLE_END = "<example>", "</example>"
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


def read_lines(source: str) -> Iterator[tuple[str, int, str | tuple[str, ...]]]:
    """Yield each key with the index of its line and its value, in order."""
    key, start, first, rest = "", 0, "", list[str]()
    for index, line, is_example in _split_lines(source):
        found = None if is_example else _KEY.fullmatch(line)
        if found:
            if key:
                yield key, start, _parse_value(first, rest)
            key, start, first, rest = found[1], index, (found[2] or "").strip(), []
        elif not line.startswith("#"):
            rest.append(line)
    if key:
        yield key, start, _parse_value(first, rest)


def _split_lines(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each line, and whether it is inside an example, where `user: …` is speech and not a key."""
    lines = source.split("\n")
    last_end = max((index for index, line in enumerate(lines) if _EXAMPLE_END in line), default=-1)
    inside = False
    for index, line in enumerate(lines):
        # An example that is never closed does not count: it must not swallow the keys after it.
        yield index, line, inside and index <= last_end
        if _EXAMPLE in line or _EXAMPLE_END in line:
            inside = line.rfind(_EXAMPLE) > line.rfind(_EXAMPLE_END)


def _parse_value(first: str, rest: list[str]) -> str | tuple[str, ...]:
    lines = [line.strip() for line in rest if line.strip()]
    if _BLOCK.fullmatch(first):
        return _parse_block(first, rest)
    if not first and lines and all(re.match(r"-(\s|$)", line) for line in lines):
        return tuple(_parse_scalar(line[1:].strip()) for line in lines)
    if first.startswith("[") and (closed := " ".join([first, *lines]).rstrip(" ,")).endswith("]"):
        return tuple(_parse_scalar(item) for item in closed[1:-1].split(",") if item.strip())
    return _parse_scalar(" ".join([first, *lines]).strip())


def _parse_block(first: str, rest: list[str]) -> str:
    text = textwrap.dedent("\n".join(rest)).strip("\n")
    if first.startswith("|"):
        return text
    return "\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _parse_scalar(text: str) -> str:
    text = text.strip()
    quote = text[:1]
    closing = text.rfind(quote) if quote in {'"', "'"} else 0
    if closing > 0 and not _COMMENT.sub("", text[closing + 1 :]).strip():
        inner = text[1:closing]
        return _unescape(inner) if quote == '"' else inner.replace("''", "'")
    return _COMMENT.sub("", text).strip()


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text)
