"""Regular expressions that are compiled on first use, so that starting stays quick."""

from __future__ import annotations

import re
from functools import cache


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
