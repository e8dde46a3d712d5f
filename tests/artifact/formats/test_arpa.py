"""Writing and reading of ARPA files."""

from __future__ import annotations

import gzip
import random
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.artifact.formats import _arpa_kernels, _text_kernels, arpa, input_file
from firth.artifact.formats.arpa import Arpa, read_arpa, write_arpa
from firth.counts.counting import count_sentences
from firth.counts.trie import Trie, find_links
from firth.errors import ArtifactError, OutputError
from tests.artifact.formats.small_arpa import SMALL, SPECIALS, write

SENTENCES = [[5, 6, 7], [5, 6], [8, 5, 6, 7, 7]]
NAMES = [*SPECIALS, "the", "cat", "猫", "sat"]


def random_model(
    order: int = 3, seed: int = 0, sentences: Sequence[Sequence[int]] = SENTENCES
) -> tuple[Trie, Any, Any]:
    trie = count_sentences(sentences, vocab_size=len(NAMES), order=order)
    rng = np.random.default_rng(seed)
    logp = -rng.exponential(3, size=trie.words.size).astype(np.float32)
    logp[[0, 2, 4]] = -np.inf
    bow = rng.normal(size=trie.contexts)
    if bow.size:
        bow[[0, 4]] = 0
    return trie, logp, bow


def assert_same(one: Arpa, trie: Trie, logp: Any, bow: Any) -> None:
    for name in ("levels", "words", "first", "links"):
        assert np.array_equal(getattr(one.trie, name), getattr(trie, name)), name
    assert np.array_equal(one.logp, logp)
    assert np.allclose(one.bow, bow, rtol=1e-8, atol=0)


# Writing


def test_writes_a_model_line_by_line(tmp_path: Path) -> None:
    trie = count_sentences([[5, 5]], vocab_size=6, order=2)  # <s> a, a a, a </s>
    ten = np.log(10)
    logp = np.array([-np.inf, -3, -np.inf, -0.5, -np.inf, -1e-7, -0.25, -np.inf, -2 / 3]) * ten
    bow = np.array([0, 0, -np.inf, 0, 0, 0.125]) * ten
    assert write_arpa(tmp_path / "m.arpa", trie, logp, bow, [*SPECIALS, "a"]) == [4, 3]
    assert (tmp_path / "m.arpa").read_text() == (
        "\\data\\\nngram 1=4\nngram 2=3\n\n"
        "\\1-grams:\n-3\t<unk>\t0\n-99\t<s>\t-99\n-0.5\t</s>\t0\n-1e-07\ta\t0.125\n\n"
        "\\2-grams:\n-0.25\t<s> a\n-99\ta </s>\n-0.666666667\ta a\n\n\\end\\\n"
    )


def write_number(value: float) -> str:
    out = np.zeros(40, dtype=np.uint8)
    end = _arpa_kernels.write_number(out, 0, value)
    assert end <= _arpa_kernels.MAX_NUMBER_BYTES
    return bytes(out[:end]).decode()


@pytest.mark.parametrize(
    "value", [0.0, -99.0, -1.0, -9.99999999999, -0.1, 0.30103, -0.0001, -123.456, 1e-5, -5e-324, 99.5]
)
def test_numbers_are_written_like_c_does(value: float) -> None:
    assert write_number(value) == (f"{value:.9g}" if abs(value) > 1e-290 else "-0" if value < 0 else "0")


@given(st.floats(-400, 400))
def test_numbers_are_written_with_nine_digits(value: float) -> None:
    found = float(write_number(value))
    assert abs(found - value) <= 5.001e-9 * abs(value) or abs(value) < 1e-290


@given(st.floats(width=32, min_value=-200, max_value=0))
def test_digits_distinguish_float32_numbers(value: float) -> None:
    written = float(write_number(value / np.log(10)))
    assert np.float32(written * np.log(10)) == np.float32(value) or abs(value) < 1e-290


def parse_number(text: str) -> float:
    return float(_text_kernels.parse_number(np.frombuffer(text.encode(), dtype=np.uint8), 0, len(text.encode())))


@given(st.floats(-1e300, 1e300))
def test_numbers_are_read_as_python_reads_them(value: float) -> None:
    for text in (repr(value), f"{value:.7f}", f"{value:.4e}"):
        assert parse_number(text) == pytest.approx(float(text), rel=1e-15, abs=0)


@pytest.mark.parametrize("text", ["-1.", "+.5", "-0", "00012.5", "1e-400", "-1E+2", "9" * 400, "0." + "0" * 400 + "7"])
def test_unusual_numbers_are_read(text: str) -> None:
    assert parse_number(text) == pytest.approx(float(text), rel=1e-15)


