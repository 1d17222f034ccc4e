"""Regular expressions, compiled when first needed: a program's start should not pay for what it never meets."""

from __future__ import annotations

import re
from functools import cache


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
