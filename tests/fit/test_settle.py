"""What is left open: size, vocabulary, rows and batch by the text and the budget, and never what was set by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import firth
from firth.errors import RecipeError
from firth.fit import settle
from firth.fit.budget import Budget
from firth.nets.network import Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import SIZES, albert, bert, elmo, ffnn, gpt, lstm, resize, sa_lstm, xu_bigram
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from tests.command import firth as command
from tests.fit.small_nets import sentences, text


class Store:
    """Says that a text is as large as one likes."""

    def __init__(self, tokens: int) -> None:
        self.facts = type("Facts", (), {"tokens": tokens})


def size_of(recipe: NetRecipe, tokens: int, budget: str | None = None, settings: tuple[str, ...] = ()) -> str:
    store: TokenStore = Store(tokens)  # type: ignore[assignment]
    chosen = settle.settle_size(recipe, settings, store, 8000, Budget.parse(budget) if budget else None)
    return next(size for size in SIZES if resize(recipe, size).encoder.layers == chosen.recipe.encoder.layers
                and resize(recipe, size).encoder.width == chosen.recipe.encoder.width)  # fmt: skip


def test_the_size_grows_with_text_and_budget() -> None:
    assert size_of(bert(), 100_000) == "tiny"
    assert size_of(bert(), 10**9, "10min") == "tiny"
    sizes = [SIZES.index(size_of(bert(), 10**9, budget)) for budget in ("1min", "3h", "20h", "10000h")]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0
    assert sizes[-1] == 3
    assert size_of(gpt(), 10**5, "10000h") == "tiny", "a small text does not teach a large network"
    assert size_of(gpt(), 10**9, "10Gtok") == "base"
    assert size_of(gpt(), 10**9, "1e13flop") == "tiny"


def test_what_was_set_by_hand_stays(tmp_path: Path) -> None:
    assert size_of(gpt(), 1000, settings=("encoder.layers=12",)) == "base"
    store: TokenStore = Store(10**6)  # type: ignore[assignment]
    chosen = settle.settle_size(gpt(), ["rows.length=99", "learning.epochs=3"], store, 8000, None)
    assert chosen.recipe.rows.length == 99
    assert chosen.recipe.learning.epochs == 3
    assert "size tiny" in chosen.why


def test_vocabularies_by_the_size_of_the_text() -> None:
    def settled(recipe: NetRecipe, settings: tuple[str, ...] = ()) -> int | None:
        return settle.settle_vocabulary(recipe, settings, read_corpus(text())).recipe.tokenizer.vocab_size

    assert settled(bert()) == 4000
    assert settled(bert(), ("tokenizer.vocab_size=20000",)) == 30_000  # it was set before
    assert settled(lstm()) == 10_000, "words are left alone"
    small = replace(bert(), tokenizer=replace(bert().tokenizer, vocab_size=1000))
    assert settled(small) == 1000


def test_the_size_of_a_text(tmp_path: Path) -> None:
    corpus = read_corpus(text())
    assert settle.text_bytes(corpus) == pytest.approx(sum(map(len, sentences())), rel=0.05)
    file = tmp_path / "text.txt"
    file.write_text("abc\n" * 100)
    assert settle.text_bytes(read_corpus(str(file))) == 400


def test_rows_and_batches_fit_the_text() -> None:
    _, store = open_tokens(TokenizerRecipe(model="words"), read_corpus(text(), layout="lines"), 1)
    chosen, why = settle.settle_rest(gpt(), [], store, 30, None)
    assert chosen.rows.length == 64  # of some 780 tokens
    assert chosen.learning.batch == 512
    assert why == "rows of 64 tokens, batches of 512 tokens"
    chosen, why = settle.settle_rest(gpt(), ["rows.length=512", "learning.batch=4096"], store, 30, None)
    assert (chosen, why) == (gpt(), "")
    long = replace(sa_lstm(), rows=replace(sa_lstm().rows, length=1000))
    assert settle.settle_rest(long, [], store, 30, None).recipe.rows.length == 24  # 9 words, twice


def test_few_tokens_are_made_easy_to_learn_from() -> None:
    """What is read once needs no dropout, and masked models start with their neighbours and hide more."""
    chosen, why = settle.ease(bert(), [], planned=1e6, text=10**7)
    assert chosen.encoder.dropout == chosen.encoder.attention_dropout == chosen.embedding.dropout == 0
    assert chosen.masking.rate == 0.3
    assert chosen.encoder.start == "neighbours"
    assert chosen.embedding.start == "vectors"
    assert why == (
        "no dropout, for no text is read twice, first vectors by CBOW, 30% of the tokens hidden, "
        "heads that start with their neighbours"
    )
    assert settle.ease(bert(), [], planned=1e6, text=10**4).recipe.embedding.start == "random"
    assert settle.ease(lstm(), [], planned=1e6, text=10**7).recipe.embedding.start == "random"
    again = settle.ease(bert(), [], planned=2e7, text=10**7).recipe
    assert (again.encoder.dropout, again.masking.rate) == (0.1, 0.3)
    assert settle.ease(bert(), [], planned=2e9, text=10**8) == (bert(), "")
    by_hand = ["encoder.dropout=0.1", "masking.rate=0.15", "encoder.start=random", "embedding.dropout=0.1"]
    by_hand.append("embedding.start=random")
    eased = settle.ease(bert(), by_hand, 1e6, 10**7).recipe
    assert (eased.encoder, eased.embedding) == (replace(bert().encoder, attention_dropout=0.0), bert().embedding)
    causal, why = settle.ease(gpt(), [], planned=1e6, text=10**7)
    assert (causal.encoder.start, causal.encoder.dropout) == ("random", 0)
    assert why == "no dropout, for no text is read twice, first vectors by CBOW"


def test_a_table_is_as_wide_as_the_vocabulary() -> None:
    filled = settle.fill_in(xu_bigram(), 77)
    assert filled.embedding.width == filled.encoder.width == 77
    assert filled.learning.rate == 0.05
    assert settle.fill_in(filled, 77) == filled


@pytest.mark.parametrize("make", [gpt, bert, albert, lstm, ffnn, elmo])
def test_parameters_are_estimated(make: object) -> None:
    """Near enough to choose by."""
    assert callable(make)
    recipe = resize(make(), "mini")
    words = Vocabulary([f"w{n}" for n in range(500)], np.ones(500, dtype=np.int64))
    exact = sum(parameter.numel() for parameter in build_network(recipe, words, 0).parameters())
    assert settle.count_parameters(recipe, 500) == pytest.approx(exact, rel=0.35)


def test_too_large_for_the_memory() -> None:
    settle.require_memory(gpt(), 30_000, 64 << 30)
    with pytest.raises(RecipeError, match="--size"):
        settle.require_memory(gpt(), 30_000, 1 << 30)


def test_what_a_run_may_fill_in() -> None:
    assert "encoder.layers" in settle.left_open(gpt(), [], None)
    assert "encoder.layers" not in settle.left_open(gpt(), [], "mini")
    assert "encoder.layers" not in settle.left_open(gpt(), ["encoder.width=64"], None)
    assert "embedding.width" in settle.left_open(xu_bigram(), ["encoder.width=64"], None)
    assert "rows.length" not in settle.left_open(gpt(), ["rows.length=8"], "mini")


def test_a_recipe_by_name_is_settled_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("\n".join(sentences()), encoding="utf-8")
    arguments = ("train", "gpt", file, "-o", tmp_path / "m", "--budget", "3ktok", "--threads", "1")
    made = command(*arguments)
    assert made.code == 0, made.err
    assert "chosen: a vocabulary of 4,000 tokens for 3 kB of text" in made.err
    assert "chosen: size tiny (the smallest there is" in made.err
    assert "tokens/s" in made.err
    assert command(*arguments, "--resume").code == 0, "it is finished"
    other = command(*arguments, "--resume", "--set", "encoder.layers=3")
    assert other.code == 1
    assert "another recipe" in other.err


def test_sizes_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="mini"):
        firth.train("gpt", text(), out=tmp_path / "m", size="minni")
    for name in ("unigram", "xu-bigram"):
        with pytest.raises(RecipeError, match="one size"):
            firth.train(name, text(), out=tmp_path / "m", size="mini")
