"""Tests of the documents: blocks run, links have targets, lists are complete."""

import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import yaml
from anyio.from_thread import start_blocking_portal
from docs._generate.live_view import PICTURE, animate
from docs._generate.pi_extension import FILE, toolsets_file
from docs._generate.reference import FOLDER, page
from docs._generate.reference import PAGES as REFERENCE
from docs._generate.reliability import PAGES as PAGES_WITH_BLOCKS
from docs._generate.reliability import fill_blocks
from tests.docs.pages import PAGES, ROOT, PageReader, anchors, blocks, commands, links, prose
from tests.support.model_server import ModelServer, ScriptedTurn
from tests.support.model_server.request import ChatRequest
from tests.test_layers import LAYERS
from tests.test_vocabulary import MESSAGE_WORDS

from retinue.agents.search_paths import PROJECT_FOLDERS, SearchPaths
from retinue.cli.json_output import result_json
from retinue.composition import available_engines
from retinue.model.events import PersistedEvent
from retinue.model.results import RunResult
from retinue.testing.engines import make_run_spec
from retinue.tui.renderer import StyledSpan

RUNNABLE = {"console", "sh", "python"}
READ_BY: Mapping[str, Callable[[str], object]] = {
    "json": msgspec.json.decode,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}
LANGUAGES = {*RUNNABLE, *READ_BY, "output", "text", "markdown"}
WRITTEN = [page for page in PAGES if page.parent != FOLDER]
"""Pages that are not generated."""
WITH_A_KEY = ROOT / "docs" / "with-a-key.md"
"""The page whose commands run with the key of a provider."""
FIGURES_OF_SPEECH = re.compile(
    r"\b(?:told|to mend|whoever|taken as written|(?:goes|go|going) on|stands|calls? home|not there yet|seed 00\d)\b",
    re.IGNORECASE,
)
"""Words that a reader of the documents would have to guess the meaning of."""
MAX_README_LINES = 80
"""Lines of source, with the picture as one."""
COPIED = ("src", "tests", "examples", "docs", "README.md", "pyproject.toml", ".gitignore")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a copy of this repository, in which the commands of a page may write."""
    ignored = shutil.ignore_patterns("__pycache__")
    for each in COPIED:
        if (ROOT / each).is_dir():
            shutil.copytree(ROOT / each, tmp_path / each, ignore=ignored)
        else:
            shutil.copy(ROOT / each, tmp_path / each)
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.fixture
def environment(scratch_home: Path) -> dict[str, str]:
    """Return the environment of the commands of a page: no key, and an empty home."""
    programs = str(Path(sys.executable).parent)
    return {
        "PATH": os.pathsep.join([programs, os.environ["PATH"]]),
        "HOME": str(scratch_home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "COLUMNS": "120",
    }


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """Run a model that answers every question in one sentence."""

    def answer(request: ChatRequest) -> ScriptedTurn:
        is_trial = "one word" in request.prompt
        return ScriptedTurn(text="ready" if is_trial else "Loop detection is in src/retinue/guards/loop.py.")

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(ModelServer(answer)) as server:
        yield server


@pytest.mark.process
@pytest.mark.parametrize(
    "page",
    [page for page in WRITTEN if page != WITH_A_KEY and any(block.language in RUNNABLE for block in blocks(page))],
    ids=name,
)
def test_blocks_of_every_page_run_and_print_what_they_show(page, place, environment):
    reader = PageReader(place, environment)
    for block in blocks(page):
        reader.run_block(block)


@pytest.mark.process
def test_blocks_of_the_page_about_keys_run_with_only_a_key(place, environment, model):
    reader = PageReader(place, {**environment, "OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": f"{model.url}/v1"})
    for block in blocks(WITH_A_KEY):
        reader.run_block(block)


@pytest.mark.process
def test_examples_of_the_readme_are_answered_by_a_model_with_only_a_key(place, environment, model):
    """The answers differ from those shown, which are of the offline engine: only ids are compared."""
    readme = ROOT / "README.md"
    start, end = (readme.read_text("utf-8").count("\n", 0, at) for at in section_range(readme, "Examples"))
    reader = PageReader(place, {**environment, "OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": f"{model.url}/v1"})
    shown = [block for block in blocks(readme) if start < block.line <= end and block.language == "console"]
    for block in shown:
        reader.run_block(block._replace(text=keep_sessions(block.text)))
        assert "Rule-based" not in reader.printed
    assert len(model.requests) >= len(shown)


def section_range(page: Path, title: str) -> tuple[int, int]:
    """Return where a section of a page starts and ends."""
    text = page.read_text("utf-8")
    start = text.index(f"\n## {title}\n")
    return start, text.index("\n## ", start + 1)


def keep_sessions(text: str) -> str:
    """Return a console block with the commands, and of the shown lines only those with a session."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith(("$ ", "> ")) or "(session " in line)


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_block_has_a_known_language(page):
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block} is {block.language or 'nothing'}"
        if read := READ_BY.get(block.language):
            read(block.text)


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_runnable_commands_are_not_in_text_blocks(page):
    for block in blocks(page):
        if block.language == "text":
            assert not re.search(r"^(?:\$ )?retinue \w+", block.text, re.MULTILINE), str(block)
        if block.language == "console":
            assert commands(block), str(block)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_prose_is_plain_english(page):
    found = [each[0] for words in (FIGURES_OF_SPEECH, MESSAGE_WORDS) for each in words.finditer(prose(page))]
    assert found == []


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.parent.name == "docs"], ids=name)
def test_every_document_begins_with_what_it_covers(page):
    first = prose(page).split("\n\n")[1]
    assert re.match(r"This page |The dashboard ", first), first


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_has_a_target(page):
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{name(page)} links to {link}"


