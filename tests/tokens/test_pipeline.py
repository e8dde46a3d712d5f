"""Words without the library: the shortcuts give what the library gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.text.corpus import read_corpus
from firth.tokens.encoder import TextEncoder
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import WordSplitter
from firth.tokens.train import count_words, train_tokenizer
from tests.samples import CHINESE, ENGLISH

WORDS = TokenizerRecipe(model="words", split="punctuation")
RECIPES = {
    "punctuation": WORDS,
    "space": replace(WORDS, split="space"),
    "none": replace(WORDS, split="space", normalise="none"),
    "nfkc": replace(WORDS, split="space", normalise="nfkc"),
    "lowercase": replace(WORDS, lowercase=True),
    "lowercase-space": replace(WORDS, split="space", lowercase=True),
}
PIECES = ["a", "B", "é", "e\u0301", "ﬁ", "Ⅷ", "İ", "K", "3", ".", ",", "'", "_", "<", "<unk>", "<s>", "我们", "。", "“"]
PIECES += ["\u00a0", "\u3000", "\t", "\u00ad", "\u2028", "\u200b", "ￊ", "\u1100\u1161", "豈", "＜unk＞", "Σ", "~"]
CHUNKS = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"], exclude_characters=" \n\0")).map(
    "".join
)


@pytest.mark.parametrize("name", RECIPES)
@given(chunk=CHUNKS.filter(bool))
def test_a_plain_chunk_is_a_word(name: str, chunk: str) -> None:
    cutter = WordSplitter(RECIPES[name])
    if cutter.is_plain(chunk):
        assert cutter.words(chunk) == [chunk]
        assert cutter.word(chunk) == chunk
    if cutter.is_identity:  # so does each word of which the vocabulary may be made
        for word in cutter.words(chunk):
            assert cutter.words(word) == [word]


@pytest.mark.parametrize("name", RECIPES)
@given(chunks=st.dictionaries(CHUNKS.filter(bool), st.integers(1, 9), max_size=6))
def test_words_are_counted_as_the_library_cuts_them(name: str, chunks: dict[str, int]) -> None:
    expected: dict[str, int] = {}
    for chunk, count in chunks.items():
        for word in WordSplitter(RECIPES[name]).words(chunk):
            expected[word] = expected.get(word, 0) + count
    assert count_words(RECIPES[name], chunks) == expected


@pytest.mark.parametrize("name", RECIPES)
def test_ids_equal_those_of_the_library(name: str) -> None:
    corpus = read_corpus([[*ENGLISH, *CHINESE, "".join(PIECES), " ".join(PIECES)] * 3, PIECES[:9]])
    recipe = replace(RECIPES[name], min_count=4)  # so some words are unknown
    tokenizer = train_tokenizer(recipe, corpus)
    encoder = TextEncoder(tokenizer)

    @given(st.lists(st.lists(CHUNKS | st.sampled_from(tokenizer.vocabulary)).map(" ".join).map(str.strip), max_size=4))
    def compare(sentences: list[str]) -> None:
        found = tokenizer.encode_batch(sentences)
        encoded = encoder.encode(sentences)
        assert encoded.ids.tolist() == [number for one in found for number in one.ids]
        assert encoded.lengths.tolist() == [len(one.ids) for one in found]
        for sentence, one in zip(sentences, found, strict=True):
            assert encoder.encode_one(sentence).tolist() == one.ids

    compare()
