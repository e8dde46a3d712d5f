"""Sample texts and small recipes for tests."""

from __future__ import annotations

from firth.recipes.table import RECIPES
from firth.recipes.values import override
from firth.tokens.recipe import TokenizerRecipe

ENGLISH = [
    "The quick brown fox jumps over the lazy dog, doesn't it?",
    "Unbelievable: foxes jumped 3.14 times (or 1,000!) over e-mails.",
    "Café naïve résumé — “quoted” text; a_b c/d http://example.com/x?y=1.",
]
CHINESE = [
    "我们喜欢研究自然语言处理，因为语言很有意思。",
    "他说：“今天天气不错！”然后就走了……",
    "我穿T恤去卡拉OK，iPhone12发布了3.14个版本。",
]
KINDS = ("words", "chars", "wordpiece", "bpe", "pieces", "byte-bpe")
_SIZES = {"words": "vocab_size=none", "chars": "vocab_size=none"}


def small_recipe(kind: str) -> TokenizerRecipe:
    """A tokenizer recipe of this kind for a few sentences."""
    recipe = override(RECIPES[kind].make(), [_SIZES.get(kind, "vocab_size=400"), "min_count=1"])
    assert isinstance(recipe, TokenizerRecipe)
    return recipe
