"""Build the documentation site from the documents: `make docs-site`.

The site is static, has a search of its own, fetches nothing and opens from the file system.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "docs"
CONFIG = Path(__file__).with_name("zensical.toml")
WORKER_SHIM = Path(__file__).with_name("iframe_worker.js")
"""Lets the search run in pages from the file system; the generator would load it from the network."""
SHIM_URL = "https://unpkg.com/iframe-worker/shim"
SHIM_FILE = "assets/javascripts/iframe-worker.js"

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "docs/index.md": "contents.md",
    "docs": "contents.md",
    "examples": "examples.md",
    "LICENSE": "license.txt",
}
"""Pages of the site by their path in the repository, where it is not their path below `docs/`."""
REPOSITORY_ONLY = ("AGENTS.md",)
"""Files the documents link to that are no part of the site; such links become plain text."""

_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)\s]+)\)")


def main() -> None:
    """Write the pages with links as they are on the site, build it, and print where it is."""
    shutil.rmtree(BUILD, ignore_errors=True)
    pages = BUILD / "pages"
    for source, target in list_sources():
        (pages / target).parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            (pages / target).write_text(convert_links(source.read_text("utf-8"), source, target), "utf-8")
        else:
            shutil.copy(source, pages / target)
    (pages / "examples.md").write_text(render_examples(), "utf-8")
    shutil.copy(CONFIG, BUILD)
    generator = Path(sys.executable).with_name("zensical")
    subprocess.run([generator, "build", "--strict"], cwd=BUILD, check=True)  # noqa: S603 - its path is fixed
    make_search_local(BUILD / "site")
    print(f"Open {(BUILD / 'site' / 'index.html').relative_to(ROOT)}")  # noqa: T201


def list_sources() -> Iterator[tuple[Path, str]]:
    """Yield each file of the site, and its path there."""
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file() and "_generate" not in path.parts and "__pycache__" not in path.parts:
            yield path, site_path(path.relative_to(ROOT).as_posix())
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"):
        yield ROOT / name, site_path(name)


def site_path(path: str) -> str:
    """Return the path on the site of a path in the repository."""
    return PAGES.get(path.rstrip("/"), path.removeprefix("docs/"))


def convert_links(text: str, source: Path, target: str) -> str:
    """Return a page whose relative links lead to pages of the site."""
    folder = source.parent.relative_to(ROOT).as_posix()

    def convert(match: re.Match[str]) -> str:
        label, link = match.groups()
        path, mark, anchor = link.partition("#")
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, path))
        if path in REPOSITORY_ONLY:
            return label.strip("[]")
        return f"{label}({posixpath.relpath(site_path(path), posixpath.dirname(target) or '.')}{mark}{anchor})"

    return _LINK.sub(convert, text)


def render_examples() -> str:
    """Return a page with the programs of `examples/`."""
    programs = sorted((ROOT / "examples").glob("*.py"))
    return "# Examples\n\n" + "\n\n".join(
        f"## {path.stem.replace('_', ' ').capitalize()}\n\n"
        f'```python title="examples/{path.name}"\n{path.read_text("utf-8").rstrip()}\n```'
        for path in programs
    )


def make_search_local(site: Path) -> None:
    """Serve the script that the search needs from the site itself."""
    shutil.copy(WORKER_SHIM, site / SHIM_FILE)
    for page in site.rglob("*.html"):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        page.write_text(page.read_text("utf-8").replace(SHIM_URL, up + SHIM_FILE), "utf-8")


if __name__ == "__main__":
    main()
