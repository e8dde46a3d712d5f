"""XLNet from the first step to a fine-tuned model: resuming, the command line, tasks, and what it learns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth
from firth.fit.train import train
from firth.nets.permutation import PermutationNet
from firth.nets.recipe import MemoryRecipe, NetRecipe, SequenceRecipe
from firth.recipes.nets import resize, xlnet
from tests.command import firth as command
from tests.fit.small_nets import make_run, open_small, parameters, same, sentences, small, trained
from tests.fit.test_resume_nets import BUDGET, interrupted

SMALL = [
    *("tokenizer=words", "tokenizer.min_count=1", "embedding.width=16", "encoder.width=16", "encoder.ffn_width=32"),
    *("encoder.layers=2", "encoder.heads=2", "sequence.length=24", "memory.length=16", "learning.batch=192"),
]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def permuted(**learning: Any) -> NetRecipe:
    """A small XLNet with dropout."""
    base, recipe = small(**learning), resize(xlnet(), "tiny")
    return replace(
        recipe,
        tokenizer=base.tokenizer,
        embedding=replace(recipe.embedding, width=16),
        encoder=replace(recipe.encoder, width=16, ffn_width=32, heads=2),
        sequence=SequenceRecipe(format="contiguous-pair", length=24, reversed=True),
        memory=MemoryRecipe(length=16),
        learning=replace(base.learning, batch=96),
    )


@pytest.mark.parametrize("parts", [1, 2])
def test_resuming_gives_the_same_bits(parts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the memory, with rows of both directions."""
    monkeypatch.setenv("FIRTH_CHECKPOINT", "0")
    recipe = permuted(grad_accumulation=parts)
    whole = trained(open_small(recipe, make_run(budget=BUDGET, valid=True)))
    again = interrupted(recipe, tmp_path / "m", [4, 2, 5], valid=True)
    assert same(parameters(again), parameters(whole))
    assert again.module.memory.rows
    assert same(again.module.memory.arrays(), whole.module.memory.arrays())
    assert [one["loss"] for one in again.state.records] == [one["loss"] for one in whole.state.records]


def test_used_and_fine_tuned_through_the_command_line(tmp_path: Path) -> None:
    """score, generate, fill, embed; classes and generation from the artifact."""
    corpus = tmp_path / "text.txt"
    corpus.write_text("\n".join(sentences()) + "\n", encoding="utf-8")
    out = tmp_path / "m"
    train("xlnet", str(corpus), out=out, settings=SMALL, budget="6ktok", threads=1, layout="lines")
    scored = command("score", out, corpus, "--json").json
    assert scored["kind"] == "causal"
    assert scored["forward"] == scored["bits_per_byte"]
    assert 0 < scored["backward"] != scored["forward"]
    assert command("generate", out, "--prompt", "w1", "--length", "5").out.startswith("w1")
    assert len(command("fill", out, "w1 [MASK] w2", "--json").json["masks"]) == 1
    assert command("embed", out, corpus, "-o", tmp_path / "v.npy").code == 0
    examples = [f"{line}\t{'even' if int(line.split()[0][1:]) % 2 == 0 else 'odd'}" for line in sentences(60)]
    (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *examples]) + "\n", encoding="utf-8")
    pairs = [f"{line}\t{line.split()[0]}" for line in sentences(40)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["source\ttarget", *pairs]) + "\n", encoding="utf-8")
    for task, data in (("classify", "train.tsv"), ("generate", "pairs.tsv")):
        made = command(
            *("finetune", out, task, "--train", tmp_path / data, "--dev", tmp_path / data, "-o", tmp_path / task),
            *("--threads", "1", "--set", "learning.epochs=2"),
        )
        assert made.code == 0, made.err
        assert firth.load(tmp_path / task) is not None
    network = firth.load(tmp_path / "classify").recipe
    assert network.head.pooling == "last"
    assert network.network.visibility == "bidirectional"
    predicted = command("predict", tmp_path / "classify", tmp_path / "train.tsv", "--json")
    assert predicted.code == 0, predicted.err


PAIRS = {("a", "a"): 0.4, ("a", "b"): 0.1, ("b", "a"): 0.2, ("b", "b"): 0.3}


@pytest.fixture(scope="module")
def two_words(tmp_path_factory: pytest.TempPathFactory) -> PermutationNet:
    """A network trained on documents of two words of known probabilities."""
    rng = np.random.default_rng(0)
    drawn = rng.choice(len(PAIRS), size=12_000, p=list(PAIRS.values()))
    documents = [[" ".join(list(PAIRS)[number])] for number in drawn.tolist()]
    settings = [
        *("tokenizer=words", "tokenizer.min_count=1", "embedding.width=32", "encoder.width=32", "encoder.ffn_width=64"),
        *("encoder.layers=1", "encoder.heads=2", "sequence.length=32", "learning.batch=512", "learning.lr=0.01"),
        *("encoder.dropout=0", "encoder.attention_dropout=0", "embedding.dropout=0", "plm.context=3"),
        *("sequence.format=stream", "sequence.reversed=false", "memory.length=0"),
    ]
    out = tmp_path_factory.mktemp("two") / "m"
    return train("xlnet", documents, out=out, settings=settings, budget="160ktok", threads=1)


def test_predictions_in_all_orders_approach_the_exact_conditionals(two_words: PermutationNet) -> None:
    """Within what training leaves: a word after the other and before it."""
    for (first, second), probability in PAIRS.items():
        before = sum(p for (_, other), p in PAIRS.items() if other == second)
        after = sum(p for (other, _), p in PAIRS.items() if other == first)
        for masked, word, exact in (
            (f"[MASK] {second}", first, probability / before),
            (f"{first} [MASK]", second, probability / after),
        ):
            fillings = {one.token.strip(): one.probability for one in two_words.fill(masked)[0]}
            assert fillings[word] == pytest.approx(exact, abs=0.08), (masked, word)
    for order in ("left-to-right", "right-to-left"):
        often, seldom = (two_words.score_in_order([text], order)[0].logprob for text in ("a a", "a b"))
        assert often - seldom == pytest.approx(np.log(0.4 / 0.1), abs=0.5)
