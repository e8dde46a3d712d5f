"""Tokenizers: special tokens, decoding, word bounds, determinism, damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firth.errors import CorpusError, RecipeError, TokenizerError
from firth.text.corpus import Corpus, read_corpus
from firth.tokens.encoder import TextEncoder
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import EOS, MASK, PAD, UNK, Tokenizer, find_word_starts, flag_word_starts, join_words
from firth.tokens.train import extend_tokenizer, train_tokenizer
from tests.samples import CHINESE, ENGLISH, KINDS, small_recipe


def test_special_tokens_have_the_first_ids(tokenizer: Tokenizer) -> None:
    assert tuple(tokenizer.vocabulary[:5]) == tokenizer.recipe.specials
    assert [tokenizer.id(token) for token in tokenizer.recipe.specials] == [0, 1, 2, 3, 4]
    assert (PAD, UNK, EOS, MASK) == (0, 1, 3, 4)
    assert tokenizer.id("no such token") == UNK


def test_a_special_token_in_the_text_is_one_token(tokenizer: Tokenizer) -> None:
    mask = tokenizer.recipe.specials[4]
    assert mask in tokenizer.tokenize(f"the {mask} fox")


@pytest.mark.parametrize("kind", ["chars", "bpe", "pieces", "byte-bpe"])
@pytest.mark.parametrize("text", [*ENGLISH, *CHINESE, "the dog  jumps   over"])
def test_decoding_restores_the_text(tokenizers_by_kind: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = tokenizers_by_kind[kind]
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text())
def test_bytes_restore_any_text(tokenizers_by_kind: dict[str, Tokenizer], text: str) -> None:
    tokenizer = tokenizers_by_kind["byte-bpe"]
    normal = tokenizer.backend.normalizer.normalize_str(text)
    if not any(token in text for token in tokenizer.recipe.specials):
        assert tokenizer.decode(tokenizer.encode(text).ids) == normal


@pytest.mark.parametrize("kind", ["words", "wordpiece"])
@pytest.mark.parametrize("text", ["The lazy dog jumps over (the dog), it?", CHINESE[0], "他说：“今天天气不错！”"])
def test_words_are_joined_as_people_write(tokenizers_by_kind: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = tokenizers_by_kind[kind]
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_training_twice_gives_the_same_bytes(tokenizer: Tokenizer, mixed_corpus: Corpus) -> None:
    again = train_tokenizer(small_recipe(tokenizer.recipe.model), mixed_corpus)
    assert again.data == tokenizer.data
    assert again.digest == tokenizer.digest


def test_it_comes_back_from_its_bytes(tokenizer: Tokenizer) -> None:
    again = Tokenizer(tokenizer.data, tokenizer.recipe)
    assert again.data == tokenizer.data
    for text in (*ENGLISH, *CHINESE):
        assert again.encode(text) == tokenizer.encode(text)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff\xfe", b'{"model": 3}', b"[1, 2"])
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(TokenizerError, match=r"firth.train"):
        Tokenizer(data, TokenizerRecipe(model="words"))


def test_another_kind_of_tokenizer_is_refused(tokenizers_by_kind: dict[str, Tokenizer]) -> None:
    with pytest.raises(TokenizerError, match="not made by Firth"):
        Tokenizer(tokenizers_by_kind["wordpiece"].data, TokenizerRecipe(model="words"))


def test_words_by_count_then_alphabet() -> None:
    corpus = read_corpus([["d c a c a", "b"]])
    tokenizer = train_tokenizer(TokenizerRecipe(model="words"), corpus)
    assert tokenizer.vocabulary[5:] == ["a", "c", "b", "d"]
    cut = train_tokenizer(TokenizerRecipe(model="words", vocab_size=10, min_count=2), corpus)
    assert cut.vocabulary[5:] == ["a", "c"]
    assert cut.encode("a b").ids == [5, UNK]


def test_words_beside_a_special_token_are_segmented() -> None:
    """The line cannot be cut there, so its word breaks are found later."""
    recipe = TokenizerRecipe(model="words", split="punctuation")
    tokenizer = train_tokenizer(recipe, read_corpus([["我们喜欢<mask>自然语言"]]))
    assert set(tokenizer.vocabulary[5:]) == {"我们", "喜欢", "自然语言"}


def test_nothing_frequent_enough() -> None:
    with pytest.raises(TokenizerError, match="lower min_count"):
        train_tokenizer(TokenizerRecipe(model="words", min_count=9), read_corpus([["a b c"]]))


def test_treebank_words_keep_their_marks() -> None:
    corpus = read_corpus([["mr. <unk> is n't chairman of n.v. the dutch group", "he said N %"] * 5])
    tokenizer = train_tokenizer(TokenizerRecipe(model="words"), corpus)
    assert tokenizer.recipe.split == "space"
    assert tokenizer.tokenize("mr. <unk> is n't") == ["mr.", "<unk>", "is", "n't"]
    assert tokenizer.encode("<unk>").ids == [UNK]


def test_chinese_words_follow_the_dictionary(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("研究自然 100000\n", encoding="utf-8")
    recipe = TokenizerRecipe(model="words", dictionary=str(words))
    tokenizer = train_tokenizer(recipe, read_corpus([["我们研究自然语言"]]))
    assert "研究自然" in tokenizer.tokenize("我们研究自然语言")
    plain = train_tokenizer(TokenizerRecipe(model="words"), read_corpus([["我们研究自然语言"]]))
    assert "研究自然" not in plain.tokenize("我们研究自然语言")
    assert plain.digest != tokenizer.digest


def test_segmented_text_is_left_alone() -> None:
    recipe = TokenizerRecipe(model="words", segmenter="space")
    tokenizer = train_tokenizer(recipe, read_corpus([["我 们研究 自然语言"]]))
    assert tokenizer.tokenize("我 们研究 自然语言") == ["我", "们研究", "自然语言"]


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "holds no words"), ("词 often n\n", "line 1"), (None, "no dictionary")],
)
def test_a_wrong_dictionary_is_an_error(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "words.txt"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(CorpusError, match=message):
        train_tokenizer(TokenizerRecipe(model="words", dictionary=str(path)), read_corpus([["我们"]]))


def test_starts_of_words_by_hand() -> None:
    assert find_word_starts("don't stop, 3.50") == [0, 5, 10, 11]
    assert find_word_starts("我们\0喜欢 abc\0语言") == [0, 2, 4, 8]
    assert find_word_starts("") == find_word_starts("  ") == []
    # byte pieces of one character share its offsets: only the first begins the word
    assert flag_word_starts([(0, 1), (0, 1), (0, 1), (1, 2), (2, 3)], [0, 2]) == [True, False, False, False, True]
    assert flag_word_starts([(0, 4), (4, 6)], [0, 1, 2]) == [True, False]


def test_joining_is_idempotent() -> None:
    for text in ("He said (twice): no, it isn't.", "我们喜欢语言。", ""):
        assert join_words(text) == text


@pytest.mark.parametrize("kind", KINDS)
def test_sentinels_are_the_last_tokens(kind: str, tmp_path: Path) -> None:
    """`<extra_id_0>` has the last id, as in T5; words keep their ids, and the fast encoder agrees with the library."""
    corpus = read_corpus([[*ENGLISH, *CHINESE]])
    plain, tokenizer = (train_tokenizer(replace(small_recipe(kind), sentinels=count), corpus) for count in (0, 3))
    assert tokenizer.vocabulary == [*plain.vocabulary, "<extra_id_2>", "<extra_id_1>", "<extra_id_0>"]
    assert len(tokenizer) == len(plain) + 3
    assert tokenizer.id("<extra_id_0>") == len(plain) + 2
    line = "The quick <extra_id_0> jumps, <extra_id_1>over the dog."
    found = tokenizer.encode(line).ids
    assert [one for one in found if one >= len(plain)] == [len(plain) + 2, len(plain) + 1]
    assert TextEncoder(tokenizer).encode([line]).ids.tolist() == found
    assert tokenizer.encode(ENGLISH[0]).ids == plain.encode(ENGLISH[0]).ids
    assert tokenizer.decode(tokenizer.encode(ENGLISH[0]).ids) == plain.decode(plain.encode(ENGLISH[0]).ids)
    again = Tokenizer(tokenizer.data, tokenizer.recipe)
    assert again.vocabulary == tokenizer.vocabulary
    with pytest.raises(TokenizerError, match="cannot grow"):
        extend_tokenizer(tokenizer, corpus, 2000)


def test_an_impossible_number_of_sentinels_is_refused() -> None:
    with pytest.raises(RecipeError, match="sentinels=-1 must be from 0"):
        TokenizerRecipe(model="words", sentinels=-1)
