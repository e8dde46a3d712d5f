"""Writing, by one network or by two, computes what BERT does in the transformers library."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from firth.artifact.formats.huggingface_weights import to_huggingface
from firth.fit.backbones import decoder_of
from firth.nets.model import own_tensors
from firth.recipes.nets import bert
from firth.tasks.decode import Decode, looking
from firth.tasks.examples import GenerateExample
from firth.tasks.frame import Frame
from firth.tasks.generate import Generate
from firth.tasks.recipe import TaskRecipe
from firth.tasks.rows import pack
from firth.tasks.task import LABELS, make_task
from firth.tokens.language import FIRST_WORD
from firth.tokens.tokenizer import BOS, EOS, MASK
from tests.artifact.formats.small_tasks import LONG, MIDDLE, SHORT, padded
from tests.artifact.formats.small_transformers import model_of, small

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

PAIRS = [GenerateExample(LONG, SHORT), GenerateExample("dog", LONG), GenerateExample(MIDDLE, "the lazy dog")]


def their_decoder(task: Decode, like: Any) -> Any:
    """BertLMHeadModel with the same weights, its look at the encoder among them."""
    tensors = {name: tensor.detach() for name, tensor in own_tensors(task.decoder).items()}
    plain = {name: tensor for name, tensor in tensors.items() if ".source." not in name and ".norm3." not in name}
    config, found = to_huggingface(like.recipe, plain, {})
    width = like.recipe.encoder.width
    for layer in range(like.recipe.encoder.layers):
        ours, their = f"encoders.0.layers.{layer}", f"bert.encoder.layer.{layer}.crossattention"
        for kind in ("weight", "bias"):
            key, value = tensors[f"{ours}.source.keys.{kind}"].split(width)
            found[f"{their}.self.query.{kind}"] = tensors[f"{ours}.source.query.{kind}"]
            found[f"{their}.self.key.{kind}"], found[f"{their}.self.value.{kind}"] = key, value
            found[f"{their}.output.dense.{kind}"] = tensors[f"{ours}.source.out.{kind}"]
            found[f"{their}.output.LayerNorm.{kind}"] = tensors[f"{ours}.norm3.{kind}"]
    made = transformers.BertLMHeadModel(
        transformers.BertConfig(**config | {"is_decoder": True, "add_cross_attention": True})
    )
    missing, unexpected = made.double().load_state_dict({n: t.double() for n, t in found.items()}, strict=False)
    assert all("cls.seq_relationship" in name or "pooler" in name for name in unexpected), unexpected
    assert all("decoder" in name for name in missing), missing  # tied
    made.tie_weights()
    return made.eval()


def test_losses_and_gradients_are_those_of_bert_as_a_decoder() -> None:
    reader, causal = model_of(small(bert())), small(bert())
    causal = replace(
        causal, visibility="causal", objectives="clm", rows=replace(causal.rows, format="sentences", length=24)
    )
    other = model_of(causal, seed=2)
    writes = looking(decoder_of(other, reader).recipe, reader.recipe.width)
    recipe = TaskRecipe(task="generate", network=reader.recipe, decoder=writes)
    task = make_task(recipe, reader.network.vocabulary)
    assert isinstance(task, Decode)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in task.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    frame = Frame(reader.recipe, reader.tokenizer)
    rows = [row for some in task.rows(PAIRS, frame) for row in some]
    reader.network.double()
    task.double()
    batch = pack(rows, FIRST_WORD)
    assert len(rows) > len(batch.ids), "some sources should stand side by side"
    states = reader.network(batch, task.places(batch))
    loss = task.loss(reader.network, states, batch, None)
    loss.total.backward()

    theirs = their_decoder(task, reader)
    config, tensors = to_huggingface(reader.recipe, {n: t.detach() for n, t in own_tensors(reader.network).items()}, {})
    encoder = transformers.BertModel(transformers.BertConfig(**config), add_pooling_layer=False).double().eval()
    body = {name.removeprefix("bert."): tensor.double() for name, tensor in tensors.items()}
    encoder.load_state_dict(body, strict=False)
    given = padded(rows)
    read = encoder(**given).last_hidden_state
    total: Tensor = torch.zeros((), dtype=torch.float64)
    for number, row in enumerate(rows):
        labels = torch.from_numpy(row.marks[LABELS])
        entered = torch.cat([torch.tensor([EOS]), labels[:-1]])[None]
        mask = given["attention_mask"][number : number + 1]
        logits = theirs(
            input_ids=entered,
            encoder_hidden_states=read[number : number + 1],
            encoder_attention_mask=mask,
        ).logits[0]
        total = total + torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    total.backward()
    assert torch.allclose(loss.total.detach(), total.detach(), rtol=1e-10)
    assert loss.count == sum(row.marks[LABELS].size for row in rows)
    ours = task.decoder.encoders[0].layers[0].source.out.weight.grad
    assert torch.allclose(ours, theirs.bert.encoder.layer[0].crossattention.output.dense.weight.grad, atol=1e-10)
    tokens = reader.network.embedding.table.grad
    assert torch.allclose(tokens, encoder.embeddings.word_embeddings.weight.grad, atol=1e-10)
    assert float(tokens.abs().sum()) > 0


def test_masks_that_ask_find_what_they_find_in_theirs() -> None:
    """Source, target and a mask for each token of it, with a table of who sees whom, in BertForMaskedLM."""
    recipe = small(bert())
    model = model_of(replace(recipe, rows=replace(recipe.rows, length=48)))
    task = make_task(TaskRecipe(task="generate", network=model.recipe), model.network.vocabulary)
    assert isinstance(task, Generate)
    frame, network = Frame(model.recipe, model.tokenizer), model.network.double()
    rows = [row for some in task.rows(PAIRS, frame) for row in some]
    batch = pack(rows, FIRST_WORD)
    loss = task.loss(network, network(batch, task.places(batch)), batch, None)

    tensors = {name: tensor.detach() for name, tensor in own_tensors(network).items()}
    config, found = to_huggingface(model.recipe, tensors, {})
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**config, attn_implementation="eager")).double()
    theirs.load_state_dict({name: tensor.double() for name, tensor in found.items()}, strict=False)
    theirs.tie_weights()
    total = 0.0
    for pair in PAIRS:
        source, target = frame.encode([pair.source])[0].tolist(), frame.encode([pair.target or ""])[0].tolist()
        begin, asked = len(source) + 2, len(target) + 1
        ids = [BOS, *source, EOS, *target, *[MASK] * asked]
        places = [*range(begin + len(target)), *range(begin, begin + asked)]
        sees = torch.zeros(len(ids), len(ids), dtype=torch.int64)
        for one, place in enumerate(places):
            for other in range(begin + len(target)):
                mask = one >= begin + len(target)
                sees[one, other] = other < begin or (other < place if mask else other <= place)
            sees[one, one] = 1
        logits = theirs.eval()(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.log(sees.double())[None, None],
            token_type_ids=torch.tensor([[int(place >= begin) for place in places]]),
            position_ids=torch.tensor([places]),
        ).logits[0, -asked:]
        labels = torch.tensor([*target, EOS])
        total += torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()
    assert loss.total.item() == pytest.approx(total, abs=1e-9)
    assert loss.count == sum(row.unseen for row in rows)
