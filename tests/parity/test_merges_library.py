"""Tokens, merges and ids are those of the tokenizers library's trainers."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from firth.text.oracle import builtin_documents
from firth.tokens.merges import extend_merges, learn_merges
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import make_backend

BpeModel = tuple[list[str], list[tuple[str, str]]]
PRIVATE = 0xF0000  # code points that no text has


def library_bpe(words: dict[str, int], size: int, **options: Any) -> BpeModel:
    """Tokens and merges of `BpeTrainer` for words with counts; no word contains a space."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    lines = (" ".join([word] * count) for word, count in words.items())
    backend.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, show_progress=False, **options))
    return read_model(backend)


def read_model(backend: Tokenizer) -> BpeModel:
    model = json.loads(backend.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(pair) for pair in model.get("merges", [])]


def blank(kind: str) -> Tokenizer:
    model = models.WordPiece(unk_token="[UNK]") if kind == "wordpiece" else models.BPE()
    return make_backend(model, TokenizerRecipe(model=kind, vocab_size=3000))  # type: ignore[arg-type]


def count_words(backend: Tokenizer, lines: list[str]) -> Counter[str]:
    words: Counter[str] = Counter()
    for line in lines:
        normal = backend.normalizer.normalize_str(line)
        words.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal))
    return words


@pytest.fixture(scope="module")
def lines(pydoc_cache: Path) -> list[str]:
    names = ("pydoc", "oracle", "oracle-chinese")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(pydoc_cache))
        found = [one for name in names for one in islice(builtin_documents(name), 150)]
    return [line for one in found for line in one.text.splitlines()]


def assert_same_training(kind: str, lines: list[str], size: int) -> None:
    """The library reads the lines themselves, so counting the words is compared too."""
    backend = blank(kind)
    alphabet = pre_tokenizers.ByteLevel.alphabet() if kind == "byte-bpe" else []
    found = learn_merges(count_words(backend, lines), size, alphabet=alphabet, min_count=2)
    options: dict[str, Any] = {"initial_alphabet": alphabet, "special_tokens": ["<s>"], "show_progress": False}
    backend.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size + 1, min_frequency=2, **options))
    tokens, merges = read_model(backend)
    assert found == (tokens[1:], merges)
    assert len(merges) > 500


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe"])
@pytest.mark.parametrize("size", [1500, 6000])
def test_builtin_text(kind: str, size: int, lines: list[str]) -> None:
    assert_same_training(kind, lines, size)


@pytest.mark.shared
@pytest.mark.parametrize("kind", ["bpe", "byte-bpe"])
@pytest.mark.parametrize("name", ["wiki_en", "wiki_zh"])
def test_real_text(kind: str, name: str, shared_data: Path) -> None:
    assert_same_training(kind, real_lines(shared_data, name), 8000)


def real_lines(shared_data: Path, name: str) -> list[str]:
    with gzip.open(shared_data / f"lm/{name}.txt.gz", "rt", encoding="utf-8") as file:
        return list(islice((line.strip() for line in file if line.strip()), 3000))


WORDS = st.dictionaries(st.text("abc", min_size=1, max_size=20), st.integers(1, 5), min_size=1, max_size=8)


@given(WORDS, st.integers(3, 60), st.integers(1, 3))
def test_words_that_repeat_themselves(words: dict[str, int], size: int, min_count: int) -> None:
    assert learn_merges(words, size, min_count=min_count) == library_bpe(words, size, min_frequency=min_count)


