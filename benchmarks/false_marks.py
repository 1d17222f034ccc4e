"""`python -m benchmarks.false_marks [FOLDERS…]`: count what redaction marks in ordinary source and documentation.

Without folders: the standard library, the installed packages of Python and Node, and `/usr/share/doc`. Tests and
their fixtures are left out: the secrets invented there have the form of real ones; `--with-tests` counts them, too.
Equal files count once. `--list` prints each mark with its place.
"""

from __future__ import annotations

import argparse
import re
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from retinue.output.redaction.redactor import Redactor

ROOT = Path(__file__).parents[1]
CORPORA = {
    "standard library": (Path(sysconfig.get_path("stdlib")),),
    "Python packages": (Path(sysconfig.get_path("purelib")),),
    "Node packages": tuple(ROOT / ".tools" / name for name in ("pi-1.5", "pi-0.87", "mcp-clients", "axe")),
    "/usr/share/doc": (Path("/usr/share/doc"),),
}
SUFFIXES = frozenset({
    "", ".bash", ".c", ".cfg", ".cjs", ".css", ".cts", ".go", ".h", ".html", ".ini", ".java", ".js", ".json", ".jsx",
    ".md", ".mjs", ".mts", ".py", ".pyi", ".rb", ".rs", ".rst", ".sh", ".sql", ".toml", ".ts", ".tsx", ".txt", ".xml",
    ".yaml", ".yml",
})  # fmt: skip
TESTS = re.compile(
    r"(?i)(?:^|/)(?:tests?|idlelib/idle_test|__tests__|fixtures?|testing|specs?)/|[._-](?:test|spec)\.|/test_"
)
NESTED = ("site-packages", "node_modules")
"""Folders of the standard library's folder that have a corpus of their own."""
MAX_FILE_BYTES = 20_000_000
COLUMNS = "{:24}{:>9}{:>10}{:>8}{:>14}"
CONTEXT = 40


class Counts(Struct):
    files: int = 0
    characters: int = 0
    marks: int = 0

    @property
    def rate(self) -> float:
        return self.marks / (self.characters / 1e6) if self.characters else 0.0

    def row(self, name: str) -> str:
        return COLUMNS.format(name, self.files, f"{self.characters / 1e6:.1f}", self.marks, f"{self.rate:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.false_marks", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("folders", nargs="*", type=Path, help="folders to read instead of the installed ones")
    parser.add_argument("--with-tests", action="store_true", help="count tests and fixtures, too")
    parser.add_argument("--list", action="store_true", help="print each mark with its place")
    chosen = parser.parse_args()
    corpora = {str(folder): (folder,) for folder in chosen.folders} or CORPORA
    print(COLUMNS.format("", "files", "MB", "marks", "marks per MB"))
    total = Counts()
    seen: set[int] = set()
    for name, folders in corpora.items():
        counts = Counts()
        for path, text in read_texts(
            folders, seen, with_tests=chosen.with_tests, is_library=name == "standard library"
        ):
            redacted, marks = Redactor().redact(text)
            counts.files, counts.characters, counts.marks = (
                counts.files + 1,
                counts.characters + len(text),
                counts.marks + marks,
            )
            if chosen.list and marks:
                print_marks(path, text, redacted)
        print(counts.row(name), flush=True)
        total.files, total.characters, total.marks = (
            total.files + counts.files,
            total.characters + counts.characters,
            total.marks + counts.marks,
        )
    print(total.row("all"))


def read_texts(
    folders: Iterable[Path], seen: set[int], *, with_tests: bool, is_library: bool
) -> Iterator[tuple[Path, str]]:
    """Yield the text files of the folders, in the order of their names."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.suffix.lower() not in SUFFIXES or (not with_tests and TESTS.search(name)):
                continue
            if (is_library and any(part in NESTED for part in path.relative_to(folder).parts)) or not is_readable(
                path
            ):
                continue
            text = path.read_bytes().decode("utf-8", "replace")
            if "\0" not in text and "\ufffd" not in text and hash(text) not in seen:
                seen.add(hash(text))
                yield path, text


def is_readable(path: Path) -> bool:
    try:
        return path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_FILE_BYTES
    except OSError:
        return False


def print_marks(path: Path, text: str, redacted: str) -> None:
    """Print the parts of a text that have a mark in the redacted one, with what is before and behind."""
    marks = Counter(re.findall(r"\[[A-Z0-9_]*REDACTED\]", redacted)) - Counter(
        re.findall(r"\[[A-Z0-9_]*REDACTED\]", text)
    )
    print(f"{path}: {', '.join(f'{count} {mark}' for mark, count in marks.items())}")
    for match in re.finditer(r"\[[A-Z0-9_]*REDACTED\]", redacted):
        before = redacted[max(0, match.start() - CONTEXT) : match.end()]
        at = text.find(before.rpartition("[")[0])
        shown = text[at : at + 2 * CONTEXT] if at >= 0 else before
        print(f"    {' '.join(shown.split())}")


if __name__ == "__main__":
    main()
