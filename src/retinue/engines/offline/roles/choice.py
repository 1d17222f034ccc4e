"""Which role an agent plays: by its own name, else by what it is asked."""

from __future__ import annotations

import re

from retinue.engines.offline.roles.base import Role
from retinue.engines.offline.roles.explorer import EXPLORER
from retinue.engines.offline.roles.implementer import IMPLEMENTER
from retinue.engines.offline.roles.researcher import RESEARCHER
from retinue.engines.offline.roles.reviewer import REVIEWER
from retinue.engines.offline.roles.tester import TESTER

_BY_NAME = (
    (re.compile(r"explor|scout|\bsearch|\bfind|navigat", re.IGNORECASE), EXPLORER),
    (re.compile(r"review|audit|critic|security", re.IGNORECASE), REVIEWER),
    (re.compile(r"test|\bqa\b", re.IGNORECASE), TESTER),
    (re.compile(r"implement|plan|architect|develop|cod(?:er|ing)", re.IGNORECASE), IMPLEMENTER),
    (re.compile(r"research|doc|librar", re.IGNORECASE), RESEARCHER),
)
_BY_TASK = (
    (re.compile(r"^\W*(?:please\s+)?(?:where|which|find|locate|list|show)\b", re.IGNORECASE), EXPLORER),
    (re.compile(r"\b(?:review|audit|risks?|vulnerab\w+|smells?)\b", re.IGNORECASE), REVIEWER),
    (re.compile(r"\b(?:tests?|coverage|untested)\b", re.IGNORECASE), TESTER),
    (re.compile(r"\b(?:plan|implement|add|introduce|refactor|migrate)\b", re.IGNORECASE), IMPLEMENTER),
    (re.compile(r"\b(?:docs?|documentation|research|readme)\b", re.IGNORECASE), RESEARCHER),
)


def role_for(agent: str, task: str) -> Role:
    """The role; an explorer's where neither says anything."""
    for pattern, role in _BY_NAME:
        if pattern.search(agent):
            return role
    return next((role for pattern, role in _BY_TASK if pattern.search(task)), EXPLORER)
