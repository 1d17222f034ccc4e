"""Shortening of long stack traces in every language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.output.traces import MAX_SHORT_TRACE, fold_stack_traces

CWD = "/srv/app"
ELSEWHERE = "/usr/share/other/step.x"


def javascript(number: int, path: str) -> str:
    return f"    at async Parser.step{number} ({path}:{number}:7)\n"


def java(number: int, path: str) -> str:
    package = "java.base/java.util" if path == ELSEWHERE else "com.example.app"
    return f"\tat {package}.Step.run{number}(Step.java:{number})\n"


def csharp(number: int, path: str) -> str:
    return f"   at Example.App.Step.Run[T](String name, Int32 count) in {path}:line {number}\n"


def python(number: int, path: str) -> str:
    return f'  File "{path}", line {number}, in step{number}\n    return step({number})\n           ^^^^^^^\n'


def go(number: int, path: str) -> str:
    return f"example.com/app.(*Step).Run{number}(0xc000{number}, {{0x1, 0x2}})\n\t{path}:{number} +0x1d\n"


def rust(number: int, path: str) -> str:
    return f"{number:4}: app::step{number}::{{{{closure}}}}\n             at {path}:{number}:5\n"


def ruby(number: int, path: str) -> str:
    return f"\tfrom {path}:{number}:in 'Step#run'\n"


TRACES = {
    "JavaScript": ("TypeError: boom\n", javascript, ""),
    "Java": ("java.lang.IllegalStateException: boom\n", java, "\t... 12 more\n"),
    "C#": ("System.InvalidOperationException: boom\n", csharp, ""),
    "Python": ("Traceback (most recent call last):\n", python, "ValueError: boom\n"),
    "Go": ("panic: boom\n\ngoroutine 1 [running]:\n", go, "exit status 2\n"),
    "Rust": ("thread 'main' panicked at src/main.rs:4:5:\nboom\nstack backtrace:\n", rust, "note: Some details\n"),
    "Ruby": ("app.rb:1:in 'Step#run': boom (RuntimeError)\n", ruby, ""),
}
LANGUAGES = pytest.mark.parametrize("language", TRACES)


def trace(language: str, numbers: range | list[int], path: str = ELSEWHERE) -> str:
    before, frame, after = TRACES[language]
    return before + "".join(frame(number, path) for number in numbers) + after


@LANGUAGES
@pytest.mark.parametrize("count", [1, 2, MAX_SHORT_TRACE])
@pytest.mark.parametrize("path", [ELSEWHERE, "src/parse.ts"])
def test_short_stack_trace_stays_unchanged(language, count, path):
    text = f"It fails:\n{trace(language, range(count), path)}\nThat was it."
    assert fold_stack_traces(text, CWD) == text


@LANGUAGES
def test_long_stack_trace_keeps_both_ends_and_counts_omitted_frames(language):
    before, frame, after = TRACES[language]
    first, last = (3, 5) if language == "Python" else (5, 3)
    assert fold_stack_traces(trace(language, range(40)), CWD) == (
        before
        + "".join(frame(number, ELSEWHERE) for number in range(first))
        + "    ... [32 stack frames left out]\n    [Additional stack frames truncated]\n"
        + "".join(frame(number, ELSEWHERE) for number in range(40 - last, 40))
        + after
    )


@LANGUAGES
@pytest.mark.parametrize("path", [f"{CWD}/src/step.x", "src/step.x", "./src/step.x"])
def test_long_stack_trace_keeps_project_frames(language, path):
    before, frame, after = TRACES[language]
    own = [frame(number, path) for number in (12, 20)]
    frames = [frame(number, ELSEWHERE) for number in range(40)]
    frames[12], frames[20] = own
    folded = fold_stack_traces(before + "".join(frames) + after, CWD)
    assert all(one in folded for one in own)
    assert folded.count(" stack frames left out]") == 3
    assert folded.count("[Additional stack frames truncated]") == 1


@pytest.mark.parametrize(
    "path", ["/srv/app/node_modules/x/y.js", "node:internal/process", "/srv/other/x.js", "file:///usr/lib/x.js"]
)
def test_library_frames_are_no_project_frames(path):
    text = trace("JavaScript", range(40), path)
    assert len(fold_stack_traces(text, CWD).splitlines()) == 11


def test_endless_recursion_in_the_project_is_shortened():
    text = trace("JavaScript", range(9_000), "src/step.ts")
    assert len(fold_stack_traces(text, CWD).splitlines()) == 1 + 5 + 5 + 3 + 2


def test_each_cause_of_a_java_exception_is_a_separate_trace():
    text = "".join(f"Caused by: java.lang.Error: {n}\n{trace('Java', range(8))}" for n in range(5))
    assert fold_stack_traces(text) == text
    long = trace("Java", range(30)) + "Caused by: java.io.IOException: gone\n" + trace("Java", range(3))
    folded = fold_stack_traces(long)
    assert "Caused by: java.io.IOException: gone\n" in folded
    assert folded.endswith(trace("Java", range(3)))


def test_java_frames_with_modules_and_packaging_data_are_frames():
    text = "".join(f"\tat java.base/java.lang.Thread.run(Thread.java:{n}) ~[?:?]\n" for n in range(40))
    assert len(fold_stack_traces(text).splitlines()) == 10


def test_windows_line_ends_are_kept():
    text = trace("JavaScript", range(20)).replace("\n", "\r\n")
    folded = fold_stack_traces(text).split("\n")
    assert [line for line in folded if not line.endswith("\r")] == [
        "    ... [12 stack frames left out]",
        "    [Additional stack frames truncated]",
        "",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "no trace at all",
        "meet me\n" + "  at the station (the old one)\n" * 30,
        "".join(f"{n:4}: import os  # a listing\n" for n in range(30)),
        "".join(f"src/a.py:{n}:    return at({n})\n" for n in range(30)),
        "".join(f"    {n}: from here to there\n" for n in range(30)),
        "".join(f"f{n}(x)\n" for n in range(30)),
        "  - from a list\n" * 30,
        "| at | 12:30 |\n" * 30,
    ],
)
def test_text_without_traces_stays_unchanged(text):
    assert fold_stack_traces(text, CWD) == text


ANY_LINES = st.lists(
    st.one_of(
        st.text(max_size=40).filter(lambda line: "\n" not in line),
        st.sampled_from([frame(7, path) for _, frame, _ in TRACES.values() for path in ("src/a.x", ELSEWHERE)]),
        st.sampled_from([part for before, _, after in TRACES.values() for part in (before, after)]),
    ),
    max_size=200,
)


@given(st.lists(st.tuples(ANY_LINES, st.integers(1, 15)), max_size=4))
def test_shortening_a_trace_omits_lines_and_changes_none(parts):
    text = "\n".join("\n".join(lines * times) for lines, times in parts)
    folded = fold_stack_traces(text, CWD)
    rest = iter(text.split("\n"))
    notices = (" stack frame left out]", " stack frames left out]", "[Additional stack frames truncated]")
    assert all(line in rest for line in folded.split("\n") if not line.endswith(notices))
    assert fold_stack_traces(folded, CWD) == folded


@given(st.sampled_from(sorted(TRACES)), st.integers(11, 300), st.lists(st.integers(0, 299), max_size=20))
def test_kept_and_omitted_frames_add_up(language, count, own):
    frame = TRACES[language][1]
    text = "".join(frame(n, "src/a.x" if n in own else ELSEWHERE) for n in range(count))
    folded = fold_stack_traces(TRACES[language][0] + text, CWD)
    left_out = sum(int(line.split("[")[1].split()[0]) for line in folded.splitlines() if "left out]" in line)
    kept = sum(frame(n, "src/a.x" if n in own else ELSEWHERE) in folded for n in range(count))
    assert left_out + kept == count
    assert kept <= 13
