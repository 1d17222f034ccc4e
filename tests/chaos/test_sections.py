"""A small part of `make chaos`: each section holds, and each checker sees a fault that is made on purpose."""

from __future__ import annotations

from functools import partial

import pytest

from chaos.attack import Attack
from chaos.canaries import attack_with_canaries
from chaos.children import attack_with_children
from chaos.junk import attack_with_junk
from chaos.kills import attack_with_kills
from chaos.repository import attack_with_a_repository
from chaos.web import attack_over_http

pytestmark = pytest.mark.process

SEED = 20261119
SECTIONS = {
    "kills": partial(attack_with_kills, at_least=3),
    "20 children": partial(attack_with_children, children=20),
    "junk": attack_with_junk,
    "canaries": partial(attack_with_canaries, at_least=3),
    "repository": partial(attack_with_a_repository, at_least=8),
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


CONTROLS = {
    "kills": (partial(attack_with_kills, at_least=1), {"lost": 1, "orphans": 1}),
    "3 children": (partial(attack_with_children, children=3), {"lost": 3}),
    "canaries": (partial(attack_with_canaries, at_least=1), {"leaks": 1}),
    "repository": (partial(attack_with_a_repository, at_least=1), {"leaks": 1}),
    "http": (partial(attack_over_http, at_least=1), {"leaks": 1}),
}


@pytest.mark.parametrize("name", CONTROLS)
async def test_fault_made_on_purpose_is_noticed_by_its_section(name, tmp_path):
    section, expected = CONTROLS[name]
    attack = Attack(name, SEED, 0.0, tmp_path, is_control=True)
    await section(attack)
    result = attack.tally.result()
    assert {key: getattr(result, key) for key in expected} == expected
    assert not result.is_clean
