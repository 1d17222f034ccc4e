"""Stand-ins for the public agent files of other tools: their forms and counts are facts, their texts are ours.

The counts are those of nine public collections of Claude Code agents and of the public agents of four other tools. Which
model and which tools a file names is counted for Claude Code; for the others all known forms take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

from msgspec import Struct

CLAUDE_NAMES = 1148
"""Names in use among the agents of Claude Code; the files beyond are counted one by one below."""
CLAUDE_MODELS = 507
"""Of these, those that name a model of Claude's."""
CLAUDE_TOOLS = 297
"""Those that list a tool that plain pi lacks: of the web, or of an MCP server."""
CLAUDE_BOTH = 82
"""Those that do both: 426 do neither."""
CLAUDE_MCP = 174
"""Of those with such a tool, those that list one of an MCP server."""
CLAUDE_HEADERLESS, CLAUDE_SHADOWED, CLAUDE_TITLES, CLAUDE_BROKEN, CLAUDE_ISOLATED = 6, 120, 10, 1, 2
GEMINI, CODEX, COPILOT, COPILOT_TITLES, OPENCODE = 2000, 172, 224, 20, 2

BODY = "You are a specialist. Read before you claim, and answer in a few sentences."


class AgentForm(Struct, frozen=True, kw_only=True):
    """One file: whose form it has, where it lies below a home, and its text."""

    tool: str
    path: str
    text: str


def list_public_forms(seed: int = 19) -> list[AgentForm]:
    """Return stand-ins for all public agents, the same ones for the same seed."""
    return [
        *_list_claude(Random(seed)),
        *(_gemini(number) for number in range(GEMINI)),
        *(_codex(number) for number in range(CODEX)),
        *(_copilot(number) for number in range(COPILOT)),
        *(_opencode(number) for number in range(OPENCODE)),
    ]


def write_forms(forms: list[AgentForm], home: Path) -> None:
    """Write the files below a home."""
    for form in forms:
        path = home / form.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(form.text, encoding="utf-8")


def take_turns(number: int, *choices: str) -> str:
    return choices[number % len(choices)]


# -- Claude Code ------------------------------------------------------------------------------------


def _list_claude(random: Random) -> Iterator[AgentForm]:
    numbers = range(CLAUDE_NAMES - CLAUDE_HEADERLESS)
    with_model = set(random.sample(numbers, CLAUDE_MODELS))
    without = [number for number in numbers if number not in with_model]
    both = random.sample(sorted(with_model), CLAUDE_BOTH)
    with_tool = [*both, *random.sample(without, CLAUDE_TOOLS - CLAUDE_BOTH)]
    with_server = set(random.sample(with_tool, CLAUDE_MCP))
    isolated = set(random.sample(without, CLAUDE_ISOLATED))
    for number in numbers:
        header = _claude_header(number, f"expert-{number}")
        if number in with_model:
            header += f"model: {take_turns(number, 'sonnet', 'opus', 'haiku', 'claude-sonnet-4-5')}\n"
        if number in with_server:
            header += f"tools: {take_turns(number, SERVER_TOOLS, 'Read, mcp__github__get_issue', 'Read, mcp__*')}\n"
        elif number in with_tool:
            header += (
                f"tools: {take_turns(number, 'Read, WebSearch, WebFetch', '[Read, Grep, WebFetch, TodoWrite]')}\n"
            )
        else:
            header += take_turns(number, "", "tools: Read, Write, Edit, Bash, Glob, Grep\n", TOOLS_AS_LIST)
        header += "isolation: worktree\n" if number in isolated else ""
        yield _claude(f"{number}.md", header)
    for number in range(CLAUDE_HEADERLESS):
        yield AgentForm(tool="Claude Code", path=f".claude/agents/notes/{number}.md", text=f"# Notes {number}\n")
    for number in range(CLAUDE_SHADOWED):
        yield _claude(f"z-again/{number}.md", _claude_header(number, f"expert-{number}"))
    for number in range(CLAUDE_TITLES):
        title = take_turns(number, "SRE (Site {})", "FP&A Analyst {}", "LSP/Index Engineer {}", "C++ #{}: Expert")
        yield _claude(f"titles/{number}.md", _claude_header(number, f'"{title.format(number)}"'))
    for number in range(CLAUDE_BROKEN):
        yield AgentForm(
            tool="Claude Code",
            path=f".claude/agents/broken/{number}.md",
            text=f"---\nname: broken-{number}\n\n{BODY}\n",
        )


SERVER_TOOLS = "Read, Bash, mcp__context7__resolve-library-id, mcp__playwright__*"
TOOLS_AS_LIST = "tools:\n  - Read\n  - Grep\n  - Bash\n"


def _claude_header(number: int, name: str) -> str:
    """Return a header with one of the ways to write a description, one of which is not YAML."""
    examples = 'Use this agent when it fits. Examples: <example>user: "help" assistant: "I call it"</example>'
    description = take_turns(
        number, "Does its work well.", examples, "|\n  Does its work.\n  Use it: often.", "'Works'"
    )
    return f"name: {name}\ndescription: {description}\ncolor: {take_turns(number, 'blue', 'red')}\n"


def _claude(path: str, header: str) -> AgentForm:
    return AgentForm(tool="Claude Code", path=f".claude/agents/{path}", text=f"---\n{header}---\n\n{BODY}\n")


# -- other tools ------------------------------------------------------------------------------------


