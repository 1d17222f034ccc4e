"""A small part of `make chaos`: each section holds, and each checker sees a fault that is made on purpose."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from chaos.attack import Attack
from chaos.canaries import attack_with_canaries
from chaos.children import attack_with_children
from chaos.junk import attack_with_junk
from chaos.kills import attack_with_kills
from chaos.repository import attack_with_a_repository
from chaos.shutdowns import attack_with_shutdowns
from chaos.web import SCHEMATHESIS, attack_over_http, attack_with_schemathesis

pytestmark = pytest.mark.process

SEED = 20261119
Section = Callable[[Attack], Awaitable[None]]
SECTIONS: dict[str, Section] = {
    "kills": partial(attack_with_kills, at_least=3),
    "20 children": partial(attack_with_children, children=20),
    "junk": attack_with_junk,
    "canaries": partial(attack_with_canaries, at_least=2),
    "repository": partial(attack_with_a_repository, at_least=4),
    "http": partial(attack_over_http, at_least=1),
}


@pytest.mark.parametrize("name", SECTIONS)
async def test_section_of_the_attack_holds(name, tmp_path):
    attack = Attack(name, SEED, 0.0, tmp_path)
    await SECTIONS[name](attack)
    result = attack.tally.result()
    assert result.problems == []
    assert result.is_clean
    assert result.tried > 0


async def test_shutdown_in_a_burst_of_starts_leaves_no_process_and_one_end_per_run(tmp_path):
    attack = Attack("shutdowns", SEED, 0.0, tmp_path)
    await attack_with_shutdowns(attack, at_least=4)
    result = attack.tally.result()
    assert result.problems == []
    assert result.is_clean


CONTROLS: dict[str, tuple[Section, tuple[str, ...]]] = {
    "kills": (partial(attack_with_kills, at_least=1), ("lost", "orphans")),
    "shutdowns": (partial(attack_with_shutdowns, at_least=1), ("lost", "orphans")),
    "3 children": (partial(attack_with_children, children=3), ("lost",)),
    "canaries": (partial(attack_with_canaries, at_least=1), ("leaks",)),
    "repository": (partial(attack_with_a_repository, at_least=1), ("leaks",)),
    "http": (partial(attack_over_http, at_least=1), ("leaks",)),
}


@pytest.mark.parametrize("name", CONTROLS)
async def test_fault_made_on_purpose_is_noticed_by_its_section(name, tmp_path):
    section, kinds = CONTROLS[name]
    attack = Attack(name, SEED, 0.0, tmp_path, is_control=True)
    await section(attack)
    result = attack.tally.result()
    assert all(getattr(result, kind) for kind in kinds)
    assert not result.is_clean


async def test_junk_that_breaks_a_reader_on_purpose_is_noticed_on_every_input(tmp_path):
    attack = Attack("junk", SEED, 0.0, tmp_path, is_control=True)
    await attack_with_junk(attack)
    assert (attack.tally.held, attack.tally.tried) == (0, 6)


@pytest.mark.skipif(not SCHEMATHESIS.exists(), reason="needs schemathesis: make .tools/chaos/.installed")
async def test_server_that_differs_from_its_document_is_noticed_by_schemathesis(tmp_path):
    attack = Attack("schemathesis", SEED, 0.0, tmp_path, is_control=True)
    await attack_with_schemathesis(attack)
    result = attack.tally.result()
    assert result.tried > result.held
    assert result.problems != []