def test_index_links_to_every_page():
    index = ROOT / "docs" / "index.md"
    reached = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert {page for page in PAGES if page.is_relative_to(index.parent)} - {index} <= reached


@pytest.mark.parametrize("file", REFERENCE)
def test_reference_pages_are_up_to_date(file):
    assert (FOLDER / file).read_text("utf-8") == page(file), "stale: run `make docs`"


@pytest.mark.parametrize("path", PAGES_WITH_BLOCKS, ids=name)
def test_blocks_of_figures_are_up_to_date(path):
    assert path.read_text("utf-8") == fill_blocks(path.read_text("utf-8")), "stale: run `make docs`"


def test_tool_list_of_the_pi_extension_is_up_to_date():
    assert FILE.read_text("utf-8") == toolsets_file(), "stale: run `make docs`"


def test_reference_folder_has_only_generated_pages():
    assert {path.name for path in FOLDER.iterdir()} == set(REFERENCE)


def test_agents_page_names_every_folder_that_is_read():
    text = prose(ROOT / "docs" / "agents.md")
    project = [folder for folder, _ in PROJECT_FOLDERS]
    user = [
        folder.path
        for folder in SearchPaths({"HOME": "/h"}).for_directory(Path("/nowhere"))
        if folder.origin.layer == "user"
    ]
    for folder in (*project, *(f"~/{path.relative_to('/h')}" for path in user)):
        assert f"`{folder}" in text, folder


def test_engines_page_names_every_engine():
    text = (ROOT / "docs" / "engines.md").read_text("utf-8")
    for engine in available_engines({}):
        assert f"| `{engine}` |" in text, engine
        assert f"## {engine}\n" in text, engine


def test_architecture_page_names_every_package():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    for path in sorted((ROOT / "src" / "retinue").iterdir()):
        if path.suffix == ".py" and path.stem != "__main__":
            assert path.name in text, path.name
        elif path.is_dir() and path.name != "__pycache__":
            assert f"{path.name}/" in text, path.name


def test_architecture_page_names_only_existing_modules():
    named = re.findall(r"[\w/]+\.py\b", (ROOT / "docs" / "architecture.md").read_text("utf-8"))
    there = {path.name for path in ROOT.rglob("*.py") if ".venv" not in path.parts}
    assert {Path(each).name for each in named} <= there


def test_architecture_page_has_the_layers_of_the_layer_test():
    (layers,) = (
        block for block in blocks(ROOT / "docs" / "architecture.md") if re.match(r"\d+  __main__\n", block.text)
    )
    documented = {int(line[:2]): set(line[2:].split()) for line in layers.text.splitlines()}
    assert documented == dict(enumerate(LAYERS))


def test_events_page_names_every_stored_event():
    tree = blocks(ROOT / "docs" / "events.md")[0].text
    for kind in get_args(PersistedEvent):
        assert re.search(rf"\b{kind.__struct_config__.tag}\b", tree), kind


def test_results_page_names_every_key_of_a_result(tmp_path):
    text = prose(ROOT / "docs" / "results.md")
    for key in result_json(RunResult(spec=make_run_spec(tmp_path))):
        assert f"`{key}`" in text, key


def test_result_in_the_page_of_results_has_only_real_keys(tmp_path):
    shown, *_ = (block for block in blocks(ROOT / "docs" / "results.md") if block.language == "json")
    documented, real = msgspec.json.decode(shown.text), result_json(RunResult(spec=make_run_spec(tmp_path)))
    assert documented.keys() <= real.keys()
    assert documented["actual"].keys() <= real["actual"].keys()


def test_picture_is_small_and_self_contained():
    frames = [(), ((StyledSpan("explorer", "name"),),)]
    for picture in (PICTURE.read_text("utf-8"), animate(frames)):
        assert len(picture) < 400_000
        assert set(re.findall(r"\w+://[^\"'\s]+", picture)) == {"http://www.w3.org/2000/svg"}
        assert "@import" not in picture
        assert picture.count('class="frame last"') == 1
        assert "explorer" in picture


def test_readme_fits_one_screen():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= MAX_README_LINES
