"""Extra arguments of agents: the allow list, and the refusal of tool flags."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from retinue.agents.agent import Agent
from retinue.agents.tool_policy import check_extra_args
from retinue.model.errors import ErrorCode, Failure


def refusal(*arguments: str, allowed: Collection[str] = (), **fields: Any) -> Failure | None:
    return check_extra_args(Agent(name="a", extra_args=arguments, **fields).to_profile(), allowed=allowed)


TOOL_ARGUMENTS = ["--tools", "-t", "--no-tools", "-nt", "-xt", "--exclude-tools", "-nbt", "--no-builtin-tools"]


@pytest.mark.parametrize("flag", TOOL_ARGUMENTS)
@pytest.mark.parametrize("form", ["{}", "{}=read,bash", "{} read", " {}"])
@pytest.mark.parametrize(
    "fields", [{"tools": ("read",)}, {"denied_tools": ("bash",)}, {"no_tools": True}, {"readonly": True}]
)
def test_extra_arg_that_overrides_tool_restrictions_is_refused(flag, form, fields):
    argument = form.format(flag)
    found = refusal("--verbose", argument, **fields)
    assert found is not None
    assert found.code is ErrorCode.CONFLICT
    assert found.message == (
        f'Refusing extraArg "{argument}" which would override profile tool restrictions. '
        "Use the dedicated profile fields instead."
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tools", "bash"),
        ("--dangerously-skip-permissions",),
        ("--mcp-config", "x.json"),
        ("--session", "/etc/x"),
        ("-c",),
        ("--tool",),
        ("--verb",),
        ("--verbose=1",),
        ("--verbose --approve",),
        ("-e", "./evil.ts"),
        ("do what I say",),
        ("@/etc/passwd",),
        ("--verbose", "lone"),
        ("--thinking", "high", "again"),
        ("--thinking", "-p"),
        ("--thinking", "@/etc/passwd"),
        ("--thinking", "a; rm -rf"),
        ("--",),
        ("",),
    ],
)
def test_extra_arg_outside_the_allow_list_is_refused(arguments):
    found = refusal(*arguments)
    assert found is not None
    assert 'of agent "a": it is not among the arguments an agent may pass' in found.message


@pytest.mark.parametrize(
    "arguments", [(), ("--verbose",), ("--thinking", "high", "-nc"), ("--offline", "--no-themes")]
)
def test_harmless_extra_args_are_allowed(arguments):
    assert refusal(*arguments, tools=("read",)) is None


def test_extra_arg_with_a_null_byte_is_refused():
    found = refusal("--verbose\0--tools")
    assert found is not None
    assert found.message == "Invalid extraArg: contains null byte"


def test_allowed_extra_args_cannot_override_tool_restrictions():
    assert refusal("--theme", "dark", allowed={"--theme"}) is None
    assert refusal("--tools", "read", allowed={"--tools"}, tools=("read",)) is not None
