"""Notes on text that does not fit a tokenizer."""

from __future__ import annotations

import pytest

from firth.text.corpus import read_corpus
from firth.tokens.coverage import note_poor_coverage
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import train_tokenizer
from tests.samples import ENGLISH, small_recipe

SPLIT = ["the cat , the dog and a bird sat on mats .", "a <unk> ran , it was a <unk> ."]
RAW = ["The cat, the dog and a bird sat on mats. It ran, it was a cat."]


def words(lowercase: bool = True) -> Tokenizer:
    recipe = TokenizerRecipe(model="words", split="space", min_count=1, lowercase=lowercase)
    return train_tokenizer(recipe, read_corpus([SPLIT]))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (SPLIT, ""),
        (["a <unk> <unk> ."], ""),
        ([], ""),
        (["", " "], ""),
        (RAW, "because of the punctuation"),
        (["the old barns burn ."], "60% of the words are unknown"),
        (["the cat sat on old\nmats . \0 \ud800"], ""),
        (["我们喜欢自然语言"], "of the words are unknown"),
    ],
)
def test_text_that_does_not_fit_is_noted(texts: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    note_poor_coverage(words(), texts)
    err = capsys.readouterr().err
    assert err.count("\n") == bool(said)
    assert said in err


def test_tokenizers_that_split_punctuation_take_raw_text(capsys: pytest.CaptureFixture[str]) -> None:
    raw = train_tokenizer(TokenizerRecipe(model="words", split="space", min_count=1), read_corpus([RAW]))
    for tokenizer in (raw, train_tokenizer(small_recipe("wordpiece"), read_corpus([[*ENGLISH, *RAW]]))):
        note_poor_coverage(tokenizer, RAW)
    assert capsys.readouterr().err == ""
    note_poor_coverage(train_tokenizer(small_recipe("wordpiece"), read_corpus([ENGLISH])), ["ЖЖ ЮЮ the"])
    assert "67% of the words are unknown" in capsys.readouterr().err
