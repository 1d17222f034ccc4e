"""Render the common part of Markdown as HTML. All text is escaped first: no HTML of an agent survives."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

from retinue.support.cache import compile_pattern

MAX_CHARS = 200_000
"""Longer text is shown as it is written."""
MAX_INLINE_CHARS = 10_000
"""Characters of a paragraph in which marks are looked for."""
MAX_LEVELS = 8
"""Levels of nested lists and quotes."""

_HIDDEN = r"[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
_FENCE = r" {0,3}(`{3,}|~{3,})"
_HEADING = r" {0,3}(#{1,6})\s+(.*?)\s*#*\s*$"
_RULE = r" {0,3}([-*_])(?:\s*\1){2,}\s*$"
_ITEM = r"(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$"
_TABLE_RULE = r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$"
_INLINE = (
    r"(?P<code>`{1,3})(?P<inside>[^`\n]{1,2000})(?P=code)"
    r"|\[(?P<label>[^\[\]\n]{1,500})\]\((?P<target>(?:https?://|mailto:)[^\s()<>]{1,1000})\)"
    r"|(?P<address>https?://[\w./?=&;%#~:+,@-]{1,1000}[\w/])"
    r"|\*\*(?P<strong>[^*\n]{1,1000})\*\*|~~(?P<gone>[^~\n]{1,1000})~~"
    r"|(?<![\w*])\*(?P<em>[^*\s\n](?:[^*\n]{0,1000}[^*\s\n])?)\*(?!\w)"
)


def escape(text: str) -> str:
    """Return the text as HTML; characters that turn a line around or cannot be seen are shown by their number."""
    visible = compile_pattern(_HIDDEN).sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)
    return html.escape(visible)


def render_markdown(text: str, level: int = 0) -> str:
    """Return the text as HTML blocks."""
    if len(text) > MAX_CHARS or level > MAX_LEVELS:
        return f"<pre>{escape(text)}</pre>"
    return "\n".join(_render_blocks(text.replace("\r\n", "\n").split("\n"), level))


def _render_blocks(lines: list[str], level: int) -> Iterator[str]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif fence := compile_pattern(_FENCE).match(line):
            end = _find_end(lines, at + 1, fence[1])
            yield f"<pre><code>{escape(_join(lines[at + 1 : end]))}</code></pre>"
            at = end + 1
        elif heading := compile_pattern(_HEADING).match(line):
            size = min(len(heading[1]) + 1, 6)
            yield f"<h{size}>{render_inline(heading[2])}</h{size}>"
            at += 1
        elif compile_pattern(_RULE).match(line):
            yield "<hr>"
            at += 1
        elif line.lstrip().startswith(">"):
            end = _count_while(lines, at, lambda each: each.lstrip().startswith(">"))
            inside = [each.lstrip()[1:].removeprefix(" ") for each in lines[at:end]]
            yield f"<blockquote>{render_markdown(_join(inside), level + 1)}</blockquote>"
            at = end
        elif compile_pattern(_ITEM).match(line):
            end = _count_while(lines, at, lambda each: bool(compile_pattern(_ITEM).match(each)) or each[:1] == " ")
            yield _render_list(lines[at:end], level)
            at = end
        elif "|" in line and at + 1 < len(lines) and compile_pattern(_TABLE_RULE).match(lines[at + 1]):
            end = _count_while(lines, at, lambda each: "|" in each)
            yield _render_table(lines[at:end])
            at = end
        else:
            end = max(_count_while(lines, at, _is_paragraph), at + 1)
            yield f"<p>{render_inline(_join(lines[at:end]))}</p>"
            at = end


def _find_end(lines: list[str], start: int, fence: str) -> int:
    return next((i for i in range(start, len(lines)) if lines[i].strip().startswith(fence)), len(lines))


def _count_while(lines: list[str], start: int, belongs: Callable[[str], bool]) -> int:
    return next((i for i in range(start, len(lines)) if not belongs(lines[i])), len(lines))


def _is_paragraph(line: str) -> bool:
    starts = (_FENCE, _HEADING, _RULE, _ITEM)
    return bool(line.strip()) and not any(compile_pattern(pattern).match(line) for pattern in starts)


def _join(lines: list[str]) -> str:
    return "\n".join(lines)


def _render_list(lines: list[str], level: int) -> str:
    """Return a list; deeper lines belong to the item above them."""
    first = compile_pattern(_ITEM).match(lines[0])
    assert first
    indent, items = len(first[1]), list[list[str]]()
    for line in lines:
        item = compile_pattern(_ITEM).match(line)
        if item and len(item[1]) <= indent:
            items.append([item[3]])
        else:
            items[-1].append(line[min(indent + 2, len(line) - len(line.lstrip())) :])
    shown = "".join(f"<li>{_render_item(item, level)}</li>" for item in items)
    return f"<ol>{shown}</ol>" if first[2] else f"<ul>{shown}</ul>"


def _render_item(lines: list[str], level: int) -> str:
    box = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}.get(lines[0][:4], "")
    text = render_inline(lines[0][4:] if box else lines[0])
    return f"{box}{text}{render_markdown(_join(lines[1:]), level + 1) if lines[1:] else ''}"


def _render_table(lines: list[str]) -> str:
    rows = [[render_inline(cell.strip()) for cell in line.strip().strip("|").split("|")] for line in lines]
    head = "".join(f"<th>{cell}</th>" for cell in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows[2:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def render_inline(text: str) -> str:
    """Return a line or paragraph as HTML; links lead to http(s) and mail only, and show where they lead."""
    if len(text) > MAX_INLINE_CHARS:
        return escape(text).replace("\n", "<br>")
    found, at = [], 0
    for match in compile_pattern(_INLINE).finditer(text):
        found += [escape(text[at : match.start()]), _render_mark(match)]
        at = match.end()
    return "".join([*found, escape(text[at:])]).replace("\n", "<br>")


def _render_mark(match: re.Match[str]) -> str:
    if match["inside"]:
        return f"<code>{escape(match['inside'])}</code>"
    if target := match["target"] or match["address"]:
        label = (match["label"] or target).strip("`")
        host = target.split("/")[2] if target.startswith("http") and label != target else ""
        where = f' <span class="quiet">({escape(host)})</span>' if host else ""
        return f'<a href="{escape(target)}" rel="noopener noreferrer nofollow">{escape(label)}</a>{where}'
    for name, tag in (("strong", "strong"), ("gone", "del"), ("em", "em")):
        if match[name]:
            return f"<{tag}>{escape(match[name])}</{tag}>"
    return escape(match[0])
