"""Searches find what the records have, in any state of the full-text index."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.retinue_factory import stage

import retinue
from retinue.engines.scripted import Script, call, reply
from retinue.model.events import Text, ToolReturned
from retinue.model.runs import RunSpec
from retinue.sessions import text_index
from retinue.sessions.index import SessionIndex
from retinue.sessions.jsonl import JsonlStore
from retinue.sessions.paths import StateLayout
from retinue.sessions.search import MAX_HEAD_BYTES, SearchText, find_match, read_search_texts
from retinue.sessions.store import IndexProgress, SearchField, SearchMatch, SessionFilter
from retinue.sessions.summary import find_summary
from retinue.testing.stores import StoreRecorder, record_run, run_spec

HOSTILE_TEXTS = [
    '"',
    '""""',
    "'; DROP TABLE sessions; --",
    "NEAR(a b, 3)",
    "a* OR b*",
    "body : x",
    "^start",
    "(((",
    "nul\0nul",
    "\ud800\udfff lone",
    "🎈🎈🎈",
    "שלום עולם",
    "\u202etfel ot thgir",
    "İSTANBUL ẞ ﬁ",
    "x" * 100_000,
    '"' * 100_000,
    " a b" * 30_000,
]


async def record_answers(folder: Path, *answers: str) -> list[str]:
    """Record a session with each answer and return their ids."""
    async with JsonlStore(folder) as store:
        sessions = [store.claim() for _ in answers]
        for number, (session, answer) in enumerate(zip(sessions, answers, strict=True)):
            await record_run(store, run_spec(session), Text(f"First line\n{answer}"), time=1000.0 * number)
    return sessions


def open_index(
    folder: Path,
    *,
    tokenizer: str = "trigram",
    read_texts: Callable[[Path], Iterator[SearchText]] = read_search_texts,
) -> SessionIndex:
    layout = StateLayout(folder)
    return SessionIndex(
        layout,
        lambda path: find_summary(layout, path, lambda _: False),
        lock_timeout=0.05,
        tokenizer=tokenizer,
        read_texts=read_texts,
    )


def search(index: SessionIndex, text: str) -> list[str]:
    return [each.session for each in index.list(SessionFilter(text=text))]


@pytest.fixture
def read_log() -> list[str]:
    return []


@pytest.fixture
def read_logged(read_log: list[str]) -> Callable[[Path], Iterator[SearchText]]:
    """Return a reader of texts that logs the folders it reads."""

    def read(folder: Path) -> Iterator[SearchText]:
        read_log.append(folder.name)
        return read_search_texts(folder)

    return read


@pytest.mark.parametrize("tokenizer", ["trigram", "missing"])
async def test_hostile_text_is_searched_literally(folder, tokenizer):
    (session,) = await record_answers(folder, "nothing of the kind")
    index = open_index(folder, tokenizer=tokenizer)
    assert [search(index, text) for text in HOSTILE_TEXTS] == [[]] * len(HOSTILE_TEXTS)
    assert search(index, "OF the KIND") == [session]


async def test_hostile_text_in_an_answer_is_found(folder):
    texts = [text for text in HOSTILE_TEXTS if len(text) < 1_000 and "\ud800" not in text]
    sessions = await record_answers(folder, *(f"before {text} after" for text in texts))
    index = open_index(folder)
    assert [search(index, f"before {text} after") for text in texts] == [[session] for session in sessions]


async def test_search_reads_changed_records_and_those_that_may_match(folder, read_log, read_logged):
    sessions = await record_answers(folder, "alpha", "beta", "gamma")
    index = open_index(folder, read_texts=read_logged)
    assert search(index, "beta") == [sessions[1]]
    assert sorted(read_log) == sorted([*(each[:8] for each in sessions), sessions[1][:8]])
    read_log.clear()
    assert search(open_index(folder, read_texts=read_logged), "delta") == []
    assert read_log == []
    async with JsonlStore(folder) as store:
        await record_run(store, run_spec(sessions[0], store.claim(sessions[0])), Text("more\ndelta"), time=9000.0)
    assert search(open_index(folder, read_texts=read_logged), "delta") == [sessions[0]]
    assert read_log == [sessions[0][:8]] * 2


async def test_lists_without_a_search_read_no_texts(folder, read_log, read_logged):
    await record_answers(folder, "alpha", "beta")
    index = open_index(folder, read_texts=read_logged)
    assert len(index.list(SessionFilter())) == len(index.conversations(SessionFilter(), 5)[0].sessions) == 2
    assert index.advance(9.0) == IndexProgress(2, 2)
    assert read_log == []


async def test_page_reads_no_more_records_than_it_has(folder, read_log, read_logged):
    sessions = await record_answers(folder, *(f"common {number}" for number in range(5)))
    open_index(folder).advance(9.0, for_search=True)
    index = open_index(folder, read_texts=read_logged)
    found = index.list(SessionFilter(text="common", limit=2))
    assert [each.session for each in found] == [sessions[4], sessions[3]]
    assert read_log == [sessions[4][:8], sessions[3][:8]]


