"""The rule model: replies like a model, by searching. It reads files; it does not understand them."""

from __future__ import annotations

from collections.abc import Sequence

from retinue.engines.loop import Reply, Request, Say
from retinue.engines.offline.answers import limits, section
from retinue.engines.offline.asking import Ask, Got
from retinue.engines.offline.form import rendered, template
from retinue.engines.offline.inquiry import Case, Inquiry, investigate
from retinue.engines.offline.roles.base import Role, main_symbol
from retinue.engines.offline.roles.choice import role_for
from retinue.engines.offline.terms import Question, continued, question
from retinue.events import Text, TextDelta
from retinue.tool_names import FINALIZE
from retinue.types import Args, Message, RunSpec, ToolUse, Usage

MODEL = "offline-rules"
_FREE = Usage(cost=0.0)
_HONEST = "Rule-based search, not a language model"
_WITHOUT_TOOLS = "none of `read`, `grep`, `find` and `ls` was granted, so nothing could be looked at"


class RuleModel:
    """Answers one run. Every look at a file is a call of one of the run's own tools."""

    name = MODEL

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._role = role_for(spec.agent.name, spec.task)
        self._question = _asked(spec, self._role)
        self._inquiry: Inquiry | None = None
        self._asked: Sequence[Ask] = ()
        self._calls = 0

    async def reply(self, request: Request, say: Say) -> Reply:
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
                tools = frozenset(tool.name for tool in request.tools) - {FINALIZE}
                self._inquiry = investigate(self._question, tools, self._role.follow)
                return next(self._inquiry)
            return self._inquiry.send(_answers(self._asked, request.messages))
        except StopIteration as done:
            case: Case = done.value
            return case

    async def _answer(self, case: Case, request: Request, say: Say) -> Reply:
        text = self._text(case)
        if any(tool.name == FINALIZE for tool in request.tools):
            failed = {"status": "ERROR", "error": f"{_HONEST}: {_WITHOUT_TOOLS}."}
            done = {"status": "SUCCESS", "result": text}
            return _reply(self._use(FINALIZE, done if case.tools else failed))
        for line in text.splitlines(keepends=True):
            await say(TextDelta(line))
        return _reply(Text(text))

    def _text(self, case: Case) -> str:
        if not case.tools:
            return f"{_HONEST}: {_WITHOUT_TOOLS}."
        form = template(self._spec.agent.body) or template(self._spec.system_prompt)
        nothing = [section("findings", "Findings", [f"Nothing found about {case.question.subject}."]), limits(case)]
        sections = self._role.answer(case) if case.ranked else nothing
        return f"{_HONEST}; {_headline(case)}.\n\n{rendered(sections, form, case.question.subject)}"

    def _use(self, tool: str, args: Args) -> ToolUse:
        self._calls += 1
        return ToolUse(f"{self._spec.run[:8]}-{self._calls}", tool, args)


def _asked(spec: RunSpec, role: Role) -> Question:
    """What the task is about; where it says little, what its files or earlier runs say too."""
    earlier = [message.text for message in reversed(spec.history) if message.role == "user"]
    asked = continued(question(spec.task), [spec.prompt, *earlier])
    return asked.preferring(role.prefers) if role.prefers else asked


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
        file, symbol = main
        return f"{match}: `{symbol.name}` in `{file.path}:{symbol.line}`"
    return f"{match}: `{case.ranked[0].path}`"


def _reply(*content: Text | ToolUse) -> Reply:
    return Reply(content=content, model=MODEL, usage=_FREE)
