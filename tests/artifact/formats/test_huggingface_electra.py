"""ELECTRA as two folders of Hugging Face, and SpanBERT as BERT."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from firth.artifact.formats import import_model
from firth.artifact.formats.huggingface import read_model
from firth.artifact.models import load
from firth.errors import ArtifactError
from firth.fit.loop import TrainingModule
from firth.lm.language_model import UnknownWordModel
from firth.nets.batch import Batch
from firth.nets.electra import ElectraNet
from firth.nets.masked import MaskedNet
from firth.nets.model import NetModel
from firth.nets.network import Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.nets.restore import make_model
from firth.objectives.heads.build import make_heads
from firth.objectives.rtd import Generator, ReplacedTokens
from firth.recipes.nets import electra, spanbert
from tests.artifact.formats.small_transformers import (
    equal,
    load_theirs,
    model_of,
    put,
    small,
    some_ids,
    their_bert_tokenizer,
    tokenizer_of,
    transformers,
)


def electra_model(recipe: NetRecipe | None = None) -> NetModel:
    """An untrained model with no parameter at 0 or 1."""
    recipe = recipe or small(electra())
    tokenizer = tokenizer_of(recipe.tokenizer.model)
    vocabulary = Vocabulary(tokenizer.vocabulary, np.arange(len(tokenizer), dtype=np.int64))
    network = build_network(recipe, vocabulary, 1)
    module = TrainingModule(network, make_heads(recipe, network))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return make_model(recipe, network, tokenizer, "lines", UnknownWordModel.train(["a"]), module.head_tensors())


def test_both_networks_load_and_come_back(tmp_path: Path) -> None:
    model = electra_model()
    assert isinstance(model, ElectraNet)
    folder = put(model, tmp_path / "out")
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["ElectraForPreTraining"]
    ids = some_ids(model)
    with torch.no_grad():
        generator = load_theirs(folder / "generator", "AutoModelForMaskedLM")
        assert type(generator).__name__ == "ElectraForMaskedLM"
        assert torch.allclose(generator(ids).logits, model.logits(ids), rtol=0, atol=1e-5)
        discriminator = load_theirs(folder, "AutoModelForPreTraining")
        heads = make_heads(model.recipe, model.network)["rtd"]
        for name, parameter in heads.named_parameters():
            if f"heads.rtd.{name}" in model.heads:
                parameter.data = model.heads[f"heads.rtd.{name}"]
        states = model.network(Batch(ids, ids > 0)).last_hidden_state
        logits = heads.detect(states).view(ids.shape)  # type: ignore[operator]
        assert torch.allclose(discriminator(ids).logits, logits, rtol=0, atol=1e-5)
    again = read_model(folder)
    assert equal(again, model)
    assert again.recipe == model.recipe
    import_model("huggingface", folder, tmp_path / "in")
    assert equal(load(tmp_path / "in"), model)
    assert load(tmp_path / "in").fill("the [MASK] dog", 2) == model.fill("the [MASK] dog", 2)


def test_each_network_is_imported_alone(tmp_path: Path) -> None:
    model = electra_model()
    folder = put(model, tmp_path / "out")
    generator = read_model(folder / "generator")
    assert type(generator) is MaskedNet
    ids = some_ids(model)
    assert torch.equal(generator.logits(ids), model.logits(ids))
    (folder / "generator").rename(tmp_path / "elsewhere")
    discriminator = read_model(folder)
    assert type(discriminator) is NetModel
    assert discriminator.recipe.names == ()
    assert np.array_equal(discriminator.embed(["the dog"]), model.embed(["the dog"]))
    folder = put(discriminator, tmp_path / "again")
    assert not (folder / "generator").exists()
    assert equal(read_model(folder), discriminator)


def test_foreign_models_are_joined(tmp_path: Path) -> None:
    """Two models of transformers with one embedding."""
    tokenizer = their_bert_tokenizer()
    sizes = {"vocab_size": len(tokenizer), "embedding_size": 12, "num_hidden_layers": 2, "max_position_embeddings": 30}
    wide = transformers.ElectraConfig(**sizes, hidden_size=24, num_attention_heads=3, intermediate_size=48)
    narrow = transformers.ElectraConfig(**sizes, hidden_size=8, num_attention_heads=1, intermediate_size=16)
    torch.manual_seed(3)
    discriminator, generator = transformers.ElectraForPreTraining(wide), transformers.ElectraForMaskedLM(narrow)
    generator.electra.embeddings.load_state_dict(discriminator.electra.embeddings.state_dict())
    discriminator.save_pretrained(tmp_path / "d")
    generator.save_pretrained(tmp_path / "d" / "generator")
    for folder in (tmp_path / "d", tmp_path / "d" / "generator"):
        tokenizer.save_pretrained(folder)
    model = read_model(tmp_path / "d")
    assert isinstance(model, ElectraNet)
    assert model.recipe.objective("rtd") == ReplacedTokens(
        generator=Generator(width=8 / 24, layers=1.0), masking=ReplacedTokens().masking
    )
    text = "the lazy dog"
    ids, theirs = model.tokenizer.encode(text).ids, tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = generator.eval()(torch.tensor([theirs])).logits
    mine = model.logits(torch.tensor([ids]))
    for new, old in zip(ids, theirs, strict=True):
        assert torch.allclose(mine[..., new], logits[..., old], rtol=0, atol=1e-5)

    generator.electra.embeddings.word_embeddings.weight.data[7] += 1
    generator.save_pretrained(tmp_path / "d" / "generator")
    with pytest.raises(ArtifactError, match="import both folders separately"):
        read_model(tmp_path / "d")


def test_a_bert_trained_on_replaced_tokens_is_exported_as_a_discriminator(tmp_path: Path) -> None:
    recipe = small(electra())
    recipe = replace(recipe, output=replace(recipe.output, kind="tied", transform=True))
    folder = put(electra_model(recipe), tmp_path / "out")
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["ElectraForPreTraining"]


def test_spanbert_is_exported_as_bert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of(small(spanbert()))
    folder = put(model, tmp_path / "out")
    assert "no place for the layers of sbo" in capsys.readouterr().err
    other = load_theirs(folder, "AutoModelForMaskedLM")
    assert type(other).__name__ == "BertForMaskedLM"
    ids = some_ids(model)
    with torch.no_grad():
        assert torch.allclose(other(ids).logits, model.logits(ids), rtol=0, atol=1e-5)
    again = read_model(folder)
    assert again.recipe == model.recipe
    assert torch.equal(again.logits(ids), model.logits(ids))
    assert not [name for name in again.heads if name.startswith("heads.sbo")]
