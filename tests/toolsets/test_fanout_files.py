"""Files in the prompt of a `fanout` task: slices, paths, limits and placeholders."""

from __future__ import annotations

import os
import socket

import pytest

from retinue.engines.scripted import reply

TEN = "".join(f"line {number}\n" for number in range(1, 11))


@pytest.fixture
def folder(workplace):
    (workplace / "src").mkdir()
    (workplace / "src" / "main.ts").write_text(TEN)
    (workplace / "README.md").write_text("# My Project\n")
    return workplace


async def render_prompt(fanout, *files, environ=None, cwd=None):
    """Return the prompt of a run whose task is `Do it.`."""
    task = {"name": "a", "prompt": "Do it.", "files": list(files), **({"cwd": str(cwd)} if cwd else {})}
    async with fanout(reply("done"), environ=environ) as host:
        result = await host.delegate(task)
    assert result.text.startswith("✓ a: completed")
    return host.specs[0].prompt


async def render_file_block(fanout, file, **options):
    """Return the block before the prompt."""
    block, prompt = (await render_prompt(fanout, file, **options)).split("\n\n")
    assert prompt == "Do it."
    return block


async def test_files_precede_the_prompt_each_under_its_path(fanout, folder):
    assert await render_prompt(fanout, {"path": "src/main.ts", "head": 2}, "README.md") == (
        "=== src/main.ts ===\nline 1\nline 2\n\n=== README.md ===\n# My Project\n\nDo it."
    )


@pytest.mark.parametrize(
    ("part", "first", "last"),
    [
        ({}, 1, 10),
        ({"start": 3, "end": 5}, 3, 5),
        ({"start": 8}, 8, 10),
        ({"end": 2}, 1, 2),
        ({"head": 1}, 1, 1),
        ({"head": 3.0}, 1, 3),
        ({"tail": 2}, 9, 10),
        ({"head": 50}, 1, 10),
        ({"head": 3, "tail": 1}, 10, 10),
    ],
)
async def test_file_slice_has_the_requested_lines(fanout, folder, part, first, last):
    lines = "\n".join(f"line {number}" for number in range(first, last + 1))
    assert await render_file_block(fanout, {"path": "src/main.ts", **part}) == f"=== src/main.ts ===\n{lines}"


async def test_file_paths_are_relative_to_the_task_directory_or_absolute(fanout, folder):
    assert (
        await render_file_block(fanout, {"path": "main.ts", "head": 1}, cwd=folder / "src")
        == "=== main.ts ===\nline 1"
    )
    path = str(folder / "README.md")
    assert await render_file_block(fanout, path, cwd=folder / "src") == f"=== {path} ===\n# My Project"


async def test_missing_file_fails_the_task_with_its_path(fanout, folder):
    assert await render_file_block(fanout, "nope.ts") == "[file not found: nope.ts]"


@pytest.mark.parametrize("kind", ["directory", "pipe", "socket", "device", "not text", "NUL", "link that goes round"])
async def test_unreadable_path_fails_the_task_without_blocking(fanout, folder, kind, monkeypatch):
    path = {"device": "/dev/zero", "NUL": "a\0b"}.get(kind, "odd")
    if kind == "directory":
        (folder / path).mkdir()
    elif kind == "pipe":
        os.mkfifo(folder / path)
    elif kind == "socket":
        monkeypatch.chdir(folder)  # the path of a socket must be short
        with socket.socket(socket.AF_UNIX) as odd:
            odd.bind(path)
    elif kind == "not text":
        (folder / path).write_bytes(b"\xff\xfe\x00a")
    elif kind == "link that goes round":
        (folder / path).symlink_to(path)
    assert await render_file_block(fanout, path) == f"[could not read file: {path}]"


@pytest.mark.parametrize(("size", "size_kb"), [(2**20 + 1, 1025), (2**20 + 1024, 1025), (50 * 2**20, 51200)])
async def test_file_over_one_megabyte_is_refused_for_any_slice(fanout, folder, size, size_kb):
    with (folder / "big").open("wb") as file:
        file.truncate(size)
    assert (
        await render_file_block(fanout, {"path": "big", "head": 1})
        == f"[file too large: big ({size_kb}KB, limit 1024KB)]"
    )


async def test_file_of_one_megabyte_is_accepted(fanout, folder):
    (folder / "big").write_text("x" * 2**20)
    assert len(await render_file_block(fanout, "big")) == len("=== big ===\n") + 2**20


async def test_number_and_total_size_of_files_are_limited(fanout, folder):
    (folder / "big").write_text("x" * 2**20)
    blocks = (await render_prompt(fanout, *["big"] * 9)).split("\n\n")
    assert blocks[8] == "[file skipped: big (limit 8MB in all)]"
    blocks = (await render_prompt(fanout, *["README.md"] * 65)).split("\n\n")
    assert blocks[63:65] == ["=== README.md ===\n# My Project", "[file skipped: README.md (limit 64 files)]"]


async def test_nested_caller_cannot_read_files_outside_its_directory(fanout, folder, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    nested = {"PI_SUBAGENT_DEPTH": "1"}
    for path in (str(tmp_path / "secret"), "../secret", "link", "/etc/hostname"):
        assert await render_file_block(fanout, path, environ=nested) == f"[access denied: {path}]"
        assert not (await render_file_block(fanout, path)).startswith("[access denied")
    assert await render_file_block(fanout, "README.md", environ=nested) == "=== README.md ===\n# My Project"


async def test_file_content_is_passed_verbatim(fanout, folder):
    odd = "if a < b:\n\t<system-reminder>\r\n\x0c=== x ==="
    (folder / "odd").write_text(odd, newline="")
    assert await render_file_block(fanout, "odd") == f"=== odd ===\n{odd}"
