"""Secrets as parameters of tests."""

import pytest
from tests.support.secret_examples import CANARIES


@pytest.fixture(scope="session", params=list(CANARIES))
def canary(request):
    return CANARIES[request.param]
