"""ELECTRA's two networks compute what those of transformers do: hidden states, logits, losses, gradients."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as f

from firth.artifact.formats.huggingface import from_huggingface, to_huggingface
from firth.artifact.formats.huggingface_electra import generator_of
from firth.artifact.formats.huggingface_names import to_theirs
from firth.fit.loop import TrainingModule
from firth.nets.batch import Batch
from firth.nets.model import own_tensors
from firth.nets.network import Network, Vocabulary, build_network
from firth.objectives.heads.build import make_heads
from firth.objectives.heads.rtd import ReplacedTokensHead
from firth.recipes.nets import electra, resize

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

TOKENS, LENGTH = 60, 20
SIZES = pytest.mark.parametrize("size", ["tiny", "mini"])


def made(size: str) -> tuple[Network, ReplacedTokensHead, dict[str, torch.Tensor]]:
    """A discriminator, its head and all tensors, in double precision, with no parameter at 0 or 1."""
    vocabulary = Vocabulary([f"w{number}" for number in range(TOKENS)], np.zeros(TOKENS, dtype=np.int64))
    network = build_network(resize(electra(), size), vocabulary, seed=3).double()
    head = make_heads(network.recipe, network)["rtd"].double()
    assert isinstance(head, ReplacedTokensHead)
    module = TrainingModule(network, {"rtd": head})
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    tensors = {name.removeprefix("network."): tensor.detach() for name, tensor in own_tensors(module).items()}
    return network, head, tensors


def theirs(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Any:
    model = getattr(transformers, config["architectures"][0])(transformers.AutoConfig.for_model(**config))
    missing, unexpected = model.double().load_state_dict(tensors, strict=False)
    assert not unexpected
    assert set(missing) <= {"generator_lm_head.weight"}
    model.tie_weights()
    return model.eval()


def rows(padded: int) -> tuple[Batch, dict[str, torch.Tensor]]:
    """Three sequences as inputs of both libraries, the last with padding."""
    ids = torch.randint(5, TOKENS, (3, LENGTH), generator=torch.Generator().manual_seed(7))
    segments = (torch.arange(LENGTH) >= 8).long().expand(3, -1).contiguous()
    parts = torch.zeros_like(ids)
    if padded:
        ids[2, -padded:], parts[2, -padded:] = 0, -1
    batch = Batch(ids, ids > 0, sequence_ids=parts if padded else None, segment_ids=segments)
    return batch, {"input_ids": ids, "attention_mask": (parts >= 0).long(), "token_type_ids": segments}


@SIZES
def test_the_discriminator(size: str) -> None:
    network, head, tensors = made(size)
    config, given = to_huggingface(network.recipe, tensors, tensors)
    assert config["architectures"] == ["ElectraForPreTraining"]
    model = theirs(config, given)
    for padded in (0, 5):
        batch, inputs = rows(padded)
        read = inputs["attention_mask"].bool()
        labels = torch.randint(0, 2, (3, LENGTH), generator=torch.Generator().manual_seed(1))
        batch.labels["rtd.is_replaced"] = labels.flatten().bool()
        network.zero_grad()
        head.zero_grad()
        model.zero_grad()
        states = network(batch)
        loss = head.loss(network, states, batch, None)
        (loss.total / loss.count).backward()  # type: ignore[no-untyped-call]
        found = model(**inputs, labels=labels, output_hidden_states=True)
        found.loss.backward()
        for mine, other in zip(states.layers, found.hidden_states, strict=True):
            assert torch.allclose(mine[read], other[read], rtol=0, atol=1e-9)
        logits = head.detect(states.last_hidden_state).view(3, LENGTH)
        assert torch.allclose(logits[read], found.logits[read], rtol=0, atol=1e-9)
        assert (loss.total / loss.count).item() == pytest.approx(found.loss.item(), abs=1e-6)
        gradients = {name: p.grad for name, p in network.named_parameters()}
        gradients |= {f"heads.rtd.{name}": p.grad for name, p in head.named_parameters() if "generator" not in name}
        compare(gradients, model)


@SIZES
def test_the_generator(size: str) -> None:
    network, head, tensors = made(size)
    found = generator_of(network.recipe, tensors)
    assert found is not None
    config, given = to_huggingface(*found, {})
    assert config["architectures"] == ["ElectraForMaskedLM"]
    model = theirs(config, given)
    for padded in (0, 5):
        batch, inputs = rows(padded)
        read = inputs["attention_mask"].bool()
        batch.labels["rtd.positions"] = torch.tensor([1, 4, 5, 23, 41, 50])
        batch.labels["rtd.targets"] = torch.tensor([9, 8, 17, 30, 12, 59])
        batch.labels["rtd.numbers"] = torch.rand(6, dtype=torch.float64)
        labels = torch.full((3 * LENGTH,), -100)
        labels[batch.labels["rtd.positions"]] = batch.labels["rtd.targets"]
        head.zero_grad()
        model.zero_grad()
        loss = head.rewrite(batch, network, None).labels["rtd.generator_loss"] / 6
        loss.backward()  # type: ignore[no-untyped-call]
        other = model(**inputs, labels=labels.view(3, LENGTH))
        other.loss.backward()
        states = head.generator(batch).last_hidden_state
        logits = head.generator.output.logits(states).view(3, LENGTH, -1)
        assert torch.allclose(logits[read], other.logits[read], rtol=0, atol=1e-9)
        assert loss.item() == pytest.approx(other.loss.item(), abs=1e-6)
        compare({name: p.grad for name, p in head.generator.named_parameters()}, model)


def compare(gradients: dict[str, torch.Tensor | None], model: Any) -> None:
    assert gradients
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, gradient in to_theirs("electra", {k: g for k, g in gradients.items() if g is not None}, 0).items():
        assert torch.allclose(gradient, expected[name], rtol=0, atol=1e-6), name
    assert all(gradient is not None for gradient in gradients.values())


@pytest.mark.parametrize("architecture", ["ElectraForPreTraining", "ElectraForMaskedLM", "ElectraModel"])
def test_random_models_are_imported(architecture: str) -> None:
    """Alone, a generator is a masked language model, and a discriminator a network without output."""
    sizes = {"num_hidden_layers": 3, "num_attention_heads": 2, "hidden_size": 16, "vocab_size": TOKENS}
    config = transformers.ElectraConfig(**sizes, embedding_size=8, intermediate_size=40, max_position_embeddings=22)
    torch.manual_seed(1)
    model = getattr(transformers, architecture)(config).eval()
    read = from_huggingface(config.to_dict() | {"architectures": [architecture]}, model.state_dict())
    vocabulary = Vocabulary([f"w{number}" for number in range(TOKENS)], np.zeros(TOKENS, dtype=np.int64))
    network = build_network(read.recipe, vocabulary, seed=0)
    assert not network.load_state_dict(read.state, strict=False).unexpected_keys
    network.eval()
    batch, inputs = rows(0)
    with torch.no_grad():
        states = network(batch).last_hidden_state
        found = model(**inputs, output_hidden_states=True)
        assert torch.allclose(states.view(3, LENGTH, -1), found.hidden_states[-1], rtol=0, atol=1e-5)
        if architecture == "ElectraForMaskedLM":
            assert read.recipe.names == ("mlm",)
            logits = network.output.logits(states).view(3, LENGTH, -1)
            assert torch.allclose(logits, found.logits, rtol=0, atol=1e-5)
        elif architecture == "ElectraForPreTraining":
            assert read.recipe.names == ()
            heads = {name.removeprefix("heads.rtd."): tensor for name, tensor in read.heads.items()}
            hidden = f.gelu(f.linear(states, heads["dense.weight"], heads["dense.bias"]))
            logits = f.linear(hidden, heads["classifier.weight"], heads["classifier.bias"])
            assert torch.allclose(logits.view(3, LENGTH), found.logits, rtol=0, atol=1e-5)


def test_published_sizes() -> None:
    """A generator of base size has 33 million parameters beside those of the discriminator's embedding."""
    vocabulary = Vocabulary([""] * 30_522, np.zeros(30_522, dtype=np.int64))
    with torch.device("meta"):
        network = Network(electra(), vocabulary)
        config = transformers.ElectraConfig(
            embedding_size=768, hidden_size=768, num_attention_heads=12, intermediate_size=3072
        )
        model = transformers.ElectraModel(config)
    assert sum(p.numel() for p in network.parameters()) == sum(p.numel() for p in model.parameters())
