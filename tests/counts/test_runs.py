"""Counting in runs on disk: equal to counting at once, in bounded memory, and nothing is left behind."""

from __future__ import annotations

import errno
import gc
import os
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.counts import counting
from firth.counts.counting import _FileSink, count_in_runs, count_store, estimate_bytes, split_sentences
from firth.counts.trie import Trie
from firth.errors import OutputError
from firth.tokens.store import FILES, FORMAT, StoreInfo, TokenStore
from tests.counts.test_merge import Sentences, assert_same, slow_count

V = 10


def make_store(folder: Path, text: Sentences) -> TokenStore:
    folder.mkdir(parents=True, exist_ok=True)
    ids = np.array([word for sentence in text for word in sentence], dtype=np.uint16)
    bounds = np.cumsum([0, *map(len, text)]).astype(np.uint64)
    ids.tofile(folder / "ids.bin")
    np.ones(ids.size, dtype=np.bool_).tofile(folder / "starts.bin")
    bounds.tofile(folder / "sentences.bin")
    np.array([0, len(text)], dtype=np.uint64).tofile(folder / "documents.bin")
    facts = StoreInfo(
        format=FORMAT, dtype="uint16", tokens=ids.size, words=ids.size, sentences=len(text), documents=1,
        bytes=0, unknown=0, corpus="", tokenizer="", files=dict.fromkeys(FILES, ""),
    )  # fmt: skip
    (folder / "store.json").write_text(facts.to_json())
    return TokenStore(folder)


def slowly(text: Sentences, order: int, vocabulary: int = V) -> Callable[[int, int], Trie]:
    return lambda begin, end: slow_count(text[begin:end], vocabulary, order)


def count(text: Sentences, order: int, memory: int, folder: Path) -> Trie:
    return count_in_runs(slowly(text, order), make_store(folder / "store", text), order, V, memory, folder / "runs")


def many_sentences(number: int, vocabulary: int = 200) -> Sentences:
    rng = np.random.default_rng(7)
    lengths = rng.integers(0, 12, number)
    return [(5 + (vocabulary - 5) * rng.random(length) ** 3).astype(int).tolist() for length in lengths]


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(5, V - 1), max_size=6), max_size=40),
    st.sampled_from([1, 2, 3, 8]),
    st.integers(0, 5000),
)
def test_runs_add_up_to_the_whole(text: Sentences, order: int, memory: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert_same(count(text, order, memory, Path(folder)), slow_count(text, V, order))


@pytest.mark.parametrize("memory", [0, 30_000, 100_000, 1 << 40])
def test_with_the_real_counter_and_any_limit(tmp_path: Path, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_MIN_SLOTS", 16)
    text = many_sentences(600)
    store = make_store(tmp_path / "store", text)
    trie = count_in_runs(lambda begin, end: count_store(store, 200, 4, begin, end), store, 4, 200, memory, tmp_path)
    assert_same(trie, count_store(store, 200, 4))
    assert_same(trie, slow_count(text, 200, 4))


def test_an_empty_store_and_a_store_of_one_word(tmp_path: Path) -> None:
    assert_same(count([], 3, 0, tmp_path / "empty"), slow_count([], V, 3))
    assert_same(count([[5]], 3, 0, tmp_path / "word"), slow_count([[5]], V, 3))


def test_parts_hold_as_much_as_fits() -> None:
    bounds = np.cumsum([0, 3, 1, 100, 0, 0, 2]).astype(np.uint64)
    ten_tokens = estimate_bytes(10, order=3, vocab_size=V)
    assert list(split_sentences(bounds, 3, V, ten_tokens)) == [(0, 2), (2, 3), (3, 6)]
    assert list(split_sentences(bounds, 3, V, 0)) == [(at, at + 1) for at in range(6)]
    assert list(split_sentences(bounds, 3, V, 1 << 40)) == [(0, 6)]
    for begin, end in split_sentences(bounds, 3, V, ten_tokens):
        tokens = int(bounds[end] - bounds[begin]) + 2 * (end - begin)
        assert end == begin + 1 or estimate_bytes(tokens, 3, V) <= ten_tokens


def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    memory = 1_000_000
    store = make_store(tmp_path / "store", many_sentences(25_000))
    count_store(store, 200, 5, 0, 10)  # compiled

    def count_part(begin: int, end: int) -> Trie:
        tokens = int(store.sentences[end] - store.sentences[begin]) + 2 * (end - begin)
        assert estimate_bytes(tokens, 5, 200) <= memory
        return count_store(store, 200, 5, begin, end)

    tracemalloc.start()
    trie = count_in_runs(count_part, store, 5, 200, memory, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(array.nbytes for array in (trie.words, trie.first, trie.links, trie.counts)) > 4 * memory
    assert peak < 1.3 * memory  # the limit, and what Python keeps for each open file


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_few_files_are_open_and_none_is_left(tmp_path: Path) -> None:
    text = many_sentences(300, V)
    store = make_store(tmp_path / "store", text)
    before, most = open_files(), 0

    def count_part(begin: int, end: int) -> Trie:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))
        return slow_count(text[begin:end], V, 3)

    trie = count_in_runs(count_part, store, 3, V, 0, tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []
    assert most - before <= 4 * 3 * counting._MAX_RUNS
    assert open_files() - before <= 4
    del trie
    assert open_files() <= before


def test_a_full_disk_is_said_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    def write(self: _FileSink, part: object) -> None:
        nonlocal written
        written += 1
        if written > 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(self, part)  # type: ignore[arg-type]

    original = _FileSink.write
    monkeypatch.setattr(_FileSink, "write", write)
    before = open_files()
    with pytest.raises(OutputError, match="disk is full"):
        count(many_sentences(50, V), 3, 0, tmp_path)
    assert list((tmp_path / "runs").iterdir()) == []
    assert open_files() <= before


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(OutputError, match="is a file"):
        count([[5]], 2, 0, tmp_path)


def test_parts_of_another_order_are_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [[5]])
    with pytest.raises(ValueError, match="order"):
        count_in_runs(slowly([[5]], 2), store, 3, V, 0, tmp_path)


def test_the_estimate_is_an_upper_one(tmp_path: Path) -> None:
    store = make_store(tmp_path, many_sentences(20_000))
    count_store(store, 200, 2)  # compiled
    tracemalloc.start()
    count_store(store, 200, 5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= estimate_bytes(len(store) + 2 * store.info.sentences, 5, 200)
