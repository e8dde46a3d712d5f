"""Columns of token stores: capitals, phrases and entities by hand in two languages, digests, damage, bad gazetteers."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.errors import FirthError, StoreError
from firth.text import corpus as corpus_module
from firth.text.corpus import read_corpus
from firth.tokens.build import open_store, open_tokens
from firth.tokens.columns import BEGINS, OUTSIDE
from firth.tokens.gazetteer import Gazetteer, read_gazetteer
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import FILES, TokenStore
from firth.tokens.structure import make_columns
from firth.tokens.tokenizer import Tokenizer

NAMES = ("capitals", "phrases", "entities")
RECIPE = TokenizerRecipe(model="wordpiece", vocab_size=400, lowercase=True, min_count=1)
ENGLISH = [
    *["We went to New York by train .", "She saw New York at night .", "Then it rained ."] * 8,
    *["He likes green tea and bread .", "They like bread and the sea .", "Anna Karenina sat in the garden ."] * 6,
    *[f"a word number {number} is here ." for number in range(500)],
]
CHINESE = ["我们在北京大学读书。", "他住在上海的巴黎饭店。", "自然语言很有意思。"] * 8


def tokens_of(lines: list[str], *names: str, gazetteer: Gazetteer | None = None) -> tuple[Tokenizer, TokenStore]:
    return open_tokens(RECIPE, read_corpus([lines]), columns=make_columns(names, gazetteer))


def spans(tokenizer: Tokenizer, store: TokenStore, name: str) -> set[str]:
    """The texts of the spans of a column."""
    values, found = store.columns[name], set()
    for begin in np.flatnonzero(values == BEGINS).tolist():
        end = begin + 1
        while end < values.size and values[end] not in (BEGINS, OUTSIDE):
            end += 1
        found.add(tokenizer.decode(store.ids[begin:end].tolist()))
    return found


def test_a_store_without_columns_is_as_before() -> None:
    """Its files and its digest do not depend on columns that others require, and neither do ids with columns."""
    _, plain = tokens_of(ENGLISH)
    assert set(plain.info.files) == set(FILES)
    assert plain.columns == {}
    _, rich = tokens_of(ENGLISH, *NAMES)
    assert sorted(rich.columns) == sorted(NAMES)
    assert rich.digest != plain.digest
    assert {name: rich.info.files[name] for name in FILES} == plain.info.files
    assert tokens_of(ENGLISH)[1].digest == plain.digest


@pytest.mark.parametrize("lines", [ENGLISH, CHINESE], ids=["english", "chinese"])
def test_both_ways_to_build_a_store_agree(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tokenizer of the same pass and with a given one, in one process and in workers."""
    tokenizer, store = tokens_of(lines, *NAMES)
    for block in (1 << 20, 50):
        monkeypatch.setattr(corpus_module, "BLOCK", block)
        monkeypatch.setenv("FIRTH_CACHE", str(store.folder.parents[1] / f"other-{block}"))
        again = open_store(read_corpus([lines]), tokenizer, 2, make_columns(NAMES))
        assert again.digest == store.digest


def test_capitals_are_those_of_the_text() -> None:
    tokenizer, store = tokens_of(ENGLISH, "capitals")
    found = dict(zip(tokenizer.tokenize(ENGLISH[0]), store.columns["capitals"].tolist(), strict=False))
    assert found == {"we": 1, "went": 0, "to": 0, "new": 1, "york": 1, "by": 0, "train": 0, ".": 0}


def test_capitals_of_words_of_several_tokens() -> None:
    recipe = TokenizerRecipe(model="wordpiece", vocab_size=30, lowercase=True, min_count=1)
    tokenizer, store = open_tokens(recipe, read_corpus([["abc Cab-bac X3 éa Éa"]]), columns=make_columns(["capitals"]))
    expected = [flag for word, flag in (("abc", 0), ("cab", 1), ("-", 1), ("bac", 1), ("x3", 1), ("éa", 0), ("éa", 1))
                for _ in tokenizer.tokenize(word)]  # fmt: skip
    assert store.columns["capitals"].tolist() == expected


def test_phrases_are_collocations() -> None:
    tokenizer, store = tokens_of(ENGLISH, "phrases")
    assert "new york" in spans(tokenizer, store, "phrases")
    assert not any("." in one or "bread and" in one for one in spans(tokenizer, store, "phrases"))


def test_a_text_without_phrases_or_entities_has_none() -> None:
    _, store = tokens_of([f"word{number} is {number}" for number in range(30)], *NAMES)
    assert not any(values.any() for values in store.columns.values())


