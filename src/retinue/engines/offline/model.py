"""The rule model: replies like a model, by searching. It reads files; it does not understand them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from retinue.engines.loop import Reply, Request, Say
from retinue.engines.offline.form import Section, limits, rendered, template
from retinue.engines.offline.handing import SPAWN, Handing, divided
from retinue.engines.offline.inquiry import Ask, Case, Got, Inquiry, investigate
from retinue.engines.offline.roles import Role, main_symbol
from retinue.engines.offline.roles.explorer import EXPLORER
from retinue.engines.offline.roles.implementer import IMPLEMENTER
from retinue.engines.offline.roles.researcher import RESEARCHER
from retinue.engines.offline.roles.reviewer import REVIEWER
from retinue.engines.offline.roles.tester import TESTER
from retinue.engines.offline.terms import Question, continued, question
from retinue.events import Text, TextDelta
from retinue.tool_names import FINALIZE, is_delegation
from retinue.types import Args, Message, RunSpec, ToolUse, Usage

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
        self._handing = divided(spec.task) if SPAWN in spec.grant.tools else Handing()
        self._told: Message | None = None
        """What those answered who were asked."""
        task = self._handing.rest if self._handing.errands else spec.task
        self._role = _role_for(spec.agent.name, task)
        self._question = _asked(spec, task, self._role)
        self._inquiry: Inquiry | None = None
        self._asked: Sequence[Ask] = ()
        self._calls = 0

    async def reply(self, request: Request, say: Say) -> Reply:
        if self._handing.errands and self._told is None:
            if request.messages[-1].role == "user":
                return _reply(self._use(SPAWN, self._handing.arguments))
            self._told = request.messages[-1]
        if self._told and not self._handing.rest:
            return await self._say(f"{_HONEST}; {self._passed_on()}", request, say, is_error=self._told.is_error)
        match self._advance(request):
            case Case() as case:
                return await self._answer(case, request, say)
            case asks:
                self._asked = asks
                return _reply(*(self._use(ask.tool, ask.args) for ask in asks))

    def _advance(self, request: Request) -> Case | Sequence[Ask]:
        """The next things to ask or, when all is asked, what came of it."""
        try:
            if self._inquiry is None:
                tools = frozenset(tool.name for tool in request.tools if not is_delegation(tool.name)) - {FINALIZE}
                self._inquiry = investigate(self._question, tools, self._role.follow)
                return next(self._inquiry)
            return self._inquiry.send(_answers(self._asked, request.messages))
        except StopIteration as done:
            case: Case = done.value
            return case

    async def _answer(self, case: Case, request: Request, say: Say) -> Reply:
        text = self._text(case) if case.tools else _WITHOUT_TOOLS
        passed_on = f"\n\nBeside that, {self._passed_on()}" if self._told else ""
        return await self._say(text + passed_on, request, say, is_error=not case.tools)

    async def _say(self, text: str, request: Request, say: Say, *, is_error: bool) -> Reply:
        if any(tool.name == FINALIZE for tool in request.tools):
            done = {"status": "ERROR", "error": text} if is_error else {"status": "SUCCESS", "result": text}
            return _reply(self._use(FINALIZE, done))
        for line in text.splitlines(keepends=True):
            await say(TextDelta(line))
        return _reply(Text(text))

    def _text(self, case: Case) -> str:
        form = template(self._spec.agent.body) or template(self._spec.system_prompt)
        nothing = Section("findings", "Findings", [f"Nothing found about {case.question.subject}."])
        sections = self._role.answer(case) if case.ranked else (nothing, limits(case))
        return f"{_HONEST}; {_headline(case)}.\n\n{rendered(sections, form, case.question.subject)}"

    def _passed_on(self) -> str:
        """What came of the part that was somebody else's."""
        said = self._told.text if self._told else ""
        return f"asked {self._handing.agents}:\n\n{said}"

    def _use(self, tool: str, args: Args) -> ToolUse:
        self._calls += 1
        return ToolUse(f"{self._spec.run[:8]}-{self._calls}", tool, args)


def _role_for(agent: str, task: str) -> Role:
    """The role by the agent's own name, else by what it is asked; an explorer's where neither says anything."""
    by_name = [role for role, name, _ in _ROLES if re.search(name, agent, re.IGNORECASE)]
    by_task = [role for role, _, asked in _ROLES if re.search(asked, task, re.IGNORECASE)]
    return next(iter((*by_name, *by_task)), EXPLORER)


def _asked(spec: RunSpec, task: str, role: Role) -> Question:
    """What the task is about; where it says little, what its files or earlier runs say too."""
    earlier = [message.text for message in reversed(spec.history) if message.role == "user"]
    asked = continued(question(task), [*_instructions(spec), *earlier])
    return replace(asked, about=asked.about | {role.prefers}) if role.prefers else asked


def _instructions(spec: RunSpec) -> list[str]:
    """Return the prompt; of one that retells earlier runs what the user asked, the newest first."""
    if not (spec.resumes and spec.prompt.startswith("Previously:\n\n")):
        return [spec.prompt]
    retold, _, newest = spec.prompt.partition("\n\nInstructions:\n\n")
    return [newest, *reversed(_USER_SPEECH.findall(retold))]


def _answers(asks: Sequence[Ask], messages: Sequence[Message]) -> list[Got]:
    results = messages[len(messages) - len(asks) :]
    return [Got(ask, result.text, result.is_error) for ask, result in zip(asks, results, strict=True)]


def _headline(case: Case) -> str:
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


def _reply(*content: Text | ToolUse) -> Reply:
    return Reply(content=content, model=MODEL, usage=_FREE)
