"""ERNIE of transformers computes the same as Firth, with and without task embeddings: states, losses, gradients."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch

from firth.artifact.formats.huggingface import from_huggingface, to_huggingface
from firth.artifact.formats.huggingface_config import model_type_for
from firth.artifact.formats.huggingface_names import to_theirs
from firth.errors import ArtifactError
from firth.nets.embedding import TASKS
from firth.nets.network import build_network
from firth.nets.recipe import NetRecipe
from firth.recipes.knowledge import ernie
from firth.recipes.nets import bert, resize
from tests.parity.test_transformers import LENGTH, TOKENS, exported, heads_of, masked_batch, ours, rows_of, vocabulary

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

TASK_COUNTS = pytest.mark.parametrize("tasks", [0, 3])


def small(tasks: int, size: str = "tiny") -> NetRecipe:
    """An ERNIE of one kind of sequences."""
    recipe = resize(ernie(), size)
    return replace(
        recipe,
        objectives=tuple(one for one in recipe.objectives if not one.lays_out),
        embedding=replace(recipe.embedding, tasks=tasks),
    )


@TASK_COUNTS
@pytest.mark.parametrize("size", ["tiny", "mini"])
def test_states_losses_and_gradients(tasks: int, size: str) -> None:
    recipe = small(tasks, size)
    network, heads = ours(recipe)
    model = exported(network, heads)
    assert type(model).__name__ == "ErnieForPreTraining"
    assert (model.config.use_task_id, model.config.task_type_vocab_size) == (tasks > 0, 3)
    batch, given = rows_of(recipe, 5)
    if tasks:
        batch.side_ids[TASKS] = torch.arange(LENGTH).expand(3, -1) % tasks
        given["task_type_ids"] = batch.side_ids[TASKS]
    with torch.no_grad():
        states, found = network(batch), model(**given, output_hidden_states=True)
        read = given["attention_mask"].bool()
        for mine, other in zip(states.layers, found.hidden_states, strict=True):
            assert torch.allclose(mine[read], other[read], rtol=0, atol=1e-9)
        logits = network.output.logits(states.last_hidden_state).view(3, LENGTH, TOKENS)
        assert torch.allclose(logits[read], found.prediction_logits[read], rtol=0, atol=1e-9)
    plain, inputs = rows_of(recipe)
    inputs |= masked_batch(recipe, plain)  # without ids of tasks: those of the first one
    losses = [head.loss(network, network(plain), plain, None) for head in heads.values()]
    total = torch.stack([loss.total / loss.count for loss in losses]).sum()
    other = model(**inputs).loss
    assert total.item() == pytest.approx(other.item(), abs=1e-6)  # theirs is rounded to single precision
    total.backward()
    other.backward()
    parameters = dict(network.named_parameters()) | heads_of(heads)
    gradients = {name: parameter.grad for name, parameter in parameters.items()}
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, gradient in to_theirs("ernie", gradients, offset=0).items():  # type: ignore[arg-type]
        assert torch.allclose(gradient, expected[name], rtol=0, atol=1e-6), name


@pytest.mark.parametrize("uses", [False, True])
@pytest.mark.parametrize("name", ["ErnieForMaskedLM", "ErnieForPreTraining"])
def test_random_models_are_imported_and_exported_again(name: str, uses: bool) -> None:
    config = transformers.ErnieConfig(
        num_hidden_layers=3,
        num_attention_heads=2,
        hidden_size=16,
        vocab_size=TOKENS,
        intermediate_size=40,
        max_position_embeddings=LENGTH,
        use_task_id=uses,
        task_type_vocab_size=5,
    )
    torch.manual_seed(1)
    model = getattr(transformers, name)(config).eval()
    given = {**config.to_dict(), "architectures": [name]}
    read = from_huggingface(given, model.state_dict())
    assert read.recipe.embedding.tasks == (5 if uses else 0)
    assert model_type_for(read.recipe).name == "ernie"
    assert ("nsp" in read.recipe.names) == (name == "ErnieForPreTraining")
    network = build_network(read.recipe, vocabulary(), seed=0).eval()
    _, unexpected = network.load_state_dict(read.state, strict=False)
    assert not unexpected
    batch, inputs = rows_of(read.recipe)
    with torch.no_grad():
        scores = network.output.logits(network(batch).last_hidden_state).view(3, LENGTH, TOKENS)
        found = model(**inputs)
    theirs = found.logits if name == "ErnieForMaskedLM" else found.prediction_logits
    assert torch.allclose(scores, theirs, rtol=0, atol=1e-5)
    back, tensors = to_huggingface(read.recipe, read.state, read.heads)
    assert (back["model_type"], back["architectures"]) == ("ernie", [name])
    original = model.state_dict()
    for key, tensor in tensors.items():
        assert torch.equal(tensor, original[key]), key


@pytest.mark.parametrize("change", [{"use_task_id": "yes"}, {"task_type_vocab_size": 0, "use_task_id": True}])
def test_wrong_numbers_of_tasks_are_refused(change: dict[str, Any]) -> None:
    config = transformers.ErnieConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=1, vocab_size=TOKENS)
    state = transformers.ErnieForMaskedLM(config).state_dict()
    with pytest.raises(ArtifactError, match="use_task_id="):
        from_huggingface({**config.to_dict(), **change}, state)


def test_which_recipes_are_ernies() -> None:
    assert model_type_for(ernie()).name == "ernie"
    assert model_type_for(bert()).name == "bert"
    assert model_type_for(replace(bert(), embedding=replace(bert().embedding, tasks=2))).name == "ernie"
