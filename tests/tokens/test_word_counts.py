"""Words and bytes of sentences: the same whatever the tokenizer, and those of `firth check`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firth.text.corpus import read_corpus
from firth.text.segment import make_segmenter
from firth.tokens.encoder import TextEncoder
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.train import train_tokenizer
from tests.samples import CHINESE, ENGLISH, KINDS, small_recipe

CORPUS = read_corpus([[*ENGLISH, *CHINESE]])
TEXTS = [
    *ENGLISH,
    *CHINESE,
    "a  b",
    "我们 <unk>喜欢 [MASK]自然语言",
    "... !? -- a-b--c 'tis x_y '' 3.5.",
    "カタカナ한국어 \u0301",
]
ALPHABET = "ab'’.,-_!?…%+ \t3١我们喜欢语言ア한é\u0301<>[]MASK"


def recipes(folder: Path) -> dict[str, TokenizerRecipe]:
    dictionary = folder / "words.txt"
    dictionary.write_text("们喜 100000\n", encoding="utf-8")
    words = small_recipe("words")
    return {kind: small_recipe(kind) for kind in KINDS} | {
        "space": replace(words, split="space"),
        "punctuation": replace(words, split="punctuation", lowercase=True),
        "unsegmented": replace(words, segmenter="space"),
        "dictionary": replace(words, dictionary=str(dictionary)),
    }


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TextEncoder]:
    made = recipes(tmp_path_factory.mktemp("words"))
    return {name: TextEncoder(train_tokenizer(recipe, CORPUS)) for name, recipe in made.items()}


def assert_counts(encoders: dict[str, TextEncoder], texts: list[str]) -> None:
    words, sizes = [len(CORPUS.words(text)) for text in texts], [len(text.encode()) for text in texts]
    for name, encoder in encoders.items():
        encoded, counts = encoder.encode_counted(texts)
        assert counts.words.tolist() == words, name
        assert counts.bytes.tolist() == sizes
        assert [part.tolist() for part in encoded] == [part.tolist() for part in encoder.encode(texts)]


def test_words_and_bytes_do_not_depend_on_the_tokenizer(encoders: dict[str, TextEncoder]) -> None:
    assert CORPUS.segmenter.is_default
    assert not make_segmenter("space").is_default
    assert_counts(encoders, TEXTS)
    assert_counts(encoders, [])


@given(st.lists(st.text(ALPHABET, max_size=12), max_size=4))
def test_words_and_bytes_of_any_text(encoders: dict[str, TextEncoder], texts: list[str]) -> None:
    assert_counts(encoders, texts)
