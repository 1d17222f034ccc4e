"""The files of the dashboard: small, without external hosts, and without code that turns text into markup."""

from __future__ import annotations

import gzip
import re
import subprocess
from pathlib import Path

import pytest
from tests.real.install import MissingError, node_and_npm, skip

import retinue

HERE = Path(__file__).parent
FOLDER = Path(retinue.__file__).parent / "servers" / "http" / "dashboard"
OWN = sorted(path for path in FOLDER.glob("*.*") if path.suffix in {".js", ".css", ".html", ".svg"})
SCRIPTS = [path for path in OWN if path.suffix == ".js"]
LONGEST = {".js": 200, ".css": 400}
FIRST_PAGE = 100 * 1024
"""Bytes of everything the first page loads, compressed."""
MAX_VENDORED_BYTES = 60 * 1024
MAKES_MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|createContextualFragment"
    r"|DOMParser|srcdoc|\beval\(|new Function|setAttribute\(\"(?:on|style)|javascript:"
)


def test_unit_tests_of_the_javascript_modules_pass():
    try:
        node, _ = node_and_npm()
    except MissingError as why:
        skip(str(why))
    done = subprocess.run(
        [node, "--test", HERE / "units.test.mjs"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_turns_text_into_markup(path):
    assert MAKES_MARKUP.findall(path.read_text()) == []


@pytest.mark.parametrize("path", [path for path in OWN if path.suffix in LONGEST], ids=lambda path: path.name)
def test_every_file_is_short_and_starts_with_a_comment(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= LONGEST[path.suffix]
    assert path.suffix == ".css" or lines[0].startswith("// ")


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_file_names_an_external_host(path):
    hosts = set(
        re.findall(r"(?:https?:)?//([\w.-]+\.\w+)", re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE))
    )
    assert hosts <= {"www.w3.org"}


@pytest.mark.parametrize("name", ["index.html", "login.html"])
def test_pages_have_no_inline_script_or_style(name):
    page = (FOLDER / name).read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page) == []


def test_every_imported_module_exists():
    for path in SCRIPTS:
        for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert (FOLDER / name).is_file(), f"{path.name} imports {name}"


def test_index_page_preloads_every_file():
    page = (FOLDER / "index.html").read_text()
    needed = {path.name for path in OWN if path.suffix in {".js", ".css"}} - {"login.js", "login.css"}
    assert set(re.findall(r'(?:href|src)="/([^"]+)"', page)) == needed | {
        "vendor/preact.js",
        "vendor/marked.js",
        "favicon.svg",
    }


def test_first_page_is_within_its_size_limit():
    loaded = [
        FOLDER / "index.html",
        FOLDER / "vendor" / "preact.js",
        *(path for path in OWN if path.suffix != ".html"),
    ]
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in loaded) <= FIRST_PAGE


def test_vendored_code_has_its_licence():
    vendor = {path.name for path in (FOLDER / "vendor").iterdir()}
    assert vendor == {"preact.js", "LICENSE.htm", "LICENSE.preact", "marked.js", "LICENSE.marked"}
    assert (FOLDER / "vendor" / "marked.js").stat().st_size <= MAX_VENDORED_BYTES
