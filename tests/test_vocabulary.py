"""Tests of the language of the repository: plain names, imperative docstrings, short functions, clear test names, plain messages."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from retinue.cli.group import root

ROOT = Path(__file__).parents[1]
SOURCES, TESTS = "src/retinue", "tests"

BANNED_WORDS = re.compile(
    r"(tell|told|say|said|hear|heard|speak|spoken|guest|lodger|household|purse|reins|door|desk|errand|"
    r"greeting|farewell|goodbye|newcomer|deed)s?",
    re.IGNORECASE,
)
"""Words for which the field has its own: report, print, send, receive, text, client, budget, control, server."""
PARTICIPLES = re.compile(
    r"told|said|heard|kept|held|shown|begun|given|taken|asked|meant|lent|found|made|written|known|seen|gone|done"
)
"""Names of functions that do not say what the function does."""
QUESTIONS = re.compile(
    r"(What|Whether|Where|How|Who|Whose|Whom|Which|Why|When|Whoever|Whatever|Those|It|Nobody|Nothing|That)\b"
)
"""First words of a docstring that describes an answer instead of an action."""
LEANING = re.compile(
    r"test_(what|one|it|its|those|neither|nothing|all|who|whose|whoever|nobody|they|that|this|so|and|but|none|some|"
    r"others?)_"
)
"""Beginnings of test names that need the file name or the test above to be understood."""

MAX_QUESTION_SHARE = 0.02
"""Share of docstrings; a class may well be described by what it is not."""
MAX_BANNED_TEST_NAMES = 20
MAX_LEANING_TEST_NAMES = 10
"""A test may be about what is said, or about nothing, all or one; the limits only go down."""
MAX_FUNCTION_LINES = 60
LONG_FUNCTIONS = {"src/retinue/composition.py:available_engines": "the table of engines"}
"""Functions that may be longer, with the reason."""

MESSAGE_WORDS = re.compile(
    r"\b(mends?|mended|told|heard|hears|whoever|whomever|nobody to ask|to ask here|taken as written|as (?:it is )?"
    r"(?:now )?written|go(?:es)? on with|to go on|what (?:it|they|the runs?) had|what there (?:is|was)|nothing was said|"
    r"at work|begun|looked at|so many|is in order|all in order|it is so|take as read|let others? in|switched off|"
    r"cannot be called|carried out by|is no (?:plan|script|JSON|text|path|agent)|of (?:its|their|your) own to|"
    r"whatever|put off|let (?:\w+ ){1,2}in|says about|what was said|before that stands|stands with|what remains|"
    r"what serves|taken (?:for|up)|do something|as set|below it(?=:)|at the latest|the store says|calls? home|have a word|"
    r"have said|never given|advised to|our tools|read aloud|is yours to|costs nobody|"
    r"as (?:it|they) stands?|say so|goes on|told apart|not there yet|seed \d{3}|"
    r"colour\w*|behaviours?|honour\w*|favour\w*|recognis\w+|organis\w+|analys(?:e|ed|es|ing))\b",
    re.IGNORECASE,
)
"""Phrases that a person or a model has to decode, and British spellings."""
FORMER_TEXTS = """\
Nothing in these documents needs what is not there yet.
See what runs, in whatever process it was started.
Exit codes: 0 it is so, 1 it was left as it is, 2 it cannot be done.
TIME is added to its timeout, and to the end that no work of its own can put off
2 its time is as it was: the run is not at work.
The agent goes on with its step; then its model reads TEXT before it is asked again.
With --host: let other machines in. Read what it says about that.
Show whom a session asked, what was said and what was done. Before that stands what else is known of it.
Without --results, what remains lists them, shows their answers and continues them.
1 setting was not taken as written in environment (retinue doctor)
6 agents checked, 0 to mend.
Run 435a6687 has been told; its agent reads it before it asks its model again.
There is nobody to ask here: give --yes to install, or --dry-run to only look.
What serves HTTP is not installed.
bad name! was not written: the name cannot be called: use letters
No engine with a language model is configured here, and rules must not be taken for an agent.
… and not trusted as it is now written.
Keys of one letter do something
At most, levels of runs · At most, turns · as set
Below it: 3 runs, working
timeout seconds after the start, plus extend_timeout_debounce; at ceiling_factor timeouts at the latest
One that is taken up again has spent what the store says its earlier runs consumed.
A run that hands on exactly what it or one above it was given is told to do it itself.
Those tools call home: they reach the process that started the run, and everything is kept there
Hosts have a word in it, too: Codex reads a project's file only in folders you have said you trust
A second start makes its link from the token, too: it says nothing to whoever has the port.
A process whose agent was never given what pi took serves no other run.
An agent that has `fallback_models`, and whose models all failed, is advised to have others, not to have some."""
"""Texts that were rewritten because no reader understood them; their words must not come back."""
NO_MESSAGES = ("src/retinue/testing/", "src/retinue/engines/offline/search.py")
"""Files whose texts are data: lists of words and the texts of contract tests."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
ERROR_BASES = ("Exception", "Error")


