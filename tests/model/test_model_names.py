"""Names of models: provider and model apart or joined are one model."""

import pytest

from retinue.model.providers import join_model, same_model, strip_provider


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        ("local", "scripted-1", "local/scripted-1"),
        ("local", "local/scripted-1", "local/scripted-1"),
        ("local", "local:scripted-1", "local/scripted-1"),
        ("Local", "local/scripted-1", "Local/scripted-1"),
        ("openrouter", "qwen/qwen3:free", "openrouter/qwen/qwen3:free"),
        ("local", "localhost-model", "local/localhost-model"),
        ("local", "local/", "local/local/"),
        (None, "local/scripted-1", "local/scripted-1"),
        ("", "scripted-1", "scripted-1"),
        ("local", None, None),
        ("local", "", None),
        (None, None, None),
    ],
)
def test_joined_model_names_its_provider_once(provider, model, expected):
    assert join_model(provider, model) == expected


def test_stripped_model_keeps_what_is_not_its_provider():
    assert [strip_provider("local", model) for model in ("local/m", "local:m", "other/m", "m", "local")] == [
        "m",
        "m",
        "other/m",
        "m",
        "local",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("local/scripted-1", "local/scripted-1"),
        ("local/scripted-1", "local:scripted-1"),
        ("Local/Scripted-1", "local/scripted-1"),
        ("scripted-1", "local/scripted-1"),
        ("scripted-1", "local:scripted-1"),
        ("llama3:8b", "ollama/llama3:8b"),
        ("ollama:llama3:8b", "ollama/llama3:8b"),
        ("scripted-1:low", "local/scripted-1"),
        (None, None),
        ("", None),
    ],
)
def test_spellings_of_one_model_are_equal(one, other):
    assert same_model(one, other)
    assert same_model(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("local/scripted-1", "local/scripted-2"),
        ("local/scripted-1", "other/scripted-1"),
        ("anthropic/claude", "openrouter/anthropic/claude"),
        ("claude", "openrouter/anthropic/claude"),
        ("scripted-1", None),
        ("8b", "ollama/llama3:8b"),
        ("local/", "local"),
    ],
)
def test_different_models_are_not_equal(one, other):
    assert not same_model(one, other)
    assert not same_model(other, one)
