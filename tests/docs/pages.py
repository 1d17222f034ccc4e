"""Pages with their blocks and links, and a reader that runs the blocks of a page.

The fence of a block and the line above it decide how it is checked:

    console     commands after `$ `, continued after `> `; the lines below them must be in their output in this order.
                Numbers and ids may differ, `…` matches anything. An id that was printed is replaced by the real one
                from then on. A command must succeed, unless `$ echo $?` follows with another exit code.
    sh          commands that must succeed
    python      a program that must succeed
    output      lines that the sh or python block before it prints, compared in the same way
    text        examples that cannot be run here, and drawings

A block below a line that ends with a file's name in backticks and a colon is that file's content.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "AGENTS.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)
COMMANDS = {"console", "sh"}
"""Languages of blocks that are run, whatever the line above them ends with."""
COMMANDS = {"console", "sh"}
"""Languages of blocks that are run, whatever the line above them ends with."""
COMMAND_TIMEOUT = 60.0

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w./-]+)`:\s*\Z")
_ID = re.compile(r"\b(?=[0-9a-f]*[a-f])[0-9a-f]{8}(?:[0-9a-f]{8}|[0-9a-f]{24})?\b")
_NUMBER = re.compile(r"\d+")
_COLUMN_GAP = re.compile(r"(?:\\ ){2,}")
"""Two or more blanks in a pattern."""
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


class PageBlock(NamedTuple):
    page: str
    line: int
    language: str
    text: str
    file: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[PageBlock]:
    text = page.read_text("utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        named = None if fence[1] in COMMANDS else _FILE.search(text, 0, fence.start())
        line = text.count("\n", 0, fence.start()) + 1
        found.append(PageBlock(str(page.relative_to(ROOT)), line, fence[1], fence[2], named[1] if named else None))
    return found


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings as GitHub makes them."""
    titles = (
        re.sub(r"[^\w\- ]", "", title.replace("`", "").strip().lower()) for title in _HEADING.findall(prose(page))
    )
    return {title.replace(" ", "-") for title in titles}


class ConsoleCommand(NamedTuple):
    text: str
    shown: tuple[str, ...]


def commands(block: PageBlock) -> list[ConsoleCommand]:
    """Return the commands of a console block, each with the lines shown below it."""
    found: list[ConsoleCommand] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(ConsoleCommand(line[2:], ()))
        elif line.startswith("> ") and not found[-1].shown:
            found[-1] = ConsoleCommand(f"{found[-1].text}\n{line[2:]}", ())
        else:
            found[-1] = ConsoleCommand(found[-1].text, (*found[-1].shown, line))
    return found


class PageReader:
    """Runs the blocks of a page in order, in one directory."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._ids: dict[str, str] = {}
        """Ids in the page → ids printed by the commands."""
        self.printed = ""
        """Output of the last block that ran, or of its last command."""

    def run_block(self, block: PageBlock) -> None:
        if block.file:
            path = self._folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
        elif block.language == "console":
            self._run_console(block)
        elif block.language == "sh":
            self._run_program(block, ["bash", "-e", "-c", block.text])
        elif block.language == "python":
            self._run_program(block, [sys.executable, "-W", "error", "-c", block.text])
        elif block.language == "output":
            self._compare(block, block.text.splitlines(), self.printed)

    def _run_console(self, block: PageBlock) -> None:
        status = 0
        for command, following in _with_next(commands(block)):
            if command.text == "echo $?":
                assert command.shown == (str(status),), f"{block}: the exit code was {status}"
                continue
            done = self._run(["bash", "-c", _ID.sub(lambda found: self._ids.get(found[0], found[0]), command.text)])
            status, self.printed = done.returncode, done.stdout
            assert status == 0 or (following and following.text == "echo $?"), (
                f"{block}: {command.text}\n{_short(done.stdout)}"
            )
            self._compare(block, command.shown, done.stdout)

    def _compare(self, block: PageBlock, expected: Sequence[str], output: str) -> None:
        lines = iter(output.splitlines())
        for shown in expected:
            wanted = re.compile(self._pattern(shown))
            found = next((match for line in lines if (match := wanted.fullmatch(line.rstrip()))), None)
            assert found or shown in ("", "…"), f"{block}: {shown!r} was not printed, or not there:\n{_short(output)}"
            for shown_id, real in zip(_ID.findall(shown), found.groups() if found else (), strict=True):
                self._ids.setdefault(shown_id, real)

    def _pattern(self, shown: str) -> str:
        parts, at = [], 0
        for found in _ID.finditer(shown):
            parts += [_number_pattern(shown[at : found.start()]), f"([0-9a-f]{{{len(found[0])}}})"]
            at = found.end()
        return "".join([*parts, _number_pattern(shown[at:].rstrip())])

    def _run_program(self, block: PageBlock, argv: list[str]) -> None:
        done = self._run(argv)
        self.printed = done.stdout
        assert done.returncode == 0, f"{block}\n{_short(done.stdout)}"

    def _run(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            cwd=self._folder,
            env=dict(self._environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )


def _short(output: str) -> str:
    """Shorten an output for a message."""
    return "\n".join(line[:200] for line in output.splitlines()[:50])


def _number_pattern(text: str) -> str:
    """Return a pattern for the text with any numbers, and columns as wide as they make them."""
    parts = (_NUMBER.sub(r"\\d+", re.escape(part)) for part in text.split("…"))
    return _COLUMN_GAP.sub(r"\\ {2,}", ".*".join(parts))


def _with_next(found: list[ConsoleCommand]) -> Iterator[tuple[ConsoleCommand, ConsoleCommand | None]]:
    return zip(found, [*found[1:], None], strict=True)
