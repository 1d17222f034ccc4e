"""The rule model: replies like a model, by searching. It reads files; it does not understand them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from retinue.engines.agent_loop import ModelReply, ModelRequest, OnDelta
from retinue.engines.offline.form import ReportSection, limits_section, parse_template, render_report
from retinue.engines.offline.handing import SPAWN_TOOL, TaskSplit, split_task
from retinue.engines.offline.inquiry import Inquiry, SearchResults, ToolRequest, ToolResponse, investigate
from retinue.engines.offline.roles import AnswerRole, main_symbol
from retinue.engines.offline.roles.explorer import EXPLORER
from retinue.engines.offline.roles.implementer import IMPLEMENTER
from retinue.engines.offline.roles.researcher import RESEARCHER
from retinue.engines.offline.roles.reviewer import REVIEWER
from retinue.engines.offline.roles.tester import TESTER
from retinue.engines.offline.terms import SearchQuestion, extend_question, parse_question
from retinue.model.events import Text, TextDelta
from retinue.model.results import Usage
from retinue.model.runs import Message, RunSpec, ToolArguments, ToolUse
from retinue.model.tool_names import FINALIZE_TOOL, is_delegation

MODEL = "offline-rules"
_FREE = Usage(cost=0.0)
_HONEST = "Rule-based search, not a language model"
_WITHOUT_TOOLS = f"{_HONEST}: none of `read`, `grep`, `find` and `ls` was granted, so nothing could be looked at."
_ROLES = (
    # Who calls itself so, and who is asked so.
    (EXPLORER, r"explor|scout|\bsearch|\bfind|navigat", r"^\W*(?:please\s+)?(?:where|which|find|locate|list|show)\b"),
    (REVIEWER, r"review|audit|critic|security", r"\b(?:review|audit|risks?|vulnerab\w+|smells?)\b"),
    (TESTER, r"test|\bqa\b", r"\b(?:tests?|coverage|untested)\b"),
    (
        IMPLEMENTER,
        r"implement|plan|architect|develop|cod(?:er|ing)",
        r"\b(?:plan|implement|add|introduce|refactor|migrate)\b",
    ),
    (RESEARCHER, r"research|doc|librar", r"\b(?:docs?|documentation|research|readme)\b"),
)

_USER_SPEECH = re.compile(
    r"^User: (.*?)(?=^(?:User|Assistant|Tool Call|Tool Result): |^--- Run \d|^\[Error: |\Z)", re.MULTILINE | re.DOTALL
)
"""What the user said in a prompt that retells earlier runs."""


class RuleModel:
    """Answers one run. Every look at a file is a call of one of the run's own tools."""

    name = MODEL

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._split = split_task(spec.task) if SPAWN_TOOL in spec.grant.tools else TaskSplit()
        self._delegation_result: Message | None = None
        """What those answered who were asked."""
        task = self._split.rest if self._split.delegated else spec.task
        self._role = _select_role(spec.agent.name, task)
        self._question = _build_question(spec, task, self._role)
        self._inquiry: Inquiry | None = None
        self._asked: Sequence[ToolRequest] = ()
        self._calls = 0

    async def reply(self, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        if self._split.delegated and self._delegation_result is None:
            if request.messages[-1].role == "user":
                return _make_reply(self._tool_use(SPAWN_TOOL, self._split.arguments))
            self._delegation_result = request.messages[-1]
        if self._delegation_result and not self._split.rest:
            return await self._reply_text(
                f"{_HONEST}; {self._delegated_text()}", request, on_delta, is_error=self._delegation_result.is_error
            )
        match self._advance(request):
            case SearchResults() as case:
                return await self._answer(case, request, on_delta)
            case asks:
                self._asked = asks
                return _make_reply(*(self._tool_use(ask.tool, ask.args) for ask in asks))

    def _advance(self, request: ModelRequest) -> SearchResults | Sequence[ToolRequest]:
        """The next things to ask or, when all is asked, what came of it."""
        try:
            if self._inquiry is None:
                tools = frozenset(tool.name for tool in request.tools if not is_delegation(tool.name)) - {
                    FINALIZE_TOOL
                }
                self._inquiry = investigate(self._question, tools, self._role.follow)
                return next(self._inquiry)
            return self._inquiry.send(_collect_responses(self._asked, request.messages))
        except StopIteration as done:
            case: SearchResults = done.value
            return case

    async def _answer(self, case: SearchResults, request: ModelRequest, on_delta: OnDelta) -> ModelReply:
        text = self._report_text(case) if case.tools else _WITHOUT_TOOLS
        passed_on = f"\n\nBeside that, {self._delegated_text()}" if self._delegation_result else ""
        return await self._reply_text(text + passed_on, request, on_delta, is_error=not case.tools)

    async def _reply_text(self, text: str, request: ModelRequest, on_delta: OnDelta, *, is_error: bool) -> ModelReply:
        if any(tool.name == FINALIZE_TOOL for tool in request.tools):
            done = {"status": "ERROR", "error": text} if is_error else {"status": "SUCCESS", "result": text}
            return _make_reply(self._tool_use(FINALIZE_TOOL, done))
        for line in text.splitlines(keepends=True):
            await on_delta(TextDelta(line))
        return _make_reply(Text(text))

    def _report_text(self, case: SearchResults) -> str:
        form = parse_template(self._spec.agent.body) or parse_template(self._spec.system_prompt)
        nothing = ReportSection("findings", "Findings", [f"Nothing found about {case.question.subject}."])
        sections = self._role.answer(case) if case.ranked else (nothing, limits_section(case))
        return f"{_HONEST}; {_render_headline(case)}.\n\n{render_report(sections, form, case.question.subject)}"

    def _delegated_text(self) -> str:
        """What came of the part that was somebody else's."""
        text = self._delegation_result.text if self._delegation_result else ""
        return f"asked {self._split.agents}:\n\n{text}"

    def _tool_use(self, tool: str, args: ToolArguments) -> ToolUse:
        self._calls += 1
        return ToolUse(f"{self._spec.run[:8]}-{self._calls}", tool, args)


def _select_role(agent: str, task: str) -> AnswerRole:
    """The role by the agent's own name, else by what it is asked; an explorer's where neither says anything."""
    by_name = [role for role, name, _ in _ROLES if re.search(name, agent, re.IGNORECASE)]
    by_task = [role for role, _, asked in _ROLES if re.search(asked, task, re.IGNORECASE)]
    return next(iter((*by_name, *by_task)), EXPLORER)


def _build_question(spec: RunSpec, task: str, role: AnswerRole) -> SearchQuestion:
    """What the task is about; where it says little, what its files or earlier runs say too."""
    earlier = [message.text for message in reversed(spec.history) if message.role == "user"]
    asked = extend_question(parse_question(task), [*_instructions(spec), *earlier])
    return replace(asked, about=asked.about | {role.prefers}) if role.prefers else asked


def _instructions(spec: RunSpec) -> list[str]:
    """Return the prompt; of one that retells earlier runs what the user asked, the newest first."""
    if not (spec.resumes and spec.prompt.startswith("Previously:\n\n")):
        return [spec.prompt]
    retold, _, newest = spec.prompt.partition("\n\nInstructions:\n\n")
    return [newest, *reversed(_USER_SPEECH.findall(retold))]


def _collect_responses(asks: Sequence[ToolRequest], messages: Sequence[Message]) -> list[ToolResponse]:
    results = messages[len(messages) - len(asks) :]
    return [ToolResponse(ask, result.text, result.is_error) for ask, result in zip(asks, results, strict=True)]


def _render_headline(case: SearchResults) -> str:
    if not case.ranked:
        return f"nothing found about {case.question.subject}"
    if case.is_a_folder:
        return f"found {len(case.ranked)} files"
    match = "no good match, the nearest" if case.is_doubtful else "best match"
    if case.question.about and (lines := case.evidence_in(case.ranked[0])):
        return f"{match}: `{lines[0].path}:{lines[0].line}`"
    if main := main_symbol(case):
        return f"{match}: `{main.name}` in `{main.path}:{main.line}`"
    return f"{match}: `{case.ranked[0].path}`"


def _make_reply(*content: Text | ToolUse) -> ModelReply:
    return ModelReply(content=content, model=MODEL, usage=_FREE)
