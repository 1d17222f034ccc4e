"""The files of the dashboard themselves: small, nobody else's, and without a way to make markup of text."""

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
MAKES_MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|createContextualFragment"
    r"|DOMParser|srcdoc|\beval\(|new Function|setAttribute\(\"(?:on|style)|javascript:"
)


def test_the_pure_modules_do_what_their_own_tests_say():
    try:
        node, _ = node_and_npm()
    except MissingError as why:
        skip(str(why))
    done = subprocess.run(
        [node, "--test", HERE / "units.test.mjs"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_of_text(path):
    assert MAKES_MARKUP.findall(path.read_text()) == []


@pytest.mark.parametrize("path", [path for path in OWN if path.suffix in LONGEST], ids=lambda path: path.name)
def test_every_file_can_be_read_in_one_sitting(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= LONGEST[path.suffix]
    assert path.suffix == ".css" or lines[0].startswith("// ")


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_no_file_names_another_host(path):
    hosts = set(
        re.findall(r"(?:https?:)?//([\w.-]+\.\w+)", re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE))
    )
    assert hosts <= {"www.w3.org"}


@pytest.mark.parametrize("name", ["index.html", "login.html"])
def test_pages_hold_no_script_and_no_style_of_their_own(name):
    page = (FOLDER / name).read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page) == []


def test_every_module_that_is_imported_is_there():
    for path in SCRIPTS:
        for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert (FOLDER / name).is_file(), f"{path.name} imports {name}"


def test_the_page_asks_for_all_its_files_at_once():
    page = (FOLDER / "index.html").read_text()
    needed = {path.name for path in OWN if path.suffix in {".js", ".css"}} - {"login.js", "login.css"}
    assert set(re.findall(r'(?:href|src)="/([^"]+)"', page)) == needed | {"vendor/preact.js", "favicon.svg"}


def test_the_first_page_is_small():
    loaded = [
        FOLDER / "index.html",
        FOLDER / "vendor" / "preact.js",
        *(path for path in OWN if path.suffix != ".html"),
    ]
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in loaded) <= FIRST_PAGE


def test_what_is_not_ours_stands_with_its_licence():
    vendor = {path.name for path in (FOLDER / "vendor").iterdir()}
    assert vendor == {"preact.js", "LICENSE.htm", "LICENSE.preact"}
