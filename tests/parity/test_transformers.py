"""The transformers library computes the same as Firth: states, scores, losses, gradients, sizes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.artifact.formats.huggingface import from_huggingface, to_huggingface
from firth.artifact.formats.huggingface_config import model_type_for
from firth.artifact.formats.huggingface_names import to_theirs
from firth.artifact.formats.huggingface_weights import parameter_shapes
from firth.nets.batch import Batch
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.head import ObjectiveHead
from firth.recipes.nets import SIZES, albert, bert, gpt, gpt2, resize, roberta

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

MEMBERS = {"bert": bert, "roberta": roberta, "albert": albert, "gpt2": gpt2, "openai-gpt": gpt}
TOKENS = 60
LENGTH = 20
EVERY = pytest.mark.parametrize("name", MEMBERS)
SMALL = pytest.mark.parametrize("size", ["tiny", "mini", pytest.param("small", marks=pytest.mark.slow)])


def vocabulary(tokens: int = TOKENS) -> Vocabulary:
    return Vocabulary([f"w{number}" for number in range(tokens)], np.zeros(tokens, dtype=np.int64))


def ours(recipe: NetRecipe) -> tuple[Network, dict[str, ObjectiveHead]]:
    """A network and its objectives in double precision, with no parameter at 0 or 1."""
    network = build_network(recipe, vocabulary(), seed=3).double().eval()
    objectives = make_heads(recipe, network)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for module in (network, *objectives.values()):
            for parameter in module.double().parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return network, objectives


def heads_of(objectives: Mapping[str, ObjectiveHead]) -> dict[str, Tensor]:
    return {
        f"heads.{name}.{part}": parameter
        for name, objective in objectives.items()
        for part, parameter in objective.named_parameters()
    }


def theirs(config: dict[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """Their model, with a head for all objectives, in double precision."""
    found = transformers.AutoConfig.for_model(**config)
    model = getattr(transformers, config["architectures"][0])(found).double().eval()
    missing, unexpected = model.load_state_dict(
        {name: tensor.double() for name, tensor in tensors.items()}, strict=False
    )
    assert not unexpected
    tied = [name for name in missing if "decoder" in name or name == "lm_head.weight"]
    assert missing == tied
    model.tie_weights()
    return model


def exported(network: Network, objectives: Mapping[str, ObjectiveHead]) -> Any:
    state = {name: parameter.detach() for name, parameter in network.named_parameters()}
    heads = {name: parameter.detach() for name, parameter in heads_of(objectives).items()}
    return theirs(*to_huggingface(network.recipe, state, heads))


def rows_of(recipe: NetRecipe, padded: int = 0) -> tuple[Batch, dict[str, Tensor]]:
    """Three sequences as inputs of both libraries, the last with padding."""
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(5, TOKENS, (3, LENGTH), generator=generator)
    segments = (torch.arange(LENGTH) >= 8).long().expand(3, -1).contiguous() if recipe.embedding.segments else None
    parts = torch.zeros_like(ids)
    if padded:
        ids[2, -padded:] = 0
        parts[2, -padded:] = -1
    word_starts = torch.ones_like(ids, dtype=torch.bool)
    batch = Batch(ids, word_starts, sequence_ids=parts if padded else None, segment_ids=segments)
    given = {"input_ids": ids, "attention_mask": (parts >= 0).long()}
    return batch, given | ({"token_type_ids": segments} if segments is not None else {})


@SMALL
@EVERY
def test_hidden_states_and_logits_are_the_same(name: str, size: str) -> None:
    network, objectives = ours(resize(MEMBERS[name](), size))
    model = exported(network, objectives)
    for padded in (0, 5):
        batch, given = rows_of(network.recipe, padded)
        with torch.no_grad():
            states = network(batch)
            scores = network.output.logits(states.last_hidden_state).view(3, LENGTH, TOKENS)
            found = model(**given, output_hidden_states=True)
        read = given["attention_mask"].bool()
        assert len(states.layers) == len(found.hidden_states)
        for mine, other in zip(states.layers, found.hidden_states, strict=True):
            assert torch.allclose(mine[read], other[read], rtol=0, atol=1e-9)
        logits = found.logits if "logits" in found else found.prediction_logits
        assert torch.allclose(scores[read], logits[read], rtol=0, atol=1e-9)


def masked_batch(recipe: NetRecipe, batch: Batch) -> dict[str, Tensor]:
    """Add labels at some positions of a batch; returns the labels for transformers."""
    batch.labels["mlm.positions"] = torch.tensor([1, 4, 5, 23, 41, 50])
    batch.labels["mlm.targets"] = torch.tensor([9, 8, 17, 30, 12, 59])
    labels = torch.full(batch.ids.shape, -100).flatten()
    labels[batch.labels["mlm.positions"]] = batch.labels["mlm.targets"]
    given = {"labels": labels.view(batch.ids.shape)}
    pair_labels = torch.tensor([0, 1, 1])
    for name, label in (("nsp", "next_sentence_label"), ("sop", "sentence_order_label")):
        if name in recipe.names:
            batch.labels[f"{name}.labels"] = pair_labels
            given[label] = pair_labels
    return given


@SMALL
@EVERY
def test_losses_and_gradients_are_the_same(name: str, size: str) -> None:
    recipe = resize(MEMBERS[name](), size)
    network, objectives = ours(recipe)
    model = exported(network, objectives)
    batch, given = rows_of(recipe)
    given |= masked_batch(recipe, batch) if recipe.visibility == "bidirectional" else {"labels": batch.ids}
    losses = [one.loss(network, network(batch), batch, None) for one in objectives.values()]
    mine = sum(loss.total / loss.count for loss in losses)
    other = model(**given).loss
    assert isinstance(mine, Tensor)
    assert mine.item() == pytest.approx(other.item(), abs=1e-6)  # theirs is rounded to single precision

    mine.backward()
    other.backward()
    parameters = dict(network.named_parameters()) | heads_of(objectives)
    gradients = {each: parameter.grad for each, parameter in parameters.items() if parameter.grad is not None}
    assert gradients.keys() == parameters.keys()
    kind = model_type_for(recipe).name
    expected = {each: parameter.grad for each, parameter in model.named_parameters()}
    for each, gradient in to_theirs(kind, gradients, offset=int(kind == "roberta")).items():
        assert torch.allclose(gradient, expected[each], rtol=0, atol=1e-6), each


@pytest.mark.parametrize("name", ["bert", "roberta", "albert", "gpt2"])
def test_random_models_are_imported(name: str) -> None:
    sizes = {"num_hidden_layers": 3, "num_attention_heads": 2, "hidden_size": 16, "vocab_size": TOKENS}
    if name != "gpt2":
        sizes |= {"intermediate_size": 40, "max_position_embeddings": LENGTH + 2}
    if name == "albert":
        sizes["embedding_size"] = 8
    config = transformers.AutoConfig.for_model(name, **sizes)
    auto = transformers.AutoModelForCausalLM if name == "gpt2" else transformers.AutoModelForMaskedLM
    torch.manual_seed(1)
    model = auto.from_config(config).eval()
    read = from_huggingface(config.to_dict(), model.state_dict())
    network = build_network(read.recipe, vocabulary(), seed=0)
    _, unexpected = network.load_state_dict(read.state, strict=False)
    assert not unexpected
    network.eval()
    batch, given = rows_of(read.recipe)
    with torch.no_grad():
        scores = network.output.logits(network(batch).last_hidden_state).view(3, LENGTH, TOKENS)
        assert torch.allclose(scores, model(**given).logits, rtol=0, atol=1e-5)


def count(recipe: NetRecipe, tokens: int) -> int:
    return sum(shape.numel() for shape in parameter_shapes(recipe, tokens).values())


PUBLISHED = {
    "bert": (30_522, "BertForPreTraining", {}, 110),
    "roberta": (50_265, "RobertaForMaskedLM", {"type_vocab_size": 1, "max_position_embeddings": 514}, 125),
    "albert": (
        30_000,
        "AlbertForPreTraining",
        {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        12,
    ),
    "gpt2": (50_257, "GPT2LMHeadModel", {}, 124),
    "openai-gpt": (40_478, "OpenAIGPTLMHeadModel", {}, 117),
}


@EVERY
def test_published_sizes(name: str) -> None:
    tokens, architecture, changes, millions = PUBLISHED[name]
    config = transformers.AutoConfig.for_model(name, **changes)
    with torch.device("meta"):
        model = getattr(transformers, architecture)(config)
    expected = sum(parameter.numel() for parameter in model.parameters())
    if name == "roberta":
        expected -= 768 + 2 * 768  # one segment, and unused positions
    mine = count(MEMBERS[name](), tokens)
    assert mine == expected
    assert round(mine / 1e6) == millions


@pytest.mark.parametrize("size", SIZES)
@EVERY
def test_every_size_has_as_many_parameters_as_in_transformers(name: str, size: str) -> None:
    recipe = resize(MEMBERS[name](), size)
    shapes = parameter_shapes(recipe, 1000)
    blank = {each: torch.empty(shape, device="meta") for each, shape in shapes.items()}
    config, tensors = to_huggingface_sizes(recipe, blank)
    with torch.device("meta"):
        model = getattr(transformers, config["architectures"][0])(transformers.AutoConfig.for_model(**config))
    sizes = {each: parameter.shape for each, parameter in model.named_parameters()}
    assert {each: tensor.shape for each, tensor in tensors.items()} == sizes


def to_huggingface_sizes(recipe: NetRecipe, blank: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The result of `to_huggingface` for tensors without data."""
    zeros = {name: torch.zeros(1).expand(tensor.shape) for name, tensor in blank.items()}
    return to_huggingface(recipe, zeros, zeros)