@pytest.mark.parametrize("damage", ["deleted", "garbage", "no texts", "damaged texts", "other tables"])
async def test_damaged_index_is_rebuilt_and_finds_the_same(folder, damage):
    sessions = await record_answers(folder, "alpha", "beta")
    path = folder / "index.sqlite"
    assert search(open_index(folder), "beta") == [sessions[1]]
    match damage:
        case "deleted":
            path.unlink()
        case "garbage":
            path.write_bytes(b"\x00garbage" * 1000)
        case _:
            statement = {
                "no texts": "DROP TABLE texts",
                "damaged texts": "DELETE FROM texts_data",
                "other tables": "DROP TABLE documents; CREATE TABLE documents (x)",
            }[damage]
            with closing(sqlite3.connect(path)) as database:
                database.executescript(statement)
    assert [search(open_index(folder), "alpha") for _ in range(3)] == [[sessions[0]]] * 3
    assert open_index(folder).advance(9.0, for_search=True) == IndexProgress(2, 2)


async def test_indexing_continues_after_it_was_interrupted(folder, monkeypatch):
    monkeypatch.setattr(text_index, "BATCH_SESSIONS", 2)
    sessions = await record_answers(folder, *(f"answer {number}" for number in range(5)))
    count = 0

    def read_three(path: Path) -> Iterator[SearchText]:
        nonlocal count
        count += 1
        if count > 3:
            raise KeyboardInterrupt
        return read_search_texts(path)

    with pytest.raises(KeyboardInterrupt):
        open_index(folder, read_texts=read_three).advance(9.0, for_search=True)
    partly = open_index(folder).list(SessionFilter(text="answer"), refresh=False)
    assert [each.session for each in partly] == [sessions[4], sessions[3]]
    assert search(open_index(folder), "answer") == sessions[::-1]


async def test_indexing_advances_in_steps_the_latest_session_first(folder):
    await record_answers(folder, "alpha", "beta", "gamma")
    index = open_index(folder)
    steps = [index.advance(0.0, for_search=True).done for _ in range(7)]
    assert (steps, steps == sorted(steps)) == ([*steps[:-1], 3], True)


def find_documents(folder: Path, trigram: str) -> tuple[list[str], int]:
    """Return the folders the text index has, and the number of its rows with a trigram."""
    with closing(sqlite3.connect(folder / "index.sqlite")) as database:
        database.execute("INSERT INTO texts(texts) VALUES ('integrity-check')")
        folders = [row[0] for row in database.execute("SELECT folder FROM documents ORDER BY folder")]
        return folders, len(
            database.execute("SELECT rowid FROM texts WHERE texts MATCH ?", (f'"{trigram}"',)).fetchall()
        )


@pytest.mark.parametrize("keep_results", [True, False])
async def test_pruning_removes_only_the_text_of_the_pruned_session_from_the_index(folder, keep_results):
    old, new = await record_answers(folder, "a private remark", "a private note")
    os.utime(folder / "sessions" / new[:8] / "session.jsonl", (4e9, 4e9))
    async with JsonlStore(folder, clock=lambda: 4e9) as store:
        assert [each.session for each in await store.list(SessionFilter(text="private"))] == [new, old]
        await store.prune(older_than=1.0, keep_results=keep_results)
        assert find_documents(folder, "pri") == ([new[:8]], 1)
        assert [each.session for each in await store.list(SessionFilter(text="private"))] == [new]
        assert len(await store.list(SessionFilter(text="It is main"))) == (2 if keep_results else 1)


async def test_pruned_text_of_an_earlier_state_is_removed_from_the_index(folder):
    (session,) = await record_answers(folder, "a private remark")
    assert search(open_index(folder), "private") == [session]
    async with JsonlStore(folder, clock=lambda: 4e9) as store:
        await record_run(store, run_spec(session, store.claim(session)), Text("more of it"), time=9000.0)
        assert len(await store.list(SessionFilter(text="more of it"))) == 1
        assert find_documents(folder, "pri") == ([session[:8]], 1)
        await store.prune(older_than=1.0)
        assert find_documents(folder, "pri") == ([], 0)


@pytest.mark.parametrize("state", ["not indexed since", "deleted by hand", "thinned by hand", "rewritten"])
async def test_text_that_is_not_known_exactly_is_discarded_with_the_index(folder, state):
    old, _ = await record_answers(folder, "a private remark", "a public note")
    assert search(open_index(folder), "private") == [old]
    record = folder / "sessions" / old[:8] / "session.jsonl"
    async with JsonlStore(folder, clock=lambda: 4e9) as store:
        match state:
            case "not indexed since":
                await record_run(store, run_spec(old, store.claim(old)), Text("more of it"), time=9000.0)
            case "deleted by hand":
                shutil.rmtree(record.parent)
            case "thinned by hand":
                record.write_bytes(b"\n".join(record.read_bytes().split(b"\n")[:3]) + b"\n")
            case "rewritten":
                record.write_bytes(record.read_bytes().replace(b"private", b"secret!"))
                assert search(open_index(folder), "secret!") == [old]
        await store.prune(older_than=1.0, keep_results=False)
        assert find_documents(folder, "pri") == ([], 0)