def _gemini(number: int) -> AgentForm:
    tools = take_turns(
        number,
        "",
        "tools:\n  - read_file\n  - grep_search\n  - list_directory\n",
        "tools: [read_file, write_file, replace, run_shell_command]\n",
        "tools: ['*']\n",
        "tools:\n  - google_web_search\n  - web_fetch\n  - mcp_github_search\n",
    )
    limits = take_turns(number, "", "temperature: 0.2\nmax_turns: 15\ntimeout_mins: 5\n", "model: gemini-2.5-pro\n")
    header = f"name: gemini-{number}\ndescription: Does its work.\nkind: local\n{tools}{limits}"
    return AgentForm(
        tool="Gemini CLI", path=f".gemini/agents/gemini-{number}.md", text=f"---\n{header}---\n\n{BODY}\n"
    )


def _codex(number: int) -> AgentForm:
    more = take_turns(
        number,
        'model = "gpt-5.4"\nmodel_reasoning_effort = "high"\n',
        'sandbox_mode = "read-only"\n',
        'model_reasoning_effort = "medium"\nsandbox_mode = "workspace-write"\n',
        'nickname_candidates = ["Ada", "Alan"]\n',
    )
    text = (
        f'name = "codex_{number}"\ndescription = "Does its work."\n{more}developer_instructions = """\n{BODY}\n"""\n'
    )
    return AgentForm(tool="Codex", path=f".codex/agents/codex_{number}.toml", text=text)


def _copilot(number: int) -> AgentForm:
    name = f"Copilot Expert (v{number})" if number < COPILOT_TITLES else f"copilot-{number}"
    tools = take_turns(
        number,
        "",
        "tools: ['codebase', 'search', 'editFiles', 'runCommands']\n",
        "tools: [read, edit, search, web]\n",
        "tools: ['Microsoft Docs', 'github/*', 'search/usages']\n",
        "tools: ['*']\n",
    )
    model = take_turns(number, "", "model: Claude Sonnet 4.5 (copilot)\n", "model: GPT-5\n")
    header = f"name: {name}\ndescription: 'Does its work.'\n{tools}{model}"
    return AgentForm(
        tool="GitHub Copilot",
        path=f".copilot/agents/copilot-{number}.agent.md",
        text=f"---\n{header}---\n\n{BODY}\n",
    )


def _opencode(number: int) -> AgentForm:
    rule = take_turns(number, "tools:\n  write: false\n  edit: false\n", "permission:\n  bash: deny\n  edit: ask\n")
    header = (
        f"description: Does its work.\nmode: subagent\nmodel: anthropic/claude-sonnet-4\ntemperature: 0.1\n{rule}"
    )
    return AgentForm(
        tool="opencode", path=f".config/opencode/agent/opencode-{number}.md", text=f"---\n{header}---\n\n{BODY}\n"
    )


# -- restrictions -----------------------------------------------------------------------------------


class RestrictionForm(Struct, frozen=True, kw_only=True):
    """A file that restricts its agent, how the restriction is written, and what refuses a run where nothing enforces it."""

    written: str
    form: AgentForm
    named: str
    """What a refusal names."""

    @property
    def agent(self) -> str:
        return Path(self.form.path).stem


def list_restrictions() -> list[RestrictionForm]:
    """Return a file for each way in which the tools write a restriction."""
    return [_restrict(number, *row) for number, row in enumerate(_RESTRICTIONS)]


def _restrict(number: int, tool: str, written: str, named: str) -> RestrictionForm:
    folder, suffix = _FOLDERS[tool]
    name = f"restricted-{number}"
    if suffix == ".toml":
        text = f'name = "{name}"\ndescription = "d"\n{written}\ndeveloper_instructions = "{BODY}"\n'
    else:
        text = f"---\nname: {name}\ndescription: d\n{written}\n---\n{BODY}\n"
    return RestrictionForm(
        written=written, form=AgentForm(tool=tool, path=f"{folder}/{name}{suffix}", text=text), named=named
    )


_FOLDERS: Mapping[str, tuple[str, str]] = {
    "Claude Code": (".claude/agents", ".md"),
    "Codex": (".codex/agents", ".toml"),
    "Cursor": (".cursor/agents", ".md"),
    "Gemini CLI": (".gemini/agents", ".md"),
    "opencode": (".config/opencode/agent", ".md"),
}
_RESTRICTIONS = (
    ("Claude Code", "permissionMode: plan", "read-only"),
    ("Claude Code", "disallowedTools: Bash, Write", "bash"),
    ("Claude Code", "tools: Read, Bash(git diff:*)", "bash(git diff:*)"),
    ("Claude Code", "isolation: worktree", "isolation"),
    ("Claude Code", "tools: Read, Agent(explorer)", "explorer"),
    ("Codex", 'sandbox_mode = "read-only"', "sandbox"),
    ("Codex", 'sandbox_mode = "workspace-write"', "sandbox"),
    ("Cursor", "readonly: true", "readonly"),
    ("opencode", "tools: {write: false, bash: false}", "write"),
    ("opencode", "permission: {edit: deny, bash: ask}", "edit"),
    ("opencode", "permission: {bash: {'git *': allow, '*': deny}}", "permission"),
    ("opencode", "permission: {task: {'*': deny, explorer: allow}}", "explorer"),
    ("Gemini CLI", "denyPaths: [secrets]", "denyPaths"),
    ("Cursor", "sandboxed: yes", "sandboxed"),
)

Classify = Callable[[AgentForm], str]
