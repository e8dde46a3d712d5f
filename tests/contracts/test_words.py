"""Words: every verb counts the same number in a text, whatever the tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from firth.recipes.table import RECIPES, find_entry
from tests.command import firth

TEXTS = {
    "English": "Mr. O'Neil paid $3.50, twice.\n\nHe said: don't  do it!\n",
    "Chinese": "我们喜欢自然语言处理。\n今天天气很好，我们去公园玩。\n",
    "mixed": "我们用 Python 3.12 写 code。\n<unk> and [MASK] are words\n",
}
TOKENIZERS = [name for name in RECIPES if find_entry(name).family == "tokenizers"]


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_check_train_and_score_count_the_same_words(tokenizer: str, kind: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(TEXTS[kind], encoding="utf-8")
    lines = ("--layout", "lines", "--json")
    words = firth("check", text, *lines).json["words"]
    trained = firth("train", tokenizer, text, "-o", tmp_path / "tokens", *lines).json
    assert trained["corpus"]["words"] == words
    assert trained["metrics"]["tokens_per_word"] == pytest.approx(trained["corpus"]["tokens"] / words)
    given = ("--tokenizer", tmp_path / "tokens")
    counted = firth("train", "unigram", text, "-o", tmp_path / "model", *given, *lines).json
    assert counted["corpus"]["words"] == words  # of a store that was built for a given tokenizer
    assert firth("score", tmp_path / "model", text, *lines).json["words"] == words