NO_NUMBERS = [
    "nan",
    "inf",
    "-",
    "+",
    ".",
    "-.",
    "1e",
    "1e-",
    "1_0",
    "0x1",
    "--1",
    "1.2.3",
    "1e5e5",
    "١",
    "-infinity",
    "e5",
]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_other_text_is_no_number(text: str) -> None:
    assert np.isnan(parse_number(text))
    assert parse_number("-inf") == parse_number("-INF") == -np.inf


def test_gzip_files_hold_the_same(tmp_path: Path) -> None:
    trie, logp, bow = random_model()
    write_arpa(tmp_path / "m.arpa", trie, logp, bow, NAMES)
    write_arpa(tmp_path / "m.arpa.gz", trie, logp, bow, NAMES)
    compressed = (tmp_path / "m.arpa.gz").read_bytes()
    plain = (tmp_path / "m.arpa").read_bytes()
    assert gzip.decompress(compressed) == plain
    assert struct.unpack("<I", compressed[-4:]) == (len(plain),)
    write_arpa(tmp_path / "again.arpa.gz", trie, logp, bow, NAMES)
    assert (tmp_path / "again.arpa.gz").read_bytes() == compressed
    assert_same(read_arpa(tmp_path / "m.arpa.gz"), trie, logp, bow)


def test_spaces_become_symbols_and_other_white_space_is_refused(tmp_path: Path) -> None:
    trie, logp, bow = random_model()
    names = [*SPECIALS, "a", " ", "new york", "b"]
    write_arpa(tmp_path / "m.arpa", trie, logp, bow, names)
    assert read_arpa(tmp_path / "m.arpa").vocabulary == [*SPECIALS, "a", "▁", "new▁york", "b"]
    for bad in ("", "a\tb", "\n", "x\0", "\r", "\v"):
        with pytest.raises(OutputError, match=re.escape(repr(bad))):
            write_arpa(tmp_path / "bad.arpa", trie, logp, bow, [*SPECIALS, "a", "b", "c", bad])
    for twice in (["a", "▁", " ", "b"], ["a", "b", "<s>", "c"], ["<UNK>", "a", "b", "c"]):
        with pytest.raises(OutputError, match="both be written"):
            write_arpa(tmp_path / "bad.arpa", trie, logp, bow, [*SPECIALS, *twice])
    assert not (tmp_path / "bad.arpa").exists()


def test_special_tokens_have_the_names_of_the_format(tmp_path: Path) -> None:
    trie, logp, bow = random_model()
    write_arpa(tmp_path / "m.arpa", trie, logp, bow, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NAMES[5:]])
    assert read_arpa(tmp_path / "m.arpa").vocabulary == NAMES


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.1])
def test_invalid_log_probabilities_are_not_written(tmp_path: Path, bad: float) -> None:
    trie, logp, bow = random_model()
    logp[7] = bad
    with pytest.raises(OutputError, match="invalid log-probabilities"):
        write_arpa(tmp_path / "m.arpa", trie, logp, bow, NAMES)
    assert not list(tmp_path.iterdir())


# Both ways


@given(
    st.lists(st.lists(st.integers(5, 8), max_size=8), min_size=1, max_size=6),
    st.integers(2, 5),
    st.integers(0, 100),
)
@settings(max_examples=50)
def test_reads_what_it_wrote(tmp_path_factory: Any, sentences: list[list[int]], order: int, seed: int) -> None:
    sentences.append([5] * order)  # so that no level is empty
    trie, logp, bow = random_model(order, seed, sentences)
    path = tmp_path_factory.mktemp("arpa") / "m.arpa"
    write_arpa(path, trie, logp, bow, NAMES)
    found = read_arpa(path)
    assert found.vocabulary == NAMES
    assert_same(found, trie, logp, bow)
    assert not found.trie.counts.any()


def test_single_words_get_an_empty_section_of_pairs(tmp_path: Path) -> None:
    trie, logp, bow = random_model(order=1)
    assert write_arpa(tmp_path / "m.arpa", trie, logp, bow, NAMES) == [7, 0]
    found = read_arpa(tmp_path / "m.arpa")
    assert found.trie.levels.tolist() == [0, 9, 9]
    assert np.array_equal(found.logp, logp)


def test_many_blocks_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    trie, logp, bow = random_model(4, 1, rng.integers(5, 9, size=(30, 9)).tolist())
    write_arpa(tmp_path / "one.arpa", trie, logp, bow, NAMES)
    monkeypatch.setattr(arpa, "_BLOCK", 3)
    monkeypatch.setattr(input_file, "_BLOCK", 37)
    write_arpa(tmp_path / "many.arpa", trie, logp, bow, NAMES)
    assert (tmp_path / "many.arpa").read_bytes() == (tmp_path / "one.arpa").read_bytes()
    assert_same(read_arpa(tmp_path / "many.arpa"), trie, logp, bow)
    lines = (tmp_path / "one.arpa").read_text().split("\n")
    index = lines.index("\\3-grams:") + 20
    lines[index] = "?" + lines[index]
    with pytest.raises(ArtifactError, match=f"line {index + 1}:"):
        read_arpa(write(tmp_path, "\n".join(lines)))


