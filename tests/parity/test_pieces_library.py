"""Unigram pieces are at least as good as those of the `tokenizers` library's trainer on the same words.

Its trainer counts substrings in the list of distinct words, ours (as SentencePiece does) in the text, so that frequent
words become pieces even where no other word holds them. Ours therefore needs clearly fewer tokens on real text; where
every word occurs once the two start from the same counts and must come out alike.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from itertools import chain, islice, repeat
from pathlib import Path
from typing import NamedTuple

import pytest
import tokenizers
from tokenizers import models, trainers

from firth.text.corpus import read_corpus
from firth.tokens.pieces import learn_pieces
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.train import count_chunks, count_words

Pieces = list[tuple[str, float]]


class Quality(NamedTuple):
    """Per word: negative log-probability of the best segmentation, and its number of tokens."""

    cost: float
    tokens: float


def split_words(sentences: Iterable[str]) -> Mapping[str, int]:
    recipe = TokenizerRecipe(model="pieces", vocab_size=16_000, segmenter="space")
    return count_words(recipe, count_chunks(read_corpus([list(sentences)]), recipe, threads=1))


def library_pieces(words: Mapping[str, int], size: int) -> Pieces:
    backend = tokenizers.Tokenizer(models.Unigram())
    trainer = trainers.UnigramTrainer(
        vocab_size=size + 1, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    backend.train_from_iterator(chain.from_iterable(repeat(*item) for item in words.items()), trainer=trainer)
    return [(text, score) for text, score in json.loads(backend.to_str())["model"]["vocab"] if text != "<unk>"]


def measure(pieces: Pieces, words: Mapping[str, int]) -> Quality:
    model = models.Unigram([("<unk>", 0.0), *pieces], unk_id=0)
    scores = dict(pieces)
    cost, tokens = 0.0, 0
    for word, count in words.items():
        segmentation = [token.value for token in model.tokenize(word)]
        cost -= count * sum(scores[piece] for piece in segmentation)  # a KeyError would be an unknown character
        tokens += count * len(segmentation)
    return Quality(cost / sum(words.values()), tokens / sum(words.values()))


def compare(words: Mapping[str, int], size: int) -> tuple[Quality, Quality]:
    """The quality of our pieces and of the library's."""
    ours, theirs = learn_pieces(words, size), library_pieces(words, size)
    assert len(theirs) <= len(ours) <= size
    return measure(ours, words), measure(theirs, words)


def assert_as_good(ours: Quality, theirs: Quality) -> None:
    assert ours.cost <= 1.01 * theirs.cost
    assert ours.tokens <= 1.03 * theirs.tokens


def excerpt(name: str) -> Mapping[str, int]:
    return split_words(islice(read_corpus(name).sentences(), 8000))


@pytest.fixture
def pydoc_words(pydoc_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, int]:
    monkeypatch.setenv("FIRTH_CACHE", str(pydoc_cache))
    return excerpt("builtin:pydoc")


@pytest.mark.parametrize(("name", "size"), [("builtin:oracle", 150), ("builtin:oracle-chinese", 600)])
def test_as_good_as_the_library_on_sampled_text(name: str, size: int) -> None:
    assert_as_good(*compare(excerpt(name), size))


def test_as_good_as_the_library_on_documentation(pydoc_words: Mapping[str, int]) -> None:
    assert_as_good(*compare(pydoc_words, 2000))


def test_like_the_library_where_every_word_occurs_once(pydoc_words: Mapping[str, int]) -> None:
    ours, theirs = compare(dict.fromkeys(pydoc_words, 1), 2000)
    assert ours.cost == pytest.approx(theirs.cost, rel=0.05)
    assert ours.tokens == pytest.approx(theirs.tokens, rel=0.05)


@pytest.mark.shared
@pytest.mark.parametrize(("name", "size"), [("wiki_en", 4000), ("wiki_zh", 6000)])
def test_as_good_as_the_library_on_real_text(name: str, size: int, shared_data: Path) -> None:
    with gzip.open(shared_data / "lm" / f"{name}.txt.gz", "rt", encoding="utf-8") as file:
        words = split_words(islice(filter(str.strip, file), 3000))
    assert_as_good(*compare(words, size))
