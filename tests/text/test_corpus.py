"""Corpus: what it reads, that it can be read again, how it is split."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from firth.errors import ArgumentError, CorpusError, EncodingError
from firth.text.corpus import part_of, read_corpus
from firth.tokens.build import open_store
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.train import train_tokenizer
from tests.command import firth

DOCUMENTS = [
    ["今天天气很好，我们去公园里玩了一整天。", "他说：“明天见！”"],
    ["自然语言处理是计算机科学的一个重要方向。", "语言模型给每个句子一个概率。"],
    ["中国的首都是北京，上海是最大的城市之一。"],
] * 20
TEXT = "\n\n".join("\n".join(document) for document in DOCUMENTS) + "\n"


def write_jsonl(path: Path) -> None:
    rows = [json.dumps({"id": n, "text": "\n".join(d)}, ensure_ascii=n % 2 == 0) for n, d in enumerate(DOCUMENTS)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def write_parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": ["\n".join(document) for document in DOCUMENTS]}), path)


FORMS: dict[str, Callable[[Path], object]] = {
    "a.txt": lambda path: path.write_bytes(TEXT.encode()),
    "bom.txt": lambda path: path.write_bytes(b"\xef\xbb\xbf" + TEXT.encode()),
    "crlf.txt": lambda path: path.write_bytes(TEXT.replace("\n", "\r\n").encode()),
    "gb.txt": lambda path: path.write_bytes(TEXT.encode("gb18030")),
    "utf16.txt": lambda path: path.write_bytes(TEXT.encode("utf-16")),
    "a.txt.gz": lambda path: path.write_bytes(gzip.compress(TEXT.encode())),
    "a.txt.bz2": lambda path: path.write_bytes(bz2.compress(TEXT.encode())),
    "a.txt.xz": lambda path: path.write_bytes(lzma.compress(TEXT.encode())),
    "a.txt.zst": lambda path: path.write_bytes(zstandard.compress(TEXT.encode())),
    "a.jsonl": write_jsonl,
    "a.parquet": write_parquet,
}


def test_every_form_of_a_text_gives_the_same_store(tmp_path: Path) -> None:
    words = train_tokenizer(TokenizerRecipe(model="words"), read_corpus(DOCUMENTS))
    stores = {}
    for name, write in FORMS.items():
        write(tmp_path / name)
        corpus = read_corpus(tmp_path / name)
        assert corpus.layout == "lines"
        stores[name] = open_store(corpus, words).info
    assert len({facts.to_json() for facts in stores.values()}) == 1
    assert stores["a.txt"].documents == len(DOCUMENTS)


def test_big5_and_latin_1_are_read_and_reported(tmp_path: Path) -> None:
    traditional = "今天天氣很好，我們去公園裡玩了一整天。他說明天再見，大家都同意了。\n" * 30
    french = "L'été dernier, nous avons visité le château de Chambord près de la forêt.\n" * 30
    (tmp_path / "big5.txt").write_bytes(traditional.encode("big5"))
    (tmp_path / "latin.txt").write_bytes(french.encode("latin-1"))
    corpus = read_corpus(tmp_path / "big5.txt", tmp_path / "latin.txt")
    assert list(corpus.encodings().values()) == ["big5", "latin-1"]
    texts = [document.text for document in corpus.raw_documents()]
    assert texts == [traditional.strip(), french.strip()]


def test_a_wrong_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT.encode("gb18030"))
    with pytest.raises(EncodingError, match="utf-8"):
        list(read_corpus(tmp_path / "a.txt", encoding="utf-8"))


def test_folders_globs_and_several_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "sub/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}\n")
    everything = ["text of a.txt", "text of b.txt", "text of sub/c.txt"]
    assert list(read_corpus(tmp_path).sentences()) == everything
    assert list(read_corpus(tmp_path / "*.txt").sentences()) == everything[:2]
    assert list(read_corpus(tmp_path / "b.txt", tmp_path / "a.txt").sentences()) == [everything[1], everything[0]]


def test_standard_input() -> None:
    outcome = firth("check", "-", "--json", stdin=b"one two\nthree\n\nfour\n")
    assert outcome.code == 0, outcome.err
    assert (outcome.json["documents"], outcome.json["sentences"], outcome.json["words"]) == (2, 3, 4)


def test_a_generator_can_be_read_again() -> None:
    def items() -> Iterator[str | list[str]]:
        yield "first document"
        yield "second one\nwith two lines"

    corpus = read_corpus(items())
    assert list(corpus.sentences()) == list(corpus.sentences()) == ["first document", "second one", "with two lines"]
    assert corpus.key() == read_corpus(["first document", "second one\nwith two lines"]).key()


def test_iterables_are_checked_as_files_are() -> None:
    with pytest.raises(EncodingError, match=r"item 1.*NUL"):
        list(read_corpus(["fine", "not\0fine"]))
    with pytest.raises(CorpusError, match="no text"):
        read_corpus([])
    with pytest.raises(CorpusError, match="no corpus"):
        read_corpus()


@pytest.mark.parametrize("name", ["builtin:oracle", "builtin:oracle-chinese"])
def test_builtin_corpora_know_their_entropy(name: str) -> None:
    corpus = read_corpus(name)
    entropy = corpus.entropy()
    assert entropy is not None
    assert 0 < entropy["bits_per_byte"] < 2
    assert read_corpus(["plain text"]).entropy() is None
    assert firth("check", name, "--json").json["entropy"] == entropy


def test_parts_depend_on_the_text_alone() -> None:
    texts = [f"document number {number}" for number in range(3000)]
    train, valid, test = read_corpus(texts).parts(0.1, 0.2)
    found = [{document.sentences[0] for document in part} for part in (train, valid, test)]
    assert sum(map(len, found)) == 3000 == len(set.union(*found))
    assert len(found[1]) == pytest.approx(300, abs=60)
    assert len(found[2]) == pytest.approx(600, abs=80)
    for part, backwards in zip(found, read_corpus(texts[::-1] + texts).parts(0.1, 0.2), strict=True):
        assert {document.sentences[0] for document in backwards} == part
    assert len({part.key() for part in (train, valid, test)}) == 3


@given(st.text(), st.floats(0, 0.5), st.floats(0, 0.49))
def test_a_larger_share_only_takes_from_training(text: str, valid: float, test: float) -> None:
    if part_of(text, (valid, 0)) == "valid":
        assert part_of(text, (valid, test)) == "valid"


def test_a_single_document_is_split_by_its_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"This is line number {number}." for number in range(300)]
    (tmp_path / "one.txt").write_text("\n".join(lines))
    parts = read_corpus(tmp_path / "one.txt").parts(0.1, 0.2)
    assert capsys.readouterr().err.count("the lines are split") == 1
    found = [list(part.sentences()) for part in parts]
    assert sorted(chain.from_iterable(found)) == sorted(lines)
    assert [len(sentences) for sentences in found] == pytest.approx([210, 30, 60], abs=20)
    assert all(sentences == sorted(sentences, key=lines.index) for sentences in found), "in the order of the text"
    assert [len(list(part)) for part in parts] == [1, 1, 1], "each part is one document"
    assert len({part.key() for part in parts}) == 3


def test_a_long_document_keeps_its_pieces_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firth.text.readers.PIECE", 40)
    one, two = (["\n".join(f"document {name} line {number}" for number in range(40))] for name in "ab")
    for part in read_corpus(one + two).parts(0.4, 0.4):
        documents = [document.continues for document in part]
        assert documents.count(False) == 2
        assert documents.count(True) > 2


def test_wrapped_lines_are_split_by_sentences() -> None:
    text = "\n".join(f"Sentence {number} begins here and goes on\nto its end in the next line." for number in range(80))
    corpus = replace(read_corpus([text]), chosen_layout="wrapped")
    found = [set(part.sentences()) for part in corpus.parts(0.2, 0.2)]
    assert set.union(*found) == set(corpus.sentences())
    assert sum(map(len, found)) == 80


def test_an_empty_part_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    parts = read_corpus(["one line"]).parts()
    assert [list(part.sentences()) for part in parts] == [["one line"], [], []]
    assert capsys.readouterr().err == "the valid part is empty: give more text, or a larger fraction.\n"
    assert list(read_corpus(["one line"]).parts(0, 0)[0].sentences()) == ["one line"]
    assert capsys.readouterr().err == ""


def test_a_corpus_prints_where_it_is_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("a\n")
    assert repr(read_corpus("a.txt")) == "<Corpus: source a.txt, layout auto>"
    assert repr(read_corpus("builtin:oracle").parts()[1]) == "<Corpus: source builtin:oracle, part valid, layout lines>"
    assert repr(read_corpus(["text"] * 100_000)) == "<Corpus: source a list, layout auto>"


@pytest.mark.parametrize("given", [None, 3])
def test_what_is_no_text_is_refused(given: Any) -> None:
    with pytest.raises(ArgumentError, match=f"not {given}: name a file"):
        read_corpus(given)


def test_splitting_a_part_or_leaving_nothing_is_refused() -> None:
    corpus = read_corpus([f"document {number}" for number in range(200)])
    with pytest.raises(CorpusError, match="already"):
        corpus.parts()[0].parts()
    with pytest.raises(CorpusError, match="below 1"):
        corpus.parts(0.5, 0.5)


def test_words_in_both_languages() -> None:
    corpus = read_corpus(["x"])
    assert corpus.words("It wasn't 3.14, ok?") == ["It", "wasn't", "3.14", ",", "ok", "?"]
    assert corpus.words("我们喜欢自然语言处理。") == ["我们", "喜欢", "自然语言", "处理", "。"]


def test_memory_stays_flat(tmp_path: Path) -> None:
    """Reading 60 MB of documents and one 20 MB document keeps less than 25 MB of Python objects."""
    import tracemalloc

    path = tmp_path / "large.txt"
    with open(path, "w") as file:
        for number in range(300_000):
            file.write(f"a sentence of document number {number} that is followed by a blank line\n")
            file.write("\n" if number < 200_000 else "")
    tracemalloc.start()
    documents = sum(not document.continues for document in read_corpus(path, layout="lines").raw_documents())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert documents == 200_001
    assert peak < 25e6


@pytest.mark.shared
def test_real_layouts(shared_data: Path) -> None:
    assert read_corpus(shared_data / "lm/ptb.train.txt.gz").layout == "lines"
    assert read_corpus(shared_data / "lm/wiki_en.txt.gz").layout == "prose"
    assert read_corpus(shared_data / "lm/wiki_zh.txt.gz").layout == "prose"
