"""Tests of variables that a host failed to fill in."""

import pytest

from retinue.client import Retinue
from retinue.support.own_process import drop_placeholders


@pytest.mark.parametrize("value", ["$OPENAI_API_KEY", "${OPENAI_API_KEY}", "${env:OPENAI_API_KEY}"])
def test_variable_that_names_itself_counts_as_unset(value, tmp_path):
    environ = {"HOME": str(tmp_path), "PATH": "/nowhere", "OPENAI_API_KEY": value}
    assert drop_placeholders(environ) == {"HOME": str(tmp_path), "PATH": "/nowhere"}
    assert Retinue(environ=environ, state=tmp_path).engines["api"].not_configured_reason() is not None


@pytest.mark.parametrize("value", ["", "$", "$OTHER", "x$OPENAI_API_KEY", "sk-$OPENAI_API_KEY", "${OPENAI_API_KEY"])
def test_other_values_are_kept(value):
    assert drop_placeholders({"OPENAI_API_KEY": value}) == {"OPENAI_API_KEY": value}
