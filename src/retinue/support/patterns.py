"""Compile regular expressions on first use, which keeps the start fast."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

compile_pattern: Callable[[str], re.Pattern[str]] = cache(re.compile)
