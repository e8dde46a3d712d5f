"""The fast encoder gives exactly what the tokenizer gives sentence by sentence."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firth.text.segment import HAN
from firth.tokens import encoder as encoder_module
from firth.tokens.encoder import TextEncoder
from firth.tokens.tokenizer import Tokenizer

LETTERS = "abC é3.,!?'\"()-_ =中国我们喜欢\t\u00a0\u3000T恤。，“カ▁Ġ<unk>[MASK]\u0301한ह"
SENTENCES = st.lists(st.text(alphabet=LETTERS, max_size=30).map(str.strip).filter(bool), max_size=5)


def assert_same(tokenizer: Tokenizer, encoder: TextEncoder, sentences: list[str]) -> None:
    encoded = encoder.encode(sentences)
    tokens = tokenizer.encode_batch(sentences)
    assert encoded.lengths.tolist() == [len(one.ids) for one in tokens]
    assert encoded.ids.tolist() == [number for one in tokens for number in one.ids]
    if not tokenizer.recipe.separable or not any(map(HAN.search, sentences)):  # the segmenter looks at the context
        assert encoded.word_starts.tolist() == [start for one in tokens for start in one.word_starts]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sentences=SENTENCES)
def test_ids_equal_those_of_whole_sentences(tokenizer: Tokenizer, sentences: list[str]) -> None:
    assert_same(tokenizer, TextEncoder(tokenizer), sentences)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sentences=st.lists(st.text(alphabet=LETTERS, max_size=30), max_size=5))
def test_one_sentence_gives_what_many_give(tokenizer: Tokenizer, sentences: list[str]) -> None:
    encoder, other = TextEncoder(tokenizer), TextEncoder(tokenizer)
    for sentence in sentences * 2:
        assert encoder.encode_one(sentence).tolist() == other.encode([sentence]).ids.tolist()


def test_one_sentence_of_cached_words(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = TextEncoder(tokenizer)
    ids = encoder.encode_one("The lazy dog, the foxes and Café").tolist()
    assert ids == encoder.encode(["The lazy dog, the foxes and Café"]).ids.tolist()
    again = "The foxes the dog, and lazy lazy"
    expected = encoder.encode([again]).ids.tolist()
    monkeypatch.setattr(encoder, "encode", None)  # calling it would fail
    assert encoder.encode_one(again).tolist() == expected
    monkeypatch.undo()
    monkeypatch.setattr(encoder_module, "_MAX_WORDS", 3)
    for sentence in ("a new one", "The foxes the dog", "a new one"):
        assert encoder.encode_one(sentence).tolist() == encoder.encode([sentence]).ids.tolist()
    assert len(encoder._inner) < 7


def test_word_starts_in_english(tokenizer: Tokenizer) -> None:
    sentence = "The foxes doesn't jump 3.14 times, ok."
    encoded = TextEncoder(tokenizer).encode([sentence])
    assert encoded.word_starts.tolist() == tokenizer.encode(sentence).word_starts
    expected = 9 if tokenizer.recipe.split != "space" else encoded.word_starts.size
    assert encoded.word_starts.sum() == expected  # The foxes doesn't jump 3.14 times , ok .


def test_word_starts_in_chinese(tokenizer: Tokenizer) -> None:
    """我们 喜欢 自然语言 处理: pieces that cross a word bound can only lower the number of starts."""
    sentence = "我们喜欢自然语言处理"
    encoded = TextEncoder(tokenizer).encode([sentence])
    assert encoded.word_starts[0]
    if tokenizer.recipe.separable:
        assert encoded.word_starts.sum() == 4
    else:
        assert encoded.word_starts.tolist() == tokenizer.encode(sentence).word_starts
        assert encoded.word_starts.sum() <= 4


def test_a_full_cache_is_cleared(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_module, "_MAX_CHUNK_BYTES", 20)
    encoder = TextEncoder(tokenizer)
    for sentence in ("the quick brown fox", "我们喜欢研究自然语言处理", "the lazy dog jumped"):
        assert_same(tokenizer, encoder, [sentence, "over the dog"])


def test_no_sentences(tokenizer: Tokenizer) -> None:
    encoded = TextEncoder(tokenizer).encode([])
    assert encoded.ids.size == encoded.word_starts.size == encoded.lengths.size == 0


def test_threads_share_an_encoder(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """New chunks of one thread do not disturb another, also if it is interrupted while the table changes."""
    shared, alone = TextEncoder(tokenizer), TextEncoder(tokenizer)
    texts = [[f"the w{number}x{place} {place}a of, b{number}" for place in range(5)] for number in range(40)]
    expected = [alone.encode(some).ids.tolist() for some in texts]
    look_up = encoder_module._kernels.look_up

    def look_up_slowly(*given: object) -> object:
        found = look_up(*given)
        time.sleep(0.001)
        return found

    monkeypatch.setattr(encoder_module._kernels, "look_up", look_up_slowly)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda some: shared.encode(some).ids.tolist(), texts)) == expected
