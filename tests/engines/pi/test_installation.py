"""The installed pi: the Node it needs."""

import json
from pathlib import Path

import pytest

from retinue.engines.base import EngineError
from retinue.engines.pi.installation import explain_node_error, find_pi, not_installed_reason, require_pi

TRACE = """\
import { createRequire, enableCompileCache } from "node:module";
SyntaxError: The requested module 'node:module' does not provide an export named 'enableCompileCache'

Node.js v%s
"""


@pytest.fixture
def machine(tmp_path):
    """Return a function that lays out a pi and a Node and returns the environment that has both on its PATH."""

    def lay_out(node: str | None, needed: str = ">=22.19.0"):
        package = tmp_path / "lib" / "node_modules" / "@earendil-works" / "pi-coding-agent"
        package.mkdir(parents=True)
        manifest = {"name": "@earendil-works/pi-coding-agent", "version": "1.5.0", "engines": {"node": needed}}
        (package / "package.json").write_text(json.dumps(manifest))
        (package / "cli.js").write_text("#!/usr/bin/env node\n")
        programs = tmp_path / "bin"
        programs.mkdir()
        (programs / "pi").symlink_to(package / "cli.js")
        (programs / "node").write_text("")
        for program in (package / "cli.js", programs / "node"):
            program.chmod(0o755)
        if node:
            header = tmp_path / "include" / "node" / "node_version.h"
            header.parent.mkdir(parents=True)
            numbers = zip(("MAJOR", "MINOR", "PATCH"), node.split("."), strict=True)
            header.write_text("".join(f"#define NODE_{name}_VERSION {number}\n" for name, number in numbers))
        return {"PATH": str(programs), "HOME": str(tmp_path)}

    return lay_out


def test_node_that_is_too_old_is_named_before_pi_is_started(machine):
    environ = machine("20.20.2")
    reason = (
        f"pi needs Node 22.19.0 or later, but {Path(environ['PATH'], 'node')} is version 20.20.2. Install a newer Node, "
        "for example with `npm install -g node@22`, or put it first on the PATH."
    )
    assert not_installed_reason(environ) == reason
    with pytest.raises(EngineError, match=r"^The pi engine cannot be used: pi needs Node 22\.19\.0 or later"):
        require_pi(environ)


@pytest.mark.parametrize(
    ("node", "needed"),
    [("22.19.0", ">=22.19.0"), ("24.1.0", ">=22.19.0"), (None, ">=22.19.0"), ("20.1.0", "^20"), ("20.1.0", ">=x.y")],
)
def test_node_that_is_new_enough_or_unknown_is_used(machine, node, needed):
    environ = machine(node, needed)
    assert not_installed_reason(environ) is None
    assert require_pi(environ) == find_pi(environ)


def test_stack_trace_of_an_old_node_is_explained():
    assert explain_node_error(TRACE % "20.20.2") == (
        "pi needs Node 22.19.0 or later, but the one that runs it is version 20.20.2. Install a newer Node, for example "
        "with `npm install -g node@22`, or put it first on the PATH."
    )


@pytest.mark.parametrize("output", [TRACE % "22.19.0", "401: no key", "Node.js v20.0.0 is fine\nmore", ""])
def test_output_without_an_old_node_has_no_explanation(output):
    assert explain_node_error(output) is None
