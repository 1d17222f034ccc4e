"""Recognize an answer that claims finished work. English only; an answer that is not recognized is never doubted."""

from __future__ import annotations

import re

MAX_CLAIM_CHARS = 300
"""Characters at the beginning of an answer in which it claims that the work is done."""

_WORK = (
    "implemented|fixed|created|updated|added|removed|deleted|refactored|renamed|migrated|installed|committed|"
    "deployed|rewrote|rewritten|wrote|written|changed|applied|ran|tested"
)
_CLAIM = re.compile(
    rf"\A\W*(?:all )?(?:done|finished|completed?|implemented|fixed)\b"
    rf"|\bI(?:'ve| have)? (?:now |successfully |also )*(?:{_WORK})\b"
    r"|\b(?:has|have) been (?:successfully )?(?:implemented|fixed|created|updated|added|removed|completed)\b"
    r"|\ball (?:the )?tests (?:now )?pass",
    re.IGNORECASE,
)
_DENIAL = re.compile(r"\b(?:not|never|cannot|unable|could ?n[o']t|have ?n't|did ?n[o']t)\b", re.IGNORECASE)


def claims_work(answer: str) -> bool:
    """Return whether an answer begins with the claim that something was done or changed."""
    start = answer[:MAX_CLAIM_CHARS].replace("’", "'")
    return bool(_CLAIM.search(start)) and not _DENIAL.search(start)
