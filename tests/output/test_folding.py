"""Home folders and stack traces abbreviated for display."""

import time

import pytest

from retinue.output.redaction.redactor import abbreviate_home, sanitize_for_display

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
        ("/mnt/c/Users/bob/x", "~/x"),
        ("/mnt/D/users/Eve and /c/Users/bob/y", "~ and ~/y"),
        ("/var/home/alice/x and /var/home/alice", "~/x and ~"),
        ("/export/home/carol/x", "/export/home/carol/x"),
        ("/mnt/c/Windows/x /var/homes/x", "/mnt/c/Windows/x /var/homes/x"),
    ],
)
def test_home_folders_of_all_users_become_a_tilde(text, folded):
    assert abbreviate_home(text, HOME) == folded


@pytest.mark.parametrize("home", ["", "/"])
def test_home_at_the_root_is_not_abbreviated(home):
    assert abbreviate_home("/etc/hosts", home) == "/etc/hosts"


def test_sanitize_for_display_abbreviates_homes_and_traces():
    assert sanitize_for_display(f"Error: in {HOME}/x.js\n    at f ({HOME}/x.js:1:2)\n", HOME) == (
        "Error: in ~/x.js\n    at f (~/x.js:1:2)\n"
    )


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
        # other languages
        ("", "goroutine 1 [running]:\n"),
        ("goroutine 1 [running]:\n", "f(x)\n\t/a.go:1\n"),
        ("goroutine 1 [running]:\n", "f(x)\n"),
        ("goroutine 1 [running]:\n", "("),
        ("goroutine 1 ", "["),
        ("stack backtrace:\n", "  1: f\n    at a.rs:1:2\n"),
        ("stack backtrace:\n", "  1: f\n"),
        ("stack backtrace:\n", "1: "),
        ("", "\tfrom a.rb:1:in 'f'\n"),
        ("", ":1:in '"),
        (" at f(", "("),
        (" at ", "f()~["),
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
        ("", "/mnt/c/Users/"),
        ("", "/var/home/"),
    ],
)
def test_abbreviating_homes_takes_linear_time(before, unit):
    # The words that open each fold, so that none is passed over.
    short, long = (f" at Traceback (\n{before}{unit * (size // len(unit))}" for size in (50_000, 200_000))
    assert _seconds(long) < 12 * _seconds(short) + 0.01


def _seconds(text):
    def run_once():
        start = time.process_time()
        sanitize_for_display(text, HOME)
        return time.process_time() - start

    return min(run_once() for _ in range(3))