def test_entities_are_capitalised_words() -> None:
    """Not single letters; the first word of a sentence only if it is capitalised elsewhere, too."""
    tokenizer, store = tokens_of([*ENGLISH, "So I met Anna .", "New friends came ."], "entities")
    found = spans(tokenizer, store, "entities")
    assert {"new york", "anna"} <= found
    assert not found & {"i", "we", "she", "then", "he", "they", "so", "."}
    assert "anna karenina" in found, "anna is a name within another sentence"


def test_chinese_entities_are_names_of_the_dictionary() -> None:
    tokenizer, store = tokens_of(CHINESE, "entities")
    assert {"北京大学", "上海", "巴黎"} <= {one.replace(" ", "") for one in spans(tokenizer, store, "entities")}


def test_the_longest_entry_of_a_gazetteer_precedes() -> None:
    """It may cut segmented words, and the names that it cuts are given up."""
    given = Gazetteer(("大学", "北京大学读", "语言", "巴黎饭店"))
    tokenizer, store = tokens_of(CHINESE, "entities", gazetteer=given)
    found = {one.replace(" ", "") for one in spans(tokenizer, store, "entities")}
    assert {"北京大学读", "语言", "巴黎饭店"} <= found
    assert not found & {"大学", "北京大学", "巴黎"}


def test_english_entries_are_whole_words() -> None:
    tokenizer, store = tokens_of([*ENGLISH, "seaside sea"] * 3, "entities", gazetteer=Gazetteer(("sea", "Green tea")))
    assert {"green tea", "sea"} <= spans(tokenizer, store, "entities")
    sentence = store.sentence(len(ENGLISH)).tolist()
    begin = int(store.sentences[len(ENGLISH)])
    count = len(tokenizer.tokenize("seaside"))
    values = store.columns["entities"][begin : begin + len(sentence)]
    assert not values[:count].any(), "sea is not in seaside"
    assert values[count] == BEGINS


def test_another_gazetteer_makes_another_store() -> None:
    stores = [tokens_of(CHINESE, "entities", gazetteer=one)[1] for one in (None, Gazetteer(("自然",)))]
    assert stores[0].info.files["ids.bin"] == stores[1].info.files["ids.bin"]
    assert stores[0].digest != stores[1].digest


def test_a_damaged_column_is_found_and_made_again() -> None:
    tokenizer, store = tokens_of(ENGLISH, *NAMES)
    path = store.folder / "phrases.uint8.bin"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"phrases\.uint8\.bin has changed"):
        TokenStore(store.folder).verify()
    path.write_bytes(data[:-1])
    with pytest.raises(StoreError, match=r"phrases\.uint8\.bin has \d+ bytes"):
        TokenStore(store.folder)
    again = open_store(read_corpus([ENGLISH]), tokenizer, columns=make_columns(NAMES))
    again.verify()
    assert again.digest == store.digest


def test_unknown_files_of_a_store_are_refused() -> None:
    _, store = tokens_of(ENGLISH)
    from dataclasses import replace

    for name in ("x.float.bin", "../x.uint8.bin", "x.bin", "a.uint8.bin.bin"):
        info = replace(store.info, files=store.info.files | {name: "0"})
        with pytest.raises(ValueError, match="names of its files"):
            info.check_types()


def test_a_gazetteer_is_lines_or_triples(tmp_path: Path) -> None:
    lines = tmp_path / "names.txt"
    lines.write_text("New York\n\n 北京 \nNew York\n", encoding="utf-8-sig")
    assert read_gazetteer(lines).entries == ("New York", "北京")
    triples = tmp_path / "graph.spo.gz"
    triples.write_bytes(gzip.compress("糖尿病\t症状\t口渴\n口渴\t是\t症状\n".encode()))
    assert read_gazetteer(str(triples)).entries == ("糖尿病", "口渴", "症状")


BAD: list[tuple[str, bytes | None, str]] = [
    ("none.txt", None, "no such file"),
    ("empty.txt", b"", "holds no entity"),
    ("blank.txt", b" \n\n", "holds no entity"),
    ("binary.txt", b"a\0b", "NUL|not"),
    ("two.spo", b"a\tb\n", "line 1 of .* has 2 columns"),
    ("broken.gz", b"no gzip", "gz"),
    (".", None, "no text in the folder"),
]


@pytest.mark.parametrize(("name", "data", "message"), BAD)
def test_bad_gazetteers(name: str, data: Any, message: str, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(FirthError, match=message):
        read_gazetteer(tmp_path / name)