def test_wordpiece_is_pair_encoding_of_renamed_characters(lines: list[str]) -> None:
    """The library numbers prefixed characters randomly; renamed in our order they give the same result."""
    words = count_words(blank("wordpiece"), lines)
    inner = sorted({character for word in words for character in word[1:]})
    renamed = {character: chr(PRIVATE + index) for index, character in enumerate(inner)}
    renamed_words = {word[0] + "".join(renamed[character] for character in word[1:]): n for word, n in words.items()}
    names = {ord(new): old for old, new in renamed.items()}

    def restore(token: str) -> str:
        return ("##" if ord(token[0]) >= PRIVATE else "") + token.translate(names)

    alphabet = sorted({character for word in words for character in word})
    tokens, merges = library_bpe(renamed_words, 4000, initial_alphabet=alphabet, min_frequency=2)
    found = learn_merges(words, 4000, prefix="##", min_count=2)
    assert found == ([restore(token) for token in tokens], [(restore(a), restore(b)) for a, b in merges])


def wordpiece_vocabularies(lines: list[str], size: int, min_count: int) -> tuple[Counter[str], set[str], set[str]]:
    """The words of the lines, our tokens and those of `WordPieceTrainer`, which differ from run to run."""
    theirs = blank("wordpiece")
    words = count_words(theirs, lines)
    trainer = trainers.WordPieceTrainer(vocab_size=size, min_frequency=min_count, show_progress=False)
    theirs.train_from_iterator(lines, trainer)
    return words, set(learn_merges(words, size, prefix="##", min_count=min_count)[0]), set(theirs.get_vocab())


def assert_as_many_tokens(lines: list[str], size: int) -> None:
    """Ties among rare pairs are broken differently, but the text has as many tokens, within 0.1 %."""
    words, *vocabularies = wordpiece_vocabularies(lines, size, min_count=1)
    totals = []
    for vocabulary in vocabularies:
        ids = {token: index for index, token in enumerate(["[UNK]", *sorted(vocabulary)])}
        model = models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=10**6)
        totals.append(sum(count * len(model.tokenize(word)) for word, count in words.items()))
    assert totals[0] == pytest.approx(totals[1], rel=0.001)


def test_wordpiece_trainer(lines: list[str]) -> None:
    assert_as_many_tokens(lines, 3000)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["wiki_en", "wiki_zh"])
def test_wordpiece_trainer_on_real_text(name: str, shared_data: Path) -> None:
    """No tie decides about pairs that occur 50 times or more: the sets are equal."""
    lines = real_lines(shared_data, name)
    _, ours, theirs = wordpiece_vocabularies(lines, 10**6, min_count=50)
    assert ours == theirs
    assert_as_many_tokens(lines, 8000)


def test_extension_is_training_with_the_old_tokens_as_characters(lines: list[str]) -> None:
    """Each old token is one character for the library's trainer."""
    backend = blank("bpe")
    tokens, merges = learn_merges(count_words(backend, lines[::2]), 1000)
    words = count_words(backend, lines[1::2])
    encoder = models.BPE({token: index for index, token in enumerate(tokens)}, merges)
    encoded: Counter[str] = Counter()
    for word, count in words.items():
        encoded["".join(chr(PRIVATE + token.id) for token in encoder.tokenize(word))] += count
    alphabet = [chr(PRIVATE + index) for index in range(len(tokens))]
    extended, more = library_bpe(encoded, 2000, initial_alphabet=alphabet)
    names = {PRIVATE + index: token for index, token in enumerate(tokens)}
    expected = (
        [token.translate(names) for token in extended],
        [(a.translate(names), b.translate(names)) for a, b in more],
    )
    found = extend_merges(words, tokens, merges, 2000)
    assert found == (expected[0], [*merges, *expected[1]])
    assert len(found[1]) > len(merges) + 500


def test_the_library_encodes_with_the_merges(lines: list[str]) -> None:
    """An unlimited vocabulary makes every word one token, whatever the order of merges in the library."""
    words = count_words(blank("bpe"), lines[:300])
    tokens, merges = learn_merges(words, 10**6)
    encoder = models.BPE({token: index for index, token in enumerate(tokens)}, merges)
    assert [[token.value for token in encoder.tokenize(word)] for word in words] == [[word] for word in words]
