"""The generated profile of Seatbelt, read as text: no machine with Seatbelt is needed."""

import re
from pathlib import Path

import pytest

from retinue.engines.sandbox.access import FileAccess
from retinue.engines.sandbox.mechanisms import SandboxSupport, choose_mechanism
from retinue.engines.sandbox.seatbelt import build_command, build_profile
from retinue.model.sandbox import SandboxMechanism, SandboxMode, SandboxReport

GOLDEN = Path(__file__).with_name("seatbelt")
ACCESS = FileAccess(
    read=("/Users/me/data",),
    write=("/Users/me/work",),
    protected=("/Users/me/work/.git/hooks",),
    pinned=("/Users/me/work/.git",),
    hidden=("/Users/me/work/.ssh",),
)


def profile(*, port: int | None = None, access: FileAccess = ACCESS) -> list[str]:
    return build_profile(access, temporary="/tmp/box", sockets=("/tmp/control",), proxy_port=port).splitlines()


def test_everything_is_denied_before_anything_is_allowed():
    assert profile()[:2] == ["(version 1)", "(deny default)"]


def test_rules_that_deny_follow_those_that_allow_because_the_last_one_wins():
    lines = profile()
    writes = lines.index('(allow file-write* (subpath "/Users/me/work") (subpath "/tmp/box"))')
    assert lines.index('(deny file-write* (subpath "/Users/me/work/.git/hooks"))') > writes
    assert lines.index('(deny file-write-unlink (literal "/Users/me/work/.git"))') > writes
    assert lines.index('(deny file-read* file-write* (subpath "/Users/me/work/.ssh"))') > writes


def test_home_is_not_among_the_readable_paths():
    (reads,) = [line for line in profile() if line.startswith("(allow file-read* (subpath")]
    assert '(subpath "/Users/me/data") (subpath "/Users/me/work") (subpath "/tmp/box")' in reads
    assert '"/Users/me")' not in reads
    assert '"/Users")' not in reads


def test_workspace_leaves_the_network_open_and_strict_allows_only_the_proxy():
    assert "(allow network*)" in profile()
    assert [line for line in profile(port=4711) if "network" in line] == [
        '(allow network-outbound (remote ip "localhost:4711"))',
        '(allow network-outbound (literal "/tmp/control"))',
    ]


def test_path_cannot_end_its_string():
    access = FileAccess(read=(), write=('/x") (allow default) (subpath "\\',))
    (writes,) = [line for line in profile(access=access) if line.startswith("(allow file-write*")]
    assert writes == '(allow file-write* (subpath "/x\\") (allow default) (subpath \\"\\\\") (subpath "/tmp/box"))'


def test_parentheses_of_the_profile_are_balanced():
    text = "".join(profile(port=1))
    assert text.count("(") == text.count(")")


def test_profile_is_an_argument_of_sandbox_exec():
    assert build_command("/usr/bin/sandbox-exec", ("pi", "--mode"), "(version 1)") == [
        "/usr/bin/sandbox-exec", "-p", "(version 1)", "pi", "--mode",
    ]  # fmt: skip


def test_machine_with_seatbelt_uses_it_for_both_modes():
    support = SandboxSupport(seatbelt="/usr/bin/sandbox-exec")
    for mode in (SandboxMode.WORKSPACE, SandboxMode.STRICT):
        report = choose_mechanism(mode, support, starts_processes=True)
        assert isinstance(report, SandboxReport)
        assert (report.mode, report.mechanism) == (mode, SandboxMechanism.SEATBELT)
        assert report.gaps


@pytest.mark.parametrize(("mode", "port"), [("workspace", None), ("strict", 4711)])
def test_profile_of_each_mode_is_as_recorded(mode, port):
    access = FileAccess(
        read=("/Users/me/data",),
        write=("/Users/me/work", "/Users/me/work/.claude/agents"),
        protected=("/Users/me/work/.claude", "/Users/me/work/.git/hooks"),
        pinned=("/Users/me/work/.git",),
        hidden=("/Users/me/work/.ssh",),
    )
    text = build_profile(access, temporary="/tmp/box", sockets=("/tmp/control",), proxy_port=port)
    assert text == (GOLDEN / f"{mode}.sb").read_text()


HOSTILE = (
    '"',
    "\\",
    '\\"',
    '") (allow default) (subpath "/',
    "with blank",
    "line\nbreak",
    "tab\tand\rreturn",
    "(((",
    ";comment",
    "#|block|#",
    "$(id)",
    "'",
    "umlaut-ä",
    "\u202e",
    '(param "X")',
)


def read_strings(text: str) -> list[str]:
    """Return the strings of a profile as its reader takes them: a backslash makes the next character plain."""
    found = re.findall(r'"((?:[^"\\]|\\.)*)"', text, re.DOTALL)
    return [re.sub(r"\\(.)", r"\1", string, flags=re.DOTALL) for string in found]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_path_stays_one_string_in_every_rule(name):
    paths = {field: (f"/work/{field}/{name}",) for field in ("read", "write", "protected", "pinned", "hidden")}
    temporary, socket = f"/tmp/{name}", f"/run/{name}"
    text = build_profile(FileAccess(**paths), temporary=temporary, sockets=(socket,), proxy_port=None)
    plain = build_profile(
        FileAccess(**dict.fromkeys(paths, ("/x",))), temporary="/t", sockets=("/s",), proxy_port=None
    )
    assert {path for (path,) in paths.values()} | {temporary, socket} <= {*read_strings(text)}
    # Without their strings, both profiles have the same rules.
    assert re.sub(r'"(?:[^"\\]|\\.)*"', '""', text, flags=re.DOTALL) == re.sub(r'"[^"]*"', '""', plain)


@pytest.mark.parametrize("name", HOSTILE)
def test_program_and_arguments_are_not_read_by_a_shell(name):
    assert build_command("/usr/bin/sandbox-exec", (name, name), "(version 1)")[3:] == [name, name]


def test_machine_without_seatbelt_refuses_and_names_the_reason(monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    failure = choose_mechanism(
        SandboxMode.WORKSPACE,
        SandboxSupport(bubblewrap_problem="bubblewrap exists on Linux only"),
        starts_processes=True,
    )
    assert not isinstance(failure, SandboxReport)
    assert failure.reason == "sandbox_unavailable"
    assert "/usr/bin/sandbox-exec" in failure.message
