"""context2vec: its loss by hand, its masks by gradients, and what it is used for."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import firth
from firth.abilities import total
from firth.errors import RecipeError
from firth.nets.batch import Batch
from firth.nets.context import ContextNet, states_around
from firth.nets.dropout import DropoutRng
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.outputs.negative import NegativeSampling
from firth.nets.recipe import NetRecipe
from firth.objectives.clm import CausalLM
from firth.objectives.heads.build import make_heads
from firth.recipes.nets import resize
from firth.recipes.recurrent import context2vec
from firth.tokens.tokenizer import EOS, PAD, UNK
from tests.command import firth as command
from tests.contracts.small_networks import dependence
from tests.fit.small_nets import sentences

WORDS = 12  # of which seven are no special tokens
COUNTS = np.array([0, 4, 0, 9, 0, 15, 0, 3, 80, 1, 1, 7])


def small(samples: int = 2) -> NetRecipe:
    base = resize(context2vec(), "tiny")
    return replace(
        base,
        embedding=replace(base.embedding, width=6),
        encoder=replace(base.encoder, width=4),
        output=replace(base.output, samples=samples),
    )


def built(samples: int = 2) -> Network:
    return build_network(small(samples), Vocabulary([f"w{n}" for n in range(WORDS)], COUNTS), seed=1).double()


def packed() -> Batch:
    """`EOS a b EOS EOS c EOS` and padding: two sentences of a row, with an unknown word."""
    ids = torch.tensor([[EOS, 7, UNK, EOS, EOS, 8, EOS, PAD]])
    sequence_ids = torch.tensor([[0, 0, 0, 0, 1, 1, 1, -1]])
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool), sequence_ids)


def run_lstm(network: Network, direction: int, ids: list[int]) -> Tensor:
    """The last state of one of the two LSTMs over some ids, step by step, from its own half of the token vectors."""
    (layer,) = network.encoders[direction].layers  # type: ignore[union-attr, misc]
    half = slice(3 * direction, 3 * direction + 3)
    h = c = torch.zeros(4, dtype=torch.float64)
    for token in ids:
        x = network.embedding.table[token, half]
        i, f, g, o = (layer.input.weight @ x + layer.input.bias + layer.recurrent.weight @ h).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return h


def context(network: Network, before: list[int], after: list[int]) -> Tensor:
    """B relu(A [left; right] + a) + b, of the words before and, from the end, after a gap."""
    output = network.output
    assert isinstance(output, NegativeSampling)
    both = torch.cat([run_lstm(network, 0, before), run_lstm(network, 1, after[::-1])])
    return output.project.weight @ (output.hidden.weight @ both + output.hidden.bias).relu() + output.project.bias


@torch.no_grad()
def test_the_loss_of_a_toy_by_hand() -> None:
    """-log s(t.c) - sum of log s(-t_v.c) of each of three words, with the negatives of the same draws."""
    network, batch = built(), packed()
    (head,) = make_heads(small(), network).values()
    assert head.count(batch) == 3
    assert head.positions(batch).tolist() == [0, 1, 2, 3, 4, 6]
    output = network.output
    assert isinstance(output, NegativeSampling)
    found = head.loss(network, network(batch, head.positions(batch)), batch, DropoutRng(0, 4))
    negatives = output.draw(3, DropoutRng(0, 4).generator)
    gaps = [([EOS], 7, [UNK, EOS]), ([EOS, 7], UNK, [EOS]), ([EOS], 8, [EOS])]
    expected = 0.0
    for (before, word, after), drawn in zip(gaps, negatives.tolist(), strict=True):
        c = context(network, before, after)
        scores = [float(output.targets[one] @ c) for one in (word, *drawn)]
        expected += math.log1p(math.exp(-scores[0])) + sum(math.log1p(math.exp(score)) for score in scores[1:])
    assert found.count == 3
    assert float(found.total) == pytest.approx(expected, rel=1e-9)


@torch.no_grad()
def test_validation_is_the_exact_likelihood() -> None:
    """p(w | c) is q(w) exp(t_w . c), normalised; q is the frequency to the power of 0.75, of words and [UNK] alone."""
    network, batch = built(), packed()
    (head,) = make_heads(small(), network).values()
    found = head.loss(network, network(batch, head.positions(batch)), batch, None)
    words = [UNK, *range(5, WORDS)]
    noise = {word: (COUNTS[word] + 1) ** 0.75 for word in words}
    assert isinstance(network.output, NegativeSampling)
    expected = 0.0
    for before, word, after in [([EOS], 7, [UNK, EOS]), ([EOS, 7], UNK, [EOS]), ([EOS], 8, [EOS])]:
        c = context(network, before, after)
        odds = {one: noise[one] * math.exp(float(network.output.targets[one] @ c)) for one in words}
        expected -= math.log(odds[word] / sum(odds.values()))
    assert float(found.total) == pytest.approx(expected, rel=1e-6)
    logs = network.output.log_probabilities(torch.randn(5, 8, dtype=torch.float64))
    torch.testing.assert_close(logs.exp().sum(1), torch.ones(5, dtype=torch.float64))
    assert (logs[:, [PAD, EOS]] == -torch.inf).all()


def test_negatives_follow_the_noise_distribution() -> None:
    output = built(samples=10).output
    assert isinstance(output, NegativeSampling)
    drawn = output.draw(20_000, np.random.default_rng(3))
    assert drawn.shape == (20_000, 10)
    words = np.array([UNK, *range(5, WORDS)])
    noise = (COUNTS[words] + 1.0) ** 0.75
    shares = np.bincount(drawn.flatten().numpy(), minlength=WORDS) / drawn.numel()
    assert shares[words] == pytest.approx(noise / noise.sum(), abs=0.004)
    assert shares[words].sum() == 1.0
    again = output.draw(20_000, np.random.default_rng(3))
    assert torch.equal(drawn, again)


def test_a_context_has_no_gradient_to_its_own_word() -> None:
    """And one to every other word of its sentence, on both sides; other sentences of the row do not matter."""
    network = built()
    ids = torch.tensor([[EOS, 7, 8, 9, 5, EOS, EOS, 6, 7, EOS]])
    sequence_ids = torch.tensor([[0] * 6 + [1] * 4])
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool), sequence_ids)
    made: list[Tensor] = []

    def keep(module: object, given: object, output: Tensor) -> Tensor:
        made.append(output.detach().requires_grad_())
        return made[-1]

    handle = network.embedding.register_forward_hook(keep)
    (head,) = make_heads(small(), network).values()
    targets = head.targets(batch)  # type: ignore[operator]
    assert isinstance(targets, Tensor)
    assert targets.tolist() == [1, 2, 3, 4, 7, 8]
    around = states_around(network(batch, head.positions(batch)), targets)
    assert isinstance(network.output, NegativeSampling)
    found = dependence(network.output.contexts(around)[None], made[0])[0, :, 0]
    handle.remove()
    same = sequence_ids[0][targets][:, None] == sequence_ids
    assert torch.equal(found, same & (torch.arange(10) != targets[:, None]))


def test_directions_have_vectors_of_their_own() -> None:
    network, batch = built(), packed()
    first, second = network.inputs(network.embedding(batch.ids))
    assert torch.equal(torch.cat([first, second], -1), network.embedding(batch.ids))
    network.embedding.table.data[:, 3:] = 0  # the backward half
    states = network(batch).last_hidden_state
    changed = built()(batch).last_hidden_state
    assert torch.equal(states[:, :4], changed[:, :4])
    assert not torch.equal(states[:, 4:], changed[:, 4:])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained on sentences in which w4 is always between w1 and w12, and so on: the middle of three is certain."""
    folder = tmp_path_factory.mktemp("context") / "m"
    settings = {
        "tokenizer.min_count": 1,
        "embedding.width": 32,
        "encoder.width": 32,
        "learning.batch": 64,
        "learning.lr": 0.02,
    }
    lines = [
        [f"w{n} w{(3 * n + 1) % 20} w{9 * n % 20}" for n in order] for order in np.arange(400).reshape(20, 20) % 20
    ]
    firth.train("context2vec", lines, out=folder, settings=settings, budget="24ktok", threads=1)
    return folder