def weights_in(recipe: NetRecipe, part: str) -> int:
    """Number of weights of all attention or feed-forward matrices."""
    shapes = parameter_shapes(recipe, 1000)
    return sum(shape.numel() for name, shape in shapes.items() if f".{part}." in name and len(shape) == 2)


def test_parameters_saved_by_tied_layers() -> None:
    """The survey's sums: feed-forward 12 * 2 * 768 * 3072 = 56.6M becomes 4.7M, attention 28.3M becomes 2.4M."""
    base = bert()
    tied = {
        tying: replace(base, encoder=replace(base.encoder, tie_layers=tying))
        for tying in ("none", "attention", "feed-forward", "all")
    }
    assert weights_in(tied["none"], "feedforward") == 12 * 2 * 768 * 3072
    assert weights_in(tied["feed-forward"], "feedforward") == 2 * 768 * 3072
    assert weights_in(tied["none"], "attention") == 12 * 4 * 768 * 768
    assert weights_in(tied["attention"], "attention") == 4 * 768 * 768
    for part, millions in (("feedforward", 51), ("attention", 25)):
        saved = weights_in(tied["none"], part) - weights_in(tied["all"], part)
        assert saved // 10**6 == millions
    whole = {tying: count(recipe, 30_000) for tying, recipe in tied.items()}
    assert whole["all"] == whole["attention"] + whole["feed-forward"] - whole["none"]


def test_parameters_saved_by_factorised_embeddings() -> None:
    """The survey's sums for 30,000 tokens, 512 positions and a width of 1024."""
    wide = bert()
    wide = replace(
        wide,
        embedding=replace(wide.embedding, width=1024),
        encoder=replace(wide.encoder, width=1024, heads=16, ffn_width=4096),
    )
    narrow = replace(wide, embedding=replace(wide.embedding, width=128))
    names = ("embedding.tokens.weight", "embedding.positions.weight", "embedding.project.weight")
    sums = [
        sum(shape.numel() for name, shape in parameter_shapes(recipe, 30_000).items() if name in names)
        for recipe in (wide, narrow)
    ]
    assert sums == [31_244_288, 4_036_608]
