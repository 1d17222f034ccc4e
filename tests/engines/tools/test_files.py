"""The `read`, `ls` and `find` tools, with and without ripgrep."""

from base64 import b64encode

import pytest
from anyio import CapacityLimiter

from retinue.engines.toolbox import ToolOutcome
from retinue.engines.tools import make_local_toolbox
from retinue.engines.tools.base import MAX_READERS
from retinue.model.runs import ImageBlock, ToolUse


async def test_read_returns_the_text_without_byte_order_mark_and_carriage_returns(write_files, call):
    write_files({"a.txt": "\ufeffone\r\ntwo\n\nfour\n"})
    assert await call("read", path="a.txt") == ToolOutcome("one\ntwo\n\nfour")
    assert await call("read", path="@a.txt") == ToolOutcome("one\ntwo\n\nfour")


async def test_part_of_a_file_ends_with_the_offset_to_continue(write_files, call):
    write_files({"a.txt": "".join(f"{number}\n" for number in range(1, 11))})
    assert await call("read", path="a.txt", offset=3, limit=2) == ToolOutcome(
        "3\n4\n\n[6 more lines in file. Use offset=5 to continue.]"
    )
    assert await call("read", path="a.txt", offset=9, limit=5) == ToolOutcome("9\n10")


async def test_read_cuts_a_long_file_at_2000_lines(write_files, call):
    write_files({"a.txt": "x\n" * 5000})
    outcome = await call("read", path="a.txt", offset=2)
    assert outcome.text.endswith("x\n\n[Showing lines 2-2001 of 5000. Use offset=2002 to continue.]")
    assert outcome.text.count("x") == 2000


async def test_read_cuts_wide_lines_at_50_kilobytes(write_files, call):
    write_files({"a.txt": f"{'x' * 30_000}\n" * 3})
    outcome = await call("read", path="a.txt")
    assert outcome.text.endswith("x\n\n[Showing lines 1-1 of 3. Use offset=2 to continue.]")
    assert outcome.text.count("x") == 30_000


async def test_read_shows_the_start_of_a_line_of_ten_megabytes(write_files, call):
    write_files({"a.txt": "x" * 10_000_000 + "\nend\n"})
    outcome = await call("read", path="a.txt")
    assert outcome.text.endswith("\n\n[Line 1 is too long: its first 50.0 KB are shown. Use offset=2 to continue.]")
    assert outcome.text.count("x") == 50 * 1024


async def test_read_examines_only_the_start_of_a_huge_file(tree, call):
    with (tree / "huge").open("wb") as file:
        file.write(b"head\n" * 10)
        file.truncate(5 * 2**30)
    outcome = await call("read", path="huge")
    assert outcome.text == "[Binary file, 5.0 GB, not shown.]"


async def test_read_reports_binary_files_and_other_encodings(write_files, call):
    write_files({"latin.txt": b"caf\xe9\n", "binary": b"\x7fELF\0", "empty": ""})
    assert await call("read", path="latin.txt") == ToolOutcome(
        "caf\ufffd\n\n[Not UTF-8: bytes that cannot be decoded are shown as \ufffd.]"
    )
    assert await call("read", path="binary") == ToolOutcome("[Binary file, 5 B, not shown.]")
    assert await call("read", path="empty") == ToolOutcome("")


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x10\x20\x30\x40WEBP", "image/webp"),
    ],
)
async def test_read_returns_images_by_their_first_bytes_whatever_their_name(write_files, call, start, kind):
    data = start + b"\0" * 2000
    write_files({"picture.txt": data})
    assert await call("read", path="picture.txt") == ToolOutcome(
        f"[Image picture.txt: {kind}, 2.0 KB.]", images=(ImageBlock(kind, b64encode(data).decode()),)
    )


async def test_read_names_an_image_that_is_too_large_for_models(write_files, call):
    write_files({"p.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 3_750_000, "p2.png": "no image"})
    assert await call("read", path="p.png") == ToolOutcome(
        "[Image p.png: image/png, 3.6 MB; images over 3.6 MB are not shown.]"
    )
    assert await call("read", path="p2.png") == ToolOutcome("no image")


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ({"path": "none.txt"}, "Path not found: none.txt. Use ls or find to see what exists."),
        ({"path": "folder"}, "folder is a directory. Use ls to list it."),
        ({"path": "a.txt/b"}, "Not a directory: a.txt/b."),
        ({"path": "a.txt", "offset": 4}, "Offset 4 is beyond end of file (2 lines total)"),
    ],
)
async def test_read_error_names_the_reason_and_the_next_step(write_files, call, args, complaint):
    write_files({"a.txt": "1\n2\n", "folder/b.txt": ""})
    assert await call("read", **args) == ToolOutcome(complaint, is_error=True)


