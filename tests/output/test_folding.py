"""Home folders and stack traces, as a reader is spared them."""

import time

import pytest

from retinue.output.sanitise import fold_home, fold_stack_traces, for_reader

HOME = "/srv/people/ada"


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("/srv/people/ada/notes.md", "~/notes.md"),
        ('"/srv/people/ada"', '"~"'),
        ("in /srv/people/ada.", "in ~."),
        ("/srv/people/adam/x", "/srv/people/adam/x"),
        ("/srv/people/ada.bak", "/srv/people/ada.bak"),
        ("/mnt/srv/people/ada", "/mnt/srv/people/ada"),
        ("/home/bob/x and /Users/eve.", "~/x and ~."),
        ("file:///home/bob/x", "file://~/x"),
        ("https://host.example/home/bob", "https://host.example/home/bob"),
        ("/home/$USER /home/<user> /home/", "/home/$USER /home/<user> /home/"),
        (r"C:\Users\Bob Smith\x and d:\users\eve", r"~\x and ~"),
        (r'"C:\\Users\\bob\\x"', r'"~\\x"'),
        ("C:/Users/bob/x", "~/x"),
    ],
)
def test_anyones_home_becomes_a_tilde(text, folded):
    assert fold_home(text, HOME) == folded


@pytest.mark.parametrize("home", ["", "/"])
def test_a_home_at_the_root_folds_nothing_of_its_own(home):
    assert fold_home("/etc/hosts", home) == "/etc/hosts"


def frames(count, first=0):
    return "".join(f"    at work{i} (/app/src/file{i}.js:{i}:7)\n" for i in range(first, first + count))


def test_the_paths_of_frames_are_left_out():
    assert fold_stack_traces(f"Error: boom\n{frames(1)}    at async /app/x.js:1:2\nend") == (
        "Error: boom\n    at [REDACTED_PATH]\n    at async /app/x.js:1:2\nend"
    )


def test_a_long_trace_is_cut_after_five_frames_and_says_so():
    assert fold_stack_traces(f"Error: boom\n{frames(9)}end") == (
        "Error: boom\n" + "    at [REDACTED_PATH]\n" * 5 + "    ... [at work5 (/app/src/file5.js:5:7)]\n"
        "    [Additional stack frames truncated]\nend"
    )


def test_each_trace_is_counted_by_itself():
    text = f"Error: one\n{frames(4)}Error: two\n{frames(4)}"
    assert fold_stack_traces(text) == "Error: one\n{0}Error: two\n{0}".format("    at [REDACTED_PATH]\n" * 4)


def test_a_trace_at_the_very_end_stays_without_a_line_break():
    assert fold_stack_traces(f"Error: boom\n{frames(2)}"[:-1]).endswith("\n    at [REDACTED_PATH]")


def test_of_a_python_traceback_the_last_frames_are_kept():
    entries = [f'  File "/app/file{i}.py", line {i}, in work\n    call({i})\n' for i in range(8)]
    text = f"Traceback (most recent call last):\n{''.join(entries)}ValueError: boom\n"
    assert fold_stack_traces(text) == (
        "Traceback (most recent call last):\n    [Additional stack frames truncated]\n"
        + "".join(entries[3:])
        + "ValueError: boom\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "meet me\n  at the station (the old one)\n  at noon",
        'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    call()\nValueError: boom\n',
        "no trace at all",
    ],
)
def test_what_is_no_long_trace_stays_as_it_is(text):
    assert fold_stack_traces(text) == text


def test_a_reader_gets_both():
    assert for_reader(f"Error: in {HOME}/x.js\n{frames(1)}", HOME) == "Error: in ~/x.js\n    at [REDACTED_PATH]\n"


TRACEBACK = "Traceback (most recent call last):\n"


@pytest.mark.parametrize(
    ("before", "unit"),
    [
        # frames
        ("", "    at x\n"),
        ("", "    at x (a:1)\n"),
        ("", "    at (((:1"),
        ("", " "),
        ("", " \n"),
        ("at ", "\t"),
        (" at ", ":1"),
        (" at ", ":1 "),
        (" at ", "(native) "),
        (" at :", "1"),
        (" at x:1", " "),
        (" at :", "1 at :"),
        # tracebacks
        (TRACEBACK, " "),
        (TRACEBACK, " \t"),
        (TRACEBACK, "  x\n"),
        (TRACEBACK, " \n"),
        (TRACEBACK, " x"),
        (TRACEBACK, "\n "),
        ("", TRACEBACK),
        ("", f" {TRACEBACK} "),
        ("", f'{TRACEBACK}  File "\n'),
        (TRACEBACK, '  File "'),
        (TRACEBACK, '  File "x"\n' + " " * 50),
        (f"{TRACEBACK} x\n", " "),
        # homes
        ("", HOME),
        ("", "/home/"),
        ("", "/home/a"),
        ("/home/", "a."),
        ("/Users/", "-"),
        ("", "C:\\Users\\a b "),
        ("C:\\Users\\", "a "),
        ("C:\\Users\\a", " "),
        ("", "c:/users/"),
        ("C:\\", "\\"),
    ],
)
def test_folding_costs_in_proportion_to_the_length(before, unit):
    # The words that open each fold, so that none is passed over.
    short, long = (f" at Traceback (\n{before}{unit * (size // len(unit))}" for size in (100_000, 400_000))
    assert _seconds(long) < 12 * _seconds(short) + 0.01


def _seconds(text):
    def once():
        start = time.process_time()
        for_reader(text, HOME)
        return time.process_time() - start

    return min(once() for _ in range(3))