@cache
def definitions(folder: str) -> tuple[tuple[str, Definition], ...]:
    """Return every class and function below a folder with its file and name."""
    return tuple(
        (f"{path.relative_to(ROOT).as_posix()}:{node.name}", node)
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, Definition)
    )


def split_words(name: str) -> list[str]:
    return re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+", name.strip("_"))


def has_banned_word(node: Definition) -> bool:
    return any(BANNED_WORDS.fullmatch(word) for word in split_words(node.name))


def test_names_in_sources_use_no_banned_words():
    assert [name for name, node in definitions(SOURCES) if has_banned_word(node)] == []


def test_names_in_tests_use_few_banned_words():
    names = [name for name, node in definitions(TESTS) if has_banned_word(node)]
    assert len(names) <= MAX_BANNED_TEST_NAMES, names


def test_functions_are_not_named_by_a_participle():
    functions = [(name, node) for name, node in definitions(SOURCES) if not isinstance(node, ast.ClassDef)]
    assert [name for name, node in functions if PARTICIPLES.fullmatch(node.name.strip("_"))] == []


def test_exceptions_end_in_error():
    classes = [(name, node) for name, node in definitions(SOURCES) if isinstance(node, ast.ClassDef)]
    exceptions = [
        (name, node) for name, node in classes if any(ast.unparse(base).endswith(ERROR_BASES) for base in node.bases)
    ]
    assert [name for name, node in exceptions if not node.name.endswith(("Error", "Exit", "Warning"))] == []


def test_docstrings_rarely_start_with_a_question():
    docstrings = {name: text for name, node in definitions(SOURCES) if (text := ast.get_docstring(node))}
    questions = [name for name, text in docstrings.items() if QUESTIONS.match(text)]
    assert len(questions) <= MAX_QUESTION_SHARE * len(docstrings), questions


def test_functions_have_at_most_60_lines():
    functions = [(name, node) for name, node in definitions(SOURCES) if not isinstance(node, ast.ClassDef)]
    lengths = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node in functions}
    long = {name for name, length in lengths.items() if length > MAX_FUNCTION_LINES}
    assert sorted(long - LONG_FUNCTIONS.keys()) == []


def test_test_names_are_understood_without_their_file():
    names = [name for name, node in definitions(TESTS) if LEANING.match(node.name)]
    assert len(names) <= MAX_LEANING_TEST_NAMES, names


def list_texts(path: Path) -> list[str]:
    """Return the string literals of a file without its docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    documentation = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | Definition)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
    ]


def list_commands(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    """Yield the context of a command and of each of its subcommands."""
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from list_commands(child, click.Context(child, info_name=name, parent=context))


def test_every_former_text_has_a_banned_phrase():
    assert [text for text in FORMER_TEXTS.splitlines() if not MESSAGE_WORDS.search(text)] == []


def test_messages_use_no_banned_phrases():
    paths = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / SOURCES).rglob("*.py"))]
    found = [
        (path, phrase[0], text)
        for path in paths
        if not path.startswith(NO_MESSAGES)
        for text in list_texts(ROOT / path)
        if (phrase := MESSAGE_WORDS.search(text))
    ]
    assert found == []


def test_help_of_every_command_uses_no_banned_phrases():
    contexts = list(list_commands(root, click.Context(root, info_name="retinue")))
    pages = {context.command_path: " ".join(context.get_help().split()) for context in contexts}
    assert len(pages) > 30
    assert {name: phrase[0] for name, page in pages.items() if (phrase := MESSAGE_WORDS.search(page))} == {}


def test_built_in_prompts_use_no_banned_phrases():
    pages = {path.name: path.read_text("utf-8") for path in (ROOT / SOURCES / "agents/builtin").iterdir()}
    assert {name: phrase[0] for name, page in pages.items() if (phrase := MESSAGE_WORDS.search(page))} == {}


def test_examples_and_the_pi_extension_use_no_banned_phrases():
    paths = [*(ROOT / "examples").glob("*.py"), *(ROOT / SOURCES / "extension").rglob("*.js")]
    pages = {path.name: path.read_text("utf-8") for path in paths}
    assert len(pages) > 10
    assert {name: phrase[0] for name, page in pages.items() if (phrase := MESSAGE_WORDS.search(page))} == {}