# Reading


def test_reads_a_small_file(tmp_path: Path) -> None:
    found = read_arpa(write(tmp_path, SMALL))
    trie = found.trie
    assert found.vocabulary == [*SPECIALS, "a", "b"]
    assert found.sizes == [5, 4, 1]
    assert [trie.ngram(node) for node in range(7, 12)] == [[2, 5], [5, 3], [5, 6], [6, 3], [2, 5, 6]]
    log10 = found.logp / np.log(10)
    assert log10[:7] == pytest.approx([-np.inf, -0.69897, -np.inf, -0.60206, -np.inf, -0.60206, -0.522879])
    assert log10[7:] == pytest.approx([-0.1249387, -0.7781513, -0.30103, -0.2, -0.2])
    assert found.bow / np.log(10) == pytest.approx([0, 0, -0.30103, 0, 0, -0.176091, 0, 0, 0, 0, 0])
    assert trie.links[[7, 9, 11]].tolist() == [5, 6, 9]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\t", " "),
        lambda text: text.replace(" b", "\tb"),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.replace("\n-", "\n  -"),
        lambda text: text.rstrip(),
        lambda text: "\ufeff" + text.lstrip(),
        lambda text: text.replace("ngram 1=5", "ngram 1 =  5"),
        lambda text: text.replace("<unk>", "<UNK>"),
        lambda text: text.replace("-99\t<s>", "0\t<s>"),
        lambda text: text.replace("-99", "-inf"),
        lambda text: text.replace("<s> a b", "<s> a b\t0"),
    ],
)  # fmt: skip
def test_ways_of_writing_make_no_difference(tmp_path: Path, change: Any) -> None:
    plain = read_arpa(write(tmp_path, SMALL))
    other = read_arpa(write(tmp_path, change(SMALL)))
    assert other.vocabulary == plain.vocabulary
    assert_same(other, plain.trie, plain.logp, plain.bow)


def test_the_order_of_lines_makes_no_difference(tmp_path: Path) -> None:
    trie, logp, bow = random_model(4)
    write_arpa(tmp_path / "m.arpa", trie, logp, bow, NAMES)
    head, *sections = (tmp_path / "m.arpa").read_text().split("\n\n")
    rng = random.Random(0)
    for index, section in enumerate(sections[1:-1], 1):
        title, *lines = section.split("\n")
        rng.shuffle(lines)
        sections[index] = "\n".join([title, *lines])
    assert_same(read_arpa(write(tmp_path, "\n\n".join([head, *sections]))), trie, logp, bow)


def test_without_unknown_words_the_vocabulary_is_closed(tmp_path: Path) -> None:
    text = SMALL.replace("-0.69897\t<unk>\n", "").replace("ngram 1=5", "ngram 1=4")
    found = read_arpa(write(tmp_path, text))
    assert found.vocabulary == [*SPECIALS, "a", "b"]
    assert found.logp[1] == -np.inf
    with pytest.raises(ArtifactError, match="line 17: the word '<unk>' is not among the 1-grams"):
        read_arpa(write(tmp_path, text.replace("b </s>", "b <unk>")))


def test_the_unknown_word_has_two_names(tmp_path: Path) -> None:
    for unigram, bigram in (("<unk>", "<UNK>"), ("<UNK>", "<unk>")):
        text = SMALL.replace("<unk>", unigram).replace("b </s>", f"b {bigram}")
        trie = read_arpa(write(tmp_path, text)).trie
        assert trie.find([6, 1]) is not None


def test_the_beginning_is_never_predicted(tmp_path: Path) -> None:
    found = read_arpa(write(tmp_path, SMALL.replace("b </s>", "b <s>")))
    assert found.logp[found.trie.find([6, 2])] == -np.inf


def test_missing_suffixes_are_skipped(tmp_path: Path) -> None:
    text = SMALL.replace("-0.30103\ta b\n", "").replace("ngram 2=4", "ngram 2=3")
    trie = read_arpa(write(tmp_path, text)).trie
    assert trie.links[trie.find([2, 5, 6])] == 6  # "a b" is gone, so "b" is next
    assert np.array_equal(trie.links, find_links(trie.levels, trie.words, trie.first))


@pytest.mark.parametrize("small", ["1e-7", "0", "-0", "1e-400"])
def test_rounding_above_zero_is_taken_for_zero(tmp_path: Path, small: str) -> None:
    found = read_arpa(write(tmp_path, SMALL.replace("-0.2\t<s> a b", f"{small}\t<s> a b")))
    assert found.logp[-1] == 0
