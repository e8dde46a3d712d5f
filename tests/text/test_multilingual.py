"""Texts of several languages, and parallel text among them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from firth.errors import CorpusError
from firth.text.multilingual import MultilingualCorpus, read_multilingual


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("the dog\nthe cat\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("狗\n", encoding="utf-8")
    (tmp_path / "p.tsv").write_text("en\tzh\na fox\t一只狐狸\na cow\t一头牛\n", encoding="utf-8")
    return tmp_path


def read(folder: Path, *names: str) -> MultilingualCorpus:
    return read_multilingual(*(name.replace("/", f"{folder}/") for name in names), layout="lines")


def sentences(corpus: MultilingualCorpus, with_sides: bool) -> dict[str, list[str]]:
    texts = corpus.monolingual(with_sides=with_sides)
    return {text.languages[0]: list(text.corpus.sentences()) for text in texts}


def test_files_have_the_language_before_them_and_pairs_in_their_header(folder: Path) -> None:
    corpus = read(folder, "en=/a.txt", "zh=/b.txt", "/p.tsv")
    assert corpus.languages == ("en", "zh")
    assert [text.languages for text in corpus.texts] == [("en",), ("zh",), ("en", "zh")]
    assert list(corpus.sentences()) == ["the dog", "the cat", "狗", "a fox", "一只狐狸", "a cow", "一头牛"]
    assert corpus.describe()["languages"] == ["en", "zh"]


def test_sides_of_pairs_are_texts_of_their_languages(folder: Path) -> None:
    corpus = read(folder, "en=/a.txt", "/p.tsv")
    assert sentences(corpus, True) == {"en": ["the dog", "the cat", "a fox", "a cow"], "zh": ["一只狐狸", "一头牛"]}
    assert sentences(corpus, False) == {"en": ["the dog", "the cat"], "zh": ["一只狐狸", "一头牛"]}


def test_which_text_is_in_which_language_determines_the_key(folder: Path) -> None:
    one, two = read(folder, "en=/a.txt", "zh=/b.txt"), read(folder, "zh=/a.txt", "en=/b.txt")
    assert one.key() != two.key()
    assert one.key() == read(folder, "en=/a.txt", "zh=/b.txt").key()


@pytest.mark.parametrize(("alpha", "expected"), [(1.0, 0.9), (0.5, 0.75), (0.0, 0.5)])
def test_the_vocabulary_is_of_text_sampled_by_a_power(alpha: float, expected: float) -> None:
    """Of 90 % and 10 % of the lines, 0.5 makes 75 % and 25 %: sqrt(0.9) / (sqrt(0.9) + sqrt(0.1))."""
    large, small = [f"a {n}" for n in range(9000)], [f"b {n}" for n in range(1000)]
    corpus = read_multilingual({"en": [large], "de": [small]}, alpha=alpha)
    found = Counter(sentence[0] for sentence in corpus.vocabulary_sample().sentences())
    assert found["a"] / found.total() == pytest.approx(expected, abs=0.015)
    assert found["b"] == 1000  # nothing is left out of the smaller text


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["/a.txt"], r"the language of .*a\.txt is not said: write it before the file, such as en=a\.txt"),
        (["en=/a.txt", "en=/b.txt"], r"en is given twice: .* \(en='news/\*\.txt'\)"),
        (["en=/a.txt", "builtin:pydoc"], "the language of builtin:pydoc is not said"),
        (["en=/a.txt", "/none.tsv"], "none.tsv"),
        (["/same.tsv"], "both columns of .*same.tsv are called en"),
        ([], "no corpus was given"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(folder: Path, names: list[str], message: str) -> None:
    (folder / "same.tsv").write_text("en\ten\na\tb\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=message) as error:
        read(folder, *names)
    assert "\n" not in str(error.value)