async def test_pruned_index_is_smaller_than_two_fifths_of_the_records(memory_path):
    source = read_own_source()
    sessions = await record_answers(memory_path, *(source[at : at + 30_000] for at in range(0, 2_400_000, 30_000)))
    for session in sessions[:40]:
        os.utime(memory_path / "sessions" / session[:8] / "session.jsonl", (4e9, 4e9))
    open_index(memory_path).advance(60.0, for_search=True)
    async with JsonlStore(memory_path, clock=lambda: 4e9) as store:
        await store.prune(older_than=1.0, keep_results=False)
    assert find_documents(memory_path, "def")[0] == sorted(session[:8] for session in sessions[:40])
    assert (memory_path / "index.sqlite").stat().st_size < 0.4 * sum_records(memory_path)


async def test_records_are_scanned_without_full_text_search(folder):
    sessions = await record_answers(folder, "alpha", "beta")
    index = open_index(folder, tokenizer="missing")
    assert index.advance(9.0, for_search=True) == IndexProgress(2, 2, scans_records=True)
    assert index.advance(9.0) == IndexProgress(2, 2)
    assert search(index, "alpha") == [sessions[0]]
    assert search(index, "zeta") == []


async def test_records_are_scanned_if_the_index_cannot_be_written(folder):
    sessions = await record_answers(folder, "alpha", "beta")
    (folder / "index.sqlite").mkdir()
    index = open_index(folder)
    assert index.advance(9.0, for_search=True).scans_records
    assert search(index, "alpha") == [sessions[0]]


async def test_text_of_two_characters_is_searched_in_what_lists_show(folder, read_log, read_logged):
    await record_answers(folder, "qx")
    index = open_index(folder, read_texts=read_logged)
    index.advance(9.0, for_search=True)
    read_log.clear()
    assert search(index, "qx") == []
    assert len(search(index, "ma")) == 1
    assert read_log == []


async def test_search_of_a_huge_record_reads_its_ends_only(folder):
    async with JsonlStore(folder) as store:
        session = store.claim()
        record = await store.open_record(run_spec(session))
        recorder = StoreRecorder(record, run_spec(session))
        recorder.record_start()
        recorder.record(ToolReturned("c", "read", "at the start"))
        recorder.record(*(ToolReturned("c", "read", "x" * 200_000) for _ in range(MAX_HEAD_BYTES // 100_000)))
        recorder.record_end("at the end")
        await record.release()
    texts = list(read_search_texts(folder / "sessions" / session[:8]))
    assert sum(len(text) for _, text in texts) < 2 * MAX_HEAD_BYTES
    assert {(field, text) for field, text in texts if "at the" in text} == {
        (SearchField.TOOL_OUTPUT, "at the start"),
        (SearchField.ANSWER, "at the end"),
    }
    assert search(open_index(folder), "at the end") == [session]


def read_own_source() -> str:
    return "".join(path.read_text() for path in sorted(Path(retinue.__file__).parent.rglob("*.py")))


def sum_records(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "sessions").rglob("*.jsonl"))


@pytest.mark.parametrize(("chars", "count"), [(100, 400), (2_000, 100), (30_000, 40)])
async def test_index_is_smaller_than_two_fifths_of_the_records(memory_path, chars, count):
    source = read_own_source()
    texts = iter(source[at : at + chars] for at in range(0, chars * count, chars))

    def answer(_: RunSpec) -> Script:
        return call("read", path="a.py"), reply(next(texts))

    async with JsonlStore(memory_path) as store, stage(memory_path, answer, store=store) as retinue:
        for number in range(count):
            await retinue.run("explorer", f"Explain part {number} of the source")
        await retinue.advance_index(60.0, for_search=True)
    assert (memory_path / "index.sqlite").stat().st_size < 0.4 * sum_records(memory_path)


@pytest.mark.parametrize(
    ("text", "wanted", "snippet"),
    [
        ("The bus is in bus.py.", "BUS.PY", "The bus is in bus.py."),
        ("one\ntwo\t three", "two three", "one two three"),
        (f"{'far ' * 30}here {'away ' * 40}", "here", f"…{'far ' * 9}here {'away ' * 15}aw…"),
        ("red\x1b[31m text\x07 \u202e", "red", "red text ⟨U+202E⟩"),
        ("ẞẞẞẞ and Straße", "strasse", "ẞẞẞẞ and Straße"),
    ],
)
def test_snippet_is_one_sanitized_line_around_the_match(text, wanted, snippet):
    found = find_match([(SearchField.ANSWER, text)], wanted.casefold())
    assert found == SearchMatch(SearchField.ANSWER, snippet)
    assert len(snippet) <= 120
