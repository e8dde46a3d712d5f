"""XLM of the transformers library computes the same as Firth, with languages and positions given."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.artifact.formats.huggingface import from_huggingface, read_model, to_huggingface
from firth.errors import AbilityError, ArtifactError
from firth.nets.batch import Batch
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.clm import CausalLM
from firth.recipes.nets import resize, xlm
from tests.artifact.formats.small_transformers import load_theirs, model_of, put, small, some_ids

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

TOKENS, LENGTH = 60, 20
TOLERANCE = 1e-5  # their softmax of attention is in single precision, whatever the model is
NAMES = ("en", "zh", "de")


def recipe_of(causal: bool = False, **embedding: Any) -> NetRecipe:
    recipe = resize(xlm(), "tiny")
    recipe = replace(recipe, embedding=replace(recipe.embedding, languages=3, **embedding), languages=NAMES)
    return replace(recipe, visibility="causal", objectives=(CausalLM(),)) if causal else recipe


def ours(recipe: NetRecipe) -> Network:
    """A network in double precision, with no parameter at 0 or 1."""
    vocabulary = Vocabulary([f"w{number}" for number in range(TOKENS)], np.zeros(TOKENS, dtype=np.int64))
    network = build_network(recipe, vocabulary, seed=3).double().eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return network


def theirs(network: Network) -> Any:
    state = {name: parameter.detach() for name, parameter in network.named_parameters()}
    config, tensors = to_huggingface(network.recipe, state, {})
    assert config["architectures"] == ["XLMWithLMHeadModel"]
    model = transformers.XLMWithLMHeadModel(transformers.AutoConfig.for_model(**config)).double().eval()
    missing, unexpected = model.load_state_dict({k: v.double() for k, v in tensors.items()}, strict=False)
    assert not unexpected
    assert set(missing) <= {"pred_layer.proj.weight"}  # tied
    model.tie_weights()
    return model


def inputs(padded: int) -> tuple[Batch, dict[str, Tensor]]:
    """Translations: two languages in a row, and positions that begin again in the second."""
    ids = torch.randint(5, TOKENS, (3, LENGTH), generator=torch.Generator().manual_seed(7))
    sequence_ids = torch.zeros_like(ids)
    if padded:
        ids[2, -padded:], sequence_ids[2, -padded:] = 0, -1
    positions = torch.cat([torch.arange(8), torch.arange(LENGTH - 8)]).expand_as(ids).contiguous()
    languages = torch.tensor([[0, 1], [1, 2], [2, 0]])[:, [0] * 8 + [1] * (LENGTH - 8)]
    batch = Batch(ids, ids >= 5, sequence_ids=sequence_ids if padded else None, position_ids=positions)
    batch.side_ids["languages"] = languages
    mask = (sequence_ids >= 0).long()
    return batch, {"input_ids": ids, "attention_mask": mask, "langs": languages, "position_ids": positions}


@pytest.mark.parametrize("causal", [False, True], ids=["mlm", "clm"])
@pytest.mark.parametrize("padded", [0, 5])
def test_hidden_states_and_logits_are_the_same(padded: int, causal: bool) -> None:
    network = ours(recipe_of(causal))
    batch, given = inputs(padded)
    with torch.no_grad():
        states = network(batch)
        scores = network.output.logits(states.last_hidden_state).view(3, LENGTH, TOKENS)
        found = theirs(network)(**given, output_hidden_states=True)
    read = given["attention_mask"].bool()
    assert len(states.layers) == len(found.hidden_states)
    for mine, other in zip(states.layers, found.hidden_states, strict=True):
        assert torch.allclose(mine[read], other[read], rtol=0, atol=TOLERANCE)
    assert torch.allclose(scores[read], found.logits[read], rtol=0, atol=TOLERANCE)


def test_gradients_are_the_same() -> None:
    network = ours(recipe_of())
    model = theirs(network)
    batch, given = inputs(5)
    positions, targets = torch.tensor([1, 4, 23, 41, 50]), torch.tensor([9, 8, 30, 12, 59])
    mine = network.output.loss(network(batch, positions).last_hidden_state, targets)
    mine.backward()  # type: ignore[no-untyped-call]
    logits = model(**given).logits.flatten(0, 1)[positions]
    other = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
    other.backward()
    assert abs(float(mine.detach() - other.detach())) < TOLERANCE
    pairs = {
        "embedding.tokens.weight": model.transformer.embeddings.weight,
        "embedding.languages.weight": model.transformer.lang_embeddings.weight,
        "embedding.positions.weight": model.transformer.position_embeddings.weight,
        "encoders.0.layers.0.feedforward.inner.weight": model.transformer.ffns[0].lin1.weight,
        "encoders.0.layers.1.norm2.bias": model.transformer.layer_norm2[1].bias,
        "output.bias": model.pred_layer.proj.bias,
    }
    own = dict(network.named_parameters())
    for name, parameter in pairs.items():
        gradient = own[name].grad
        assert gradient is not None
        used = slice(1, None) if name == "embedding.tokens.weight" else slice(None)  # theirs gives padding no gradient
        assert torch.allclose(gradient[used], parameter.grad[used], rtol=0, atol=TOLERANCE), name


def test_export_and_import_give_the_same_model(tmp_path: Path) -> None:
    recipe = small(recipe_of())
    model = model_of(recipe)
    folder = put(model, tmp_path / "hf")
    loaded = load_theirs(folder, "XLMWithLMHeadModel")
    assert loaded.config.lang2id == {"en": 0, "zh": 1, "de": 2}
    assert loaded.config.id2lang["1"] == "zh"
    ids = some_ids(model)
    with torch.no_grad():
        expected = loaded(ids, langs=torch.full_like(ids, 2)).logits
    assert torch.allclose(model.in_language("de").logits(ids), expected, rtol=0, atol=TOLERANCE)
    again = read_model(folder)
    assert again.recipe == model.recipe
    assert torch.equal(again.in_language("zh").logits(ids), model.in_language("zh").logits(ids))
    tokens = transformers.AutoTokenizer.from_pretrained(folder)("The dog", "jumps").input_ids
    assert tokens[0] == 3
    assert tokens.count(3) == 4


@pytest.mark.parametrize("languages", [1, 3])
@pytest.mark.parametrize("tied", [True, False])
def test_models_of_theirs_are_imported(languages: int, tied: bool) -> None:
    settings = {"vocab_size": TOKENS, "emb_dim": 16, "n_layers": 2, "n_heads": 2, "max_position_embeddings": 24}
    named = {"lang2id": {"zh": 1, "en": 0, "de": 2}} if languages == 3 else {}
    config = transformers.XLMConfig(n_langs=languages, tie_word_embeddings=tied, **settings, **named)
    torch.manual_seed(3)
    model = transformers.XLMWithLMHeadModel(config).eval()
    found = from_huggingface(config.to_dict(), {name: one.clone() for name, one in model.state_dict().items()})
    assert found.recipe.languages == (NAMES if languages == 3 else ())
    assert found.recipe.output.kind == ("tied" if tied else "full")
    vocabulary = Vocabulary([f"w{number}" for number in range(TOKENS)], np.zeros(TOKENS, dtype=np.int64))
    network = build_network(found.recipe, vocabulary, 0)
    network.load_state_dict(found.state, strict=False)
    batch, given = inputs(0)
    if languages == 1:
        del given["langs"]
    with torch.no_grad():
        mine = network.output.logits(network.eval()(batch).last_hidden_state).view(3, LENGTH, TOKENS)
        assert torch.allclose(mine, model(**given).logits, rtol=0, atol=TOLERANCE)


def test_what_cannot_be_exchanged_is_refused() -> None:
    network = ours(recipe_of())
    state = {name: parameter.detach() for name, parameter in network.named_parameters()}
    config, tensors = to_huggingface(network.recipe, state, {})
    with pytest.raises(ArtifactError, match="asm=True"):
        from_huggingface(config | {"asm": True}, tensors)
    with pytest.raises(ArtifactError, match="lang2id does not number them"):
        from_huggingface(config | {"lang2id": {"en": 0, "zh": 0, "de": 2}}, tensors)
    with pytest.raises(AbilityError, match=r"encoder\.ffn_width=17"):
        wide = replace(network.recipe, encoder=replace(network.recipe.encoder, ffn_width=17))
        to_huggingface(wide, state, {})
