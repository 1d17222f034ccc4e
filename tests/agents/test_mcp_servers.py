"""Definitions of MCP servers: every spelling, variables, and problems by name."""

from __future__ import annotations

import pytest

from retinue.agents.agent import Agent, SourceLayer
from retinue.agents.dialects import AgentDialect, AgentSource, read_agent
from retinue.agents.mcp_servers import expand_server, list_secret_values, parse_server, parse_servers
from retinue.model.mcp import McpServer, name_tools
from retinue.model.runs import Secret

DOCS = McpServer(name="docs", command="docs", args=("--fast",), environment=(("TOKEN", Secret("t0ken-t0ken")),))
NEEDS_TOKEN = "give the server a token in headers, such as Authorization: Bearer ${TOKEN}"


@pytest.mark.parametrize(
    "servers",
    [
        "mcpServers:\n  - docs: {command: docs, args: [--fast], env: {TOKEN: t0ken-t0ken}}",
        "mcpServers:\n  docs:\n    command: docs\n    args:\n      - --fast\n    env:\n      TOKEN: t0ken-t0ken",
        "mcp-servers: {docs: {type: local, command: [docs, --fast], environment: {TOKEN: t0ken-t0ken}}}",
        "mcp_servers:\n  - name: docs\n    command: docs\n    args: [--fast]\n    env: {TOKEN: t0ken-t0ken}",
    ],
)
@pytest.mark.parametrize("dialect", [AgentDialect.CLAUDE, AgentDialect.GEMINI, AgentDialect.MARKDOWN])
def test_every_spelling_of_a_program_is_one_server(tmp_path, servers, dialect):
    path = tmp_path / "x.md"
    path.write_text(f"---\nname: x\ndescription: d\n{servers}\n---\nWork.\n")
    agent = read_agent(path, AgentSource(SourceLayer.USER, dialect))
    assert isinstance(agent, Agent)
    assert agent.parsed_servers == (DOCS,)
    assert agent.unknown == ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"url": "https://x.example/mcp"}, McpServer(name="x", transport="http", url="https://x.example/mcp")),
        ({"httpUrl": "https://x.example"}, McpServer(name="x", transport="http", url="https://x.example")),
        ({"url": "https://x.example/sse"}, McpServer(name="x", transport="sse", url="https://x.example/sse")),
        (
            {"type": "sse", "url": "https://x.example", "headers": {"A": "b"}, "timeout": 5000},
            McpServer(
                name="x", transport="sse", url="https://x.example", headers=(("A", Secret("b")),), call_timeout=5.0
            ),
        ),
        (
            {"url": "https://x.example", "bearer_token_env_var": "T", "tool_timeout_sec": 7, "enabled_tools": ["a"]},
            McpServer(
                name="x",
                transport="http",
                url="https://x.example",
                headers=(("Authorization", Secret("Bearer ${T}")),),
                call_timeout=7.0,
                only_tools=("a",),
            ),
        ),
        (
            {"command": "x", "excludeTools": ["b"], "startup_timeout_sec": 3},
            McpServer(name="x", command="x", excluded_tools=("b",), start_timeout=3.0),
        ),
    ],
)
def test_keys_of_other_tools_are_understood(given, expected):
    assert parse_server("x", given) == expected


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "it has neither a command nor a url"),
        (7, "its definition is not a mapping"),
        ({"type": "ws", "url": "wss://x"}, "its type 'ws' is not supported: use stdio, http or sse"),
        ({"url": "ftp://x"}, "its url is not an http or https address"),
        ({"command": "x", "disabled": True}, "it is disabled in its definition"),
        ({"url": "https://x", "oauth": {}}, f"oauth is set, and signing in is not supported: {NEEDS_TOKEN}"),
        ({"url": "https://x", "auth": "oauth"}, f"auth is set, and signing in is not supported: {NEEDS_TOKEN}"),
    ],
)
def test_definition_that_cannot_be_used_has_a_problem(given, problem):
    assert parse_server("x", given).problem == problem


def test_own_name_of_retinue_is_reserved():
    (server,) = parse_servers(["retinue"])
    assert server.problem == "the name belongs to Retinue itself: give the agent the tool Agent instead"


def test_invalid_value_is_reported_and_gives_no_servers(tmp_path):
    path = tmp_path / "x.md"
    path.write_text("---\nname: x\ndescription: d\nmcpServers:\n  - [a]\n---\nWork.\n")
    agent = read_agent(path, AgentSource(SourceLayer.USER, AgentDialect.CLAUDE))
    assert isinstance(agent, Agent)
    assert agent.parsed_servers == ()
    assert [notice.text for notice in agent.notices] == [
        "mcpServers: (('a',),) is not a list of names or definitions of servers; the default is used"
    ]


def test_variables_and_defaults_are_filled_in():
    server = parse_server(
        "x",
        {
            "command": "${BIN:-docs}",
            "args": ["--to=${HOST}", "$HOST"],
            "env": {"A": "${KEY}", "B": "$KEY", "C": "a$KEY"},
        },
    )
    found = expand_server(server, {"HOST": "h", "KEY": "secret-value-1"})
    assert (found.command, found.args) == ("docs", ("--to=h", "$HOST"))
    assert [secret.reveal() for _, secret in found.environment] == ["secret-value-1", "secret-value-1", "a$KEY"]


def test_unset_variable_is_a_problem():
    server = expand_server(parse_server("x", {"url": "https://${HOST}/mcp"}), {})
    assert server.problem == "the variable HOST is not set"


def test_values_of_headers_and_of_variables_are_secrets_unless_they_are_plain():
    given = {
        "command": "x",
        "env": {"MODE": "debug", "PATH": "/usr/bin", "ANY": "tr0ub4dor&3-x"},
        "headers": {"A": "Bearer b-b"},
    }
    assert [*list_secret_values(parse_server("x", given))] == ["Bearer b-b", "b-b", "tr0ub4dor&3-x"]


def test_description_shows_names_of_variables_and_no_values():
    assert str(DOCS) == "docs: docs --fast [variable TOKEN]"
    assert "t0ken" not in repr(DOCS)


def test_equal_and_long_tool_names_stay_unique_and_short():
    named = name_tools("docs", ["a.b", "a/b", "c" * 80, "c" * 81])
    assert sorted(named.values()) == sorted(["a.b", "a/b", "c" * 80, "c" * 81])
    assert all(len(name) <= 64 for name in named)
