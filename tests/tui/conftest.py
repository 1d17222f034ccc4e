"""Shared by the tests of the ways in."""

import pytest
from tests.support.event_story import Story


@pytest.fixture
def story() -> Story:
    return Story()