async def test_ls_sorts_without_regard_to_case_and_marks_directories(write_files, call):
    write_files({"b.txt": "", "A/x": "", ".c": "", "a": ""})
    assert await call("ls") == ToolOutcome(".c\nA/\na\nb.txt")
    assert await call("ls", limit=2) == ToolOutcome(".c\nA/\n\n[2 entries limit reached. Use limit=4 for more.]")
    assert await call("ls", path="A") == ToolOutcome("x")


async def test_ls_reports_an_empty_directory_and_a_file(tree, write_files, call):
    write_files({"a.txt": ""})
    (tree / "empty").mkdir()
    assert await call("ls", path="empty") == ToolOutcome("(empty directory)")
    assert await call("ls", path="a.txt") == ToolOutcome("Not a directory: a.txt.", is_error=True)


@pytest.fixture
def project(write_files):
    write_files(
        {
            "src/app.ts": "",
            "src/deep/er/app.spec.ts": "",
            "README.md": "",
            ".github/ci.yml": "",
            ".git/config": "",
            "node_modules/x/app.ts": "",
            ".gitignore": "node_modules\n",
        }
    )


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.ts", "src/app.ts\nsrc/deep/er/app.spec.ts"),
        ("**/*.spec.ts", "src/deep/er/app.spec.ts"),
        ("src/*.ts", "src/app.ts"),
        ("deep/**/*.ts", "src/deep/er/app.spec.ts"),
        ("readme*", "README.md"),
        ("README*", "README.md"),
        ("ReadMe*", "No files found matching pattern"),
        ("*.{md,yml}", ".github/ci.yml\nREADME.md"),
        ("deep", "src/deep/"),
        ("config", "No files found matching pattern"),
    ],
)
async def test_find_matches_globs_and_skips_ignored_files(project, call, pattern, found):
    assert await call("find", pattern=pattern) == ToolOutcome(found)


async def test_find_in_a_subdirectory_prints_paths_from_the_working_directory(project, call):
    assert await call("find", pattern="*.ts", path="src/deep") == ToolOutcome("src/deep/er/app.spec.ts")
    assert await call("find", pattern="*", path="node_modules") == ToolOutcome(
        "node_modules/x/\nnode_modules/x/app.ts"
    )


async def test_find_reports_when_the_result_limit_is_reached(write_files, call):
    write_files({f"{number}.txt": "" for number in range(5)})
    assert await call("find", pattern="*.txt", limit=2) == ToolOutcome(
        "0.txt\n1.txt\n\n[2 results limit reached. Use limit=4 for more, or refine pattern.]"
    )
    assert "limit" not in (await call("find", pattern="*.txt", limit=5)).text


async def test_glob_with_too_many_alternatives_is_refused(call):
    outcome = await call("find", pattern="{a,b}" * 30)
    assert outcome.is_error
    assert outcome.text.endswith("its braces expand to more than 64 patterns.")


async def test_glob_with_an_open_bracket_is_refused(call):
    assert await call("grep", pattern="x", glob="[a") == ToolOutcome(
        "Invalid glob '[a': a bracket is not closed.", is_error=True
    )


async def test_find_lists_thousands_of_files(write_files, call):
    write_files({f"{number % 20}/{number}.txt": "x" for number in range(2100)})
    assert (await call("find", pattern="*7.txt")).text.count("\n") == 209
    assert (await call("find", pattern="*.txt", limit=5000)).text.endswith(
        ".txt\n\n[Only 2000 of 2100 lines are shown.]"
    )


@pytest.mark.parametrize(
    ("new_text", "is_error", "content"), [("tea", False, b"caf\xe9 tea\n"), ("thé", True, b"caf\xe9 now\n")]
)
async def test_edit_does_not_mix_encodings_in_a_file_that_is_not_utf8(write_files, new_text, is_error, content):
    tree = write_files({"latin.txt": b"caf\xe9 now\n"})
    toolbox = make_local_toolbox(str(tree), CapacityLimiter(MAX_READERS))
    await toolbox.call(ToolUse("1", "read", {"path": "latin.txt"}))
    edit = {"path": "latin.txt", "oldText": "now", "newText": new_text}
    assert (await toolbox.call(ToolUse("2", "edit", edit))).is_error is is_error
    assert (tree / "latin.txt").read_bytes() == content