def test_fill_finds_the_word_of_a_context(model: Path) -> None:
    made = firth.load(model)
    assert isinstance(made, ContextNet)
    right = 0
    for n in range(20):
        (best,) = made.fill(f"w{n} [MASK] w{9 * n % 20}", top=3)
        right += best[0].token == f"w{(3 * n + 1) % 20}"
        assert sum(one.probability for one in best) <= 1 + 1e-6
    assert right >= 18
    found = command("fill", model, "w3 [MASK] w7", "--json")
    assert found.code == 0
    assert "w10" in found.out


def test_scores_are_pseudo_likelihoods_in_one_pass(model: Path) -> None:
    """The same as with one mask for each word, and as the probabilities of `fill`."""
    made = firth.load(model)
    assert isinstance(made, ContextNet)
    texts = ["w3 w10 w7", "w1 w4 w9", "w2 qqq w18", "w5"]
    scores = made.score(texts)
    slow = made.score(texts, whole_words=True)  # one row for each word
    assert [one.logprob for one in scores] == pytest.approx([one.logprob for one in slow], rel=1e-5)
    assert scores[0].tokens == 3
    assert scores[2].oov == 1
    fills = {one.token: one.probability for one in made.fill("w3 [MASK] w7", top=30)[0]}
    middle = sum(
        math.log({one.token: one.probability for one in made.fill(gap, top=30)[0]}[word])
        for gap, word in (("[MASK] w10 w7", "w3"), ("w3 [MASK] w7", "w10"), ("w3 w10 [MASK]", "w7"))
    )
    assert fills["w10"] > 0.5
    assert scores[0].logprob == pytest.approx(middle, abs=1e-3)
    assert total(made.score(["w3 w10 w7"])).bits_per_byte < total(made.score(["w10 w7 w3"])).bits_per_byte
    report = command("score", model, _file(model.parent, "w3 w10 w7\n"), "--json")
    assert report.json["kind"] == "pseudo"


