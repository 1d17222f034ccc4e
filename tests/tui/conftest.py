"""Fixtures of the terminal views' tests."""

import pytest
from tests.support.event_story import EventStory


@pytest.fixture
def events() -> EventStory:
    return EventStory()
