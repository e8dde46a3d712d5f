"""What is left open: size, vocabulary, rows and batch by the text and the budget, and never what was set by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import firth
from firth.errors import RecipeError
from firth.fit import resolve
from firth.fit.cost import TrainingCosts
from firth.fit.run import Budget
from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import SIZES, bert, gpt, lstm, resize, sa_lstm, xu_bigram
from firth.recipes.table import find_recipe
from firth.text.corpus import read_corpus
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from tests.command import firth as command
from tests.fit.small_nets import sentences, text


class Store:
    """Says that a text is as large as one likes."""

    def __init__(self, tokens: int) -> None:
        self.info = type("Info", (), {"tokens": tokens})


def costs(size: int) -> TrainingCosts:
    """The costs of recipes with a vocabulary of that size."""
    return TrainingCosts(Vocabulary([f"w{n}" for n in range(size)], np.ones(size, dtype=np.int64)))


def size_of(recipe: NetRecipe, tokens: int, budget: str | None = None, settings: tuple[str, ...] = ()) -> str:
    store: TokenStore = Store(tokens)  # type: ignore[assignment]
    chosen = resolve.resolve_size(recipe, settings, store, costs(8000), Budget.parse(budget) if budget else None)
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
    chosen = resolve.resolve_size(gpt(), ["sequence.length=99", "learning.epochs=3"], store, costs(8000), None)
    assert chosen.recipe.sequence.length == 99
    assert chosen.recipe.learning.epochs == 3
    assert "size tiny" in chosen.reason


def test_vocabularies_by_the_size_of_the_text() -> None:
    def vocabulary_size(recipe: NetRecipe, settings: tuple[str, ...] = ()) -> int | None:
        return resolve.resolve_vocabulary(recipe, settings, read_corpus(text())).recipe.tokenizer.vocab_size

    assert vocabulary_size(bert()) == 4000
    assert vocabulary_size(bert(), ("tokenizer.vocab_size=20000",)) == 30_000  # it was set before
    assert vocabulary_size(lstm()) == 10_000, "words are left alone"
    small = replace(bert(), tokenizer=replace(bert().tokenizer, vocab_size=1000))
    assert vocabulary_size(small) == 1000


def test_the_size_of_a_text(tmp_path: Path) -> None:
    corpus = read_corpus(text())
    assert resolve.text_bytes(corpus) == pytest.approx(sum(map(len, sentences())), rel=0.05)
    file = tmp_path / "text.txt"
    file.write_text("abc\n" * 100)
    assert resolve.text_bytes(read_corpus(str(file))) == 400


def test_rows_and_batches_fit_the_text() -> None:
    _, store = open_tokens(TokenizerRecipe(model="words"), read_corpus(text(), layout="lines"), 1)
    chosen, reason = resolve.resolve_rest(gpt(), [], store, costs(30), None)
    assert chosen.sequence.length == 64  # of some 780 tokens
    assert chosen.learning.batch == 512
    assert reason == "sequences of 64 tokens, batches of 512 tokens"
    chosen, reason = resolve.resolve_rest(gpt(), ["sequence.length=512", "learning.batch=4096"], store, costs(30), None)
    assert (chosen, reason) == (gpt(), "")
    long = replace(sa_lstm(), sequence=replace(sa_lstm().sequence, length=1000))
    assert resolve.resolve_rest(long, [], store, costs(30), None).recipe.sequence.length == 24  # 9 words, twice


def test_output_layers_are_trained_on_samples_where_the_whole_one_would_read_less_than_an_epoch() -> None:
    text: TokenStore = Store(10**7)  # type: ignore[assignment]

    def samples(recipe: NetRecipe, budget: str, words: int = 16_000, settings: tuple[str, ...] = ()) -> int:
        found = resolve.resolve_output(recipe, settings, text, costs(words), Budget.parse(budget))
        return found.recipe.output.training_samples

    assert samples(gpt(), "9Mtok") == samples(bert(), "9Mtok") == 1000
    assert samples(gpt(), "11Mtok") == 0
    # In 15 minutes samples read more than the text, the whole layer half of it.
    recipe, within = resize(gpt(), "tiny"), resolve.tokens_within
    sampled = replace(recipe, output=replace(recipe.output, training_samples=1000))
    budget = Budget.parse("15min")
    assert within(recipe, costs(16_000), budget, 10**7) < 10**7 < within(sampled, costs(16_000), budget, 10**7)
    assert samples(gpt(), "15min") == 1000
    assert samples(gpt(), "9Mtok", words=3999) == 0, "the product is small"
    assert samples(gpt(), "9Mtok", settings=("output.bias=true",)) == 0
    assert samples(find_recipe("elmo"), "9Mtok") == 0  # type: ignore[arg-type]


def test_defaults_of_small_runs() -> None:
    """No dropout within three epochs; masked models have adjacent heads and a higher masking rate."""
    chosen, reason = resolve.small_run_defaults(bert(), [], planned=1e6, text=10**7)
    assert chosen.encoder.dropout == chosen.encoder.attention_dropout == chosen.embedding.dropout == 0
    assert chosen.objectives[0].predicted == 0.3
    assert chosen.encoder.init == "adjacent"
    assert chosen.embedding.init == "vectors"
    assert reason == (
        "no dropout in so few epochs, embeddings initialised by CBOW, 30% of the tokens masked, "
        "1,000 classes of words for taggers, attention heads initialised to adjacent tokens"
    )
    assert chosen.word_classes == 1000
    assert resolve.small_run_defaults(gpt(), [], planned=1e6, text=10**7).recipe.word_classes == 0
    assert resolve.small_run_defaults(bert(), [], 1e6, 10**7, has_words=False).recipe.word_classes == 0
    for given, size in ((["word_classes=0"], 10**7), ([], 10**4)):
        assert resolve.small_run_defaults(bert(), given, planned=1e6, text=size).recipe.word_classes == 0
    assert resolve.small_run_defaults(bert(), [], planned=1e6, text=10**4).recipe.embedding.init == "random"
    assert resolve.small_run_defaults(lstm(), [], planned=1e6, text=10**7).recipe.embedding.init == "random"
    assert resolve.small_run_defaults(bert(), [], planned=2.9e7, text=10**7).recipe.encoder.dropout == 0
    again = resolve.small_run_defaults(bert(), [], planned=4e7, text=10**7).recipe
    assert (again.encoder.dropout, again.objectives[0].predicted) == (0.1, 0.3)
    assert resolve.small_run_defaults(bert(), [], planned=2e9, text=10**8) == (bert(), "")
    by_hand = ["encoder.dropout=0.1", "mlm.masking.rate=0.15", "encoder.init=random", "embedding.dropout=0.1"]
    by_hand.append("embedding.init=random")
    eased = resolve.small_run_defaults(bert(), by_hand, 1e6, 10**7).recipe
    assert (eased.encoder, eased.embedding) == (replace(bert().encoder, attention_dropout=0.0), bert().embedding)
    causal, reason = resolve.small_run_defaults(gpt(), [], planned=1e6, text=10**7)
    assert (causal.encoder.init, causal.encoder.dropout) == ("random", 0)
    assert reason == "no dropout in so few epochs, embeddings initialised by CBOW"


def test_a_table_is_as_wide_as_the_vocabulary() -> None:
    filled = resolve.fill_in(xu_bigram(), 77)
    assert filled.embedding.width == filled.encoder.width == 77
    assert filled.learning.lr == 0.05
    assert resolve.fill_in(filled, 77) == filled


def test_too_large_for_the_memory() -> None:
    resolve.require_memory(gpt(), costs(30_000), 64 << 30)
    with pytest.raises(RecipeError, match="smaller size"):
        resolve.require_memory(gpt(), costs(30_000), 1 << 30)


def test_fields_that_a_run_may_choose() -> None:
    assert "encoder.layers" in resolve.unset_fields(gpt(), [], None)
    assert "encoder.layers" not in resolve.unset_fields(gpt(), [], "mini")
    assert "encoder.layers" not in resolve.unset_fields(gpt(), ["encoder.width=64"], None)
    assert "embedding.width" in resolve.unset_fields(xu_bigram(), ["encoder.width=64"], None)
    assert "sequence.length" not in resolve.unset_fields(gpt(), ["sequence.length=8"], "mini")


def test_a_recipe_by_name_is_resolved_with_a_note(tmp_path: Path) -> None:
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


def test_a_finished_short_run_is_resumed_at_once(tmp_path: Path) -> None:
    """Dropout and masking rate were resolved by the run, too."""
    file = tmp_path / "text.txt"
    file.write_text("\n".join(sentences()), encoding="utf-8")
    arguments = ("train", "bert", file, "-o", tmp_path / "m", "--size", "tiny", "--budget", "0.2ktok", "--threads", "1")
    made = command(*arguments)
    assert made.code == 0, made.err
    assert "no dropout" in made.err
    assert command(*arguments, "--resume").code == 0
    other = command(*arguments, "--resume", "--set", "mlm.masking.rate=0.2")
    assert "another recipe" in other.err


def test_sizes_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="mini"):
        firth.train("gpt", text(), out=tmp_path / "m", size="minni")
    for name in ("unigram", "xu-bigram"):
        with pytest.raises(RecipeError, match="one size"):
            firth.train(name, text(), out=tmp_path / "m", size="mini")


def test_embeddings_of_networks_that_restore_text_are_initialised() -> None:
    """Not those of translation."""
    found = {}
    for name in ("bert", "bart", "mass", "transformer", "t5"):
        recipe = find_recipe(name)
        assert isinstance(recipe, NetRecipe)
        found[name] = resolve.can_init_embeddings(recipe, [])
        assert not resolve.can_init_embeddings(recipe, ["embedding.init=random"])
    assert found == {"bert": True, "bart": True, "mass": True, "transformer": False, "t5": True}


def test_small_weights_go_with_small_token_vectors() -> None:
    """T5 starts from large ones of both kinds, unless the text is long enough for CBOW vectors."""
    recipe = find_recipe("t5")
    assert isinstance(recipe, NetRecipe)
    settings: list[str] = []
    large, small = ("unit", "fan-in", "fan-in", "random"), ("vectors", "adjacent", "random", "matching")
    for tokens, expected in ((50_000, large), (5_000_000, small)):
        found = resolve.small_run_defaults(recipe, settings, 1e6, tokens).recipe
        assert found.decoder is not None
        assert (found.embedding.init, found.encoder.init, found.decoder.init, found.decoder.cross_init) == expected
        assert found.learning.schedule == ("linear" if tokens > 1e6 else "inverse-sqrt")
    kept = resolve.small_run_defaults(recipe, ["encoder.init=fan-in", "learning.schedule=inverse-sqrt"], 1e6, 5_000_000)
    assert (kept.recipe.encoder.init, kept.recipe.learning.schedule) == ("fan-in", "inverse-sqrt")