def _file(folder: Path, text: str) -> Path:
    path = folder / "text.txt"
    path.write_text(text)
    return path


def test_contexts_and_words_are_in_one_space(model: Path) -> None:
    made = firth.load(model)
    assert isinstance(made, ContextNet)
    gap, same, other = made.embed(["w3 [MASK] w7", "w3 w10 w7", "w10 [MASK] w12"])
    assert gap.shape == (32,)
    rows = {word: made.vectors[made.rows[word]] for word in ("w10", "w5")}
    assert gap @ rows["w10"] > gap @ rows["w5"]
    assert not np.allclose(gap, same)
    middle = made.embed(["w3 qqq w7"], pooling="mean")
    assert middle.shape == (1, 32)
    several = made.embed(["w3 [MASK] [MASK]"], pooling="first")
    assert several.shape == (1, 32)
    assert made.embed([""]).tolist() == [[0.0] * 32]
    assert made.embed(["w3 w10"], layer=0).shape == (1, 32)
    assert np.allclose(other, made.embed(["w10 [MASK] w12"])[0])


def test_similar_compares_the_vectors_of_targets(model: Path) -> None:
    made = firth.load(model)
    assert isinstance(made, ContextNet)
    nearest, score = made.similar("w10", count=1)[0]
    rows = made.vectors / np.linalg.norm(made.vectors, axis=1, keepdims=True)
    cosines = rows @ rows[made.rows["w10"]]
    cosines[made.rows["w10"]] = -1
    cosines[:5] = -1
    assert made.words[int(cosines.argmax())] == nearest
    assert score == pytest.approx(float(cosines.max()), abs=1e-5)
    assert np.array_equal(made.vectors, made.network.output.targets.detach().numpy())  # type: ignore[union-attr]


def test_logits_are_those_of_fill(model: Path) -> None:
    made = firth.load(model)
    assert isinstance(made, ContextNet)
    ids = torch.tensor([[made.rows[word] for word in ("w3", "w10", "w7")]])
    logits = made.logits(ids)
    assert logits.shape == (1, 3, len(made.words))
    fills = made.fill("w3 [MASK] w7", top=1)[0]
    assert made.words[int(logits[0, 1].argmax())] == fills[0].token
    assert float(logits[0, 1].softmax(0).max()) == pytest.approx(fills[0].probability, rel=1e-5)


def test_it_is_fine_tuned_by_its_layers(model: Path, tmp_path: Path) -> None:
    examples = [(str(int("w3" in line.split())), line) for line in sentences(60, seed=5)]
    settings = ["learning.epochs=1", "head.width=8"]
    done = firth.finetune(
        model, "classify", train=examples[:40], dev=examples[40:], out=tmp_path / "t", settings=settings, threads=1
    )
    assert len(done.predict(["w3 w10 w7"])) == 1


def test_parts_that_do_not_go_together() -> None:
    with pytest.raises(RecipeError, match=r"output\.kind=negative"):
        replace(small(), output=replace(small().output, kind="full"))
    with pytest.raises(RecipeError, match=r"clm cannot be trained with output\.kind=negative"):
        replace(
            small(),
            objectives=(CausalLM(),),
            visibility="causal",
            embedding=replace(small().embedding, per_direction=False),
        )
    with pytest.raises(RecipeError, match="per_direction"):
        replace(small(), embedding=replace(small().embedding, width=7))
