"""The cost of many agent files: to read them, to list their agents, to find one of them as a run does.

`python -m benchmarks.agents_bench list|find|read COUNT`
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.agent_forms import BODY, AgentForm, list_public_forms, write_forms

from benchmarks.workload import scratch
from retinue.agents.name_index import NameIndex
from retinue.agents.registry import AgentRegistry
from retinue.agents.search_paths import SearchPaths
from retinue.agents.trust import TrustStore

NANOSECONDS_AHEAD = 3600 * 10**9
"""How far the clock is ahead, so that the state of files that were just written is certain."""


def make_files(count: int, home: Path) -> list[Path]:
    """Write stand-ins for public agent files, filled up with files of our own form, and return them."""
    forms = list_public_forms()[:count]
    header = "---\nname: mine-{0}\ndescription: Does its work.\ntools: read, grep\n---\n\n" + BODY
    forms += [
        AgentForm(tool="Retinue", path=f".config/retinue/agents/{number}.md", text=header.format(number))
        for number in range(count - len(forms))
    ]
    write_forms(forms, home)
    return [home / form.path for form in forms]


def main(work: str, count: int) -> None:
    home = Path(scratch()) / "home"
    files = make_files(count, home)

    def open_registry() -> AgentRegistry:
        trust, names = TrustStore(home / "trust.json"), NameIndex(home / "state" / "agent-names.json")
        folders = SearchPaths({"HOME": str(home)})
        return AgentRegistry(folders, trust, names=names, clock=lambda: time.time_ns() + NANOSECONDS_AHEAD)

    works: dict[str, Callable[[], object]] = {
        "read": lambda: [path.read_bytes() for path in files],
        "list": lambda: open_registry().for_directory(home).list_definitions(),
        "find": lambda: open_registry().for_names(home, ["expert-7"]).find("expert-7"),
    }
    if work == "find":
        open_registry().for_directory(home)
    start = time.process_time()
    works[work]()
    print(json.dumps({"cpu": time.process_time() - start}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
