"""Names of models: provider and model apart or joined are one model."""

import pytest

from retinue.model.providers import covers_model, find_listed_model, join_model, same_model, strip_provider


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


@pytest.mark.parametrize(
    ("pattern", "model"),
    [
        ("anthropic/*", "anthropic/claude-opus-5-5"),
        ("anthropic/*", "anthropic:claude-opus-5-5"),
        ("Anthropic/*", "anthropic/Claude-Opus"),
        ("anthropic/claude-*-5-5", "anthropic/claude-opus-5-5:high"),
        ("claude-*", "anthropic/claude-opus-5-5"),
        ("claude-*", "openrouter/anthropic/claude-opus-5-5"),
        ("*", "ollama/llama3:8b"),
        ("ollama/llama3:8b", "ollama:llama3:8b"),
        ("openai/gpt-*", "openai/gpt-*-mini"),
        ("*haiku*", "anthropic/claude-haiku-5"),
    ],
)
def test_pattern_covers_models_and_narrower_patterns(pattern, model):
    assert covers_model(pattern, model)


@pytest.mark.parametrize(
    ("pattern", "model"),
    [
        ("anthropic/*", "claude-opus-5-5"),
        ("anthropic/*", "anthropicx/claude"),
        ("anthropic/*", "*"),
        ("claude-*", "anthropic/gpt"),
        ("claude-*-5", "claude-5"),
        ("openai/gpt-*-mini", "openai/gpt-*"),
        ("openai/gpt-?", "openai/gpt-5"),
        ("", "openai/gpt-5"),
    ],
)
def test_pattern_does_not_cover_other_models_or_wider_patterns(pattern, model):
    assert not covers_model(pattern, model)


def test_alias_of_claude_files_is_listed_as_a_model_of_anthropic():
    assert find_listed_model("sonnet", ["anthropic/*"]) == "anthropic/sonnet"
    assert find_listed_model("sonnet", ["openai/*", "sonnet"]) == "sonnet"
    assert find_listed_model("sonnet", ["openai/*"]) is None
    assert find_listed_model("claude-sonnet-5-5", ["anthropic/*"]) is None
