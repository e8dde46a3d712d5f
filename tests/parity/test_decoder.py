"""Generation with one network or with encoder and decoder computes what BERT does in transformers."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from firth.artifact.formats.huggingface_weights import to_huggingface
from firth.fit.backbones import decoder_network
from firth.nets.model import own_tensors
from firth.objectives.registry import parse_objectives
from firth.recipes.nets import bert
from firth.tasks.examples import GenerateExample
from firth.tasks.generate import EncoderDecoderTask, GenerateTask, with_cross_attention
from firth.tasks.recipe import TaskRecipe
from firth.tasks.registry import make_task
from firth.tasks.sequences import SequenceBuilder, pack
from firth.tasks.task import LABELS
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, MASK
from tests.artifact.formats.small_tasks import LONG, MIDDLE, SHORT, padded
from tests.artifact.formats.small_transformers import model_of, small

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

PAIRS = [GenerateExample(LONG, SHORT), GenerateExample("dog", LONG), GenerateExample(MIDDLE, "the lazy dog")]


def their_decoder(task: EncoderDecoderTask, like: Any) -> Any:
    """BertLMHeadModel with the same weights, cross-attention included."""
    tensors = {name: tensor.detach() for name, tensor in own_tensors(task.decoder).items()}
    plain = {
        name: tensor for name, tensor in tensors.items() if ".cross_attention." not in name and ".norm3." not in name
    }
    config, found = to_huggingface(like.recipe, plain, {})
    width = like.recipe.encoder.width
    for layer in range(like.recipe.encoder.layers):
        ours, their = f"encoders.0.layers.{layer}", f"bert.encoder.layer.{layer}.crossattention"
        for kind in ("weight", "bias"):
            key, value = tensors[f"{ours}.cross_attention.keys.{kind}"].split(width)
            found[f"{their}.self.query.{kind}"] = tensors[f"{ours}.cross_attention.query.{kind}"]
            found[f"{their}.self.key.{kind}"], found[f"{their}.self.value.{kind}"] = key, value
            found[f"{their}.output.dense.{kind}"] = tensors[f"{ours}.cross_attention.out.{kind}"]
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
    encoder_model, causal = model_of(small(bert())), small(bert())
    causal = replace(
        causal,
        visibility="causal",
        objectives=parse_objectives("clm"),
        sequence=replace(causal.sequence, format="sentences", length=24),
    )
    other = model_of(causal, seed=2)
    decoder_recipe = with_cross_attention(decoder_network(other, encoder_model).recipe, encoder_model.recipe.width)
    recipe = TaskRecipe(task="generate", network=encoder_model.recipe, decoder=decoder_recipe)
    task = make_task(recipe, encoder_model.network.vocabulary)
    assert isinstance(task, EncoderDecoderTask)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in task.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    builder = SequenceBuilder(encoder_model.recipe, encoder_model.tokenizer)
    rows = [row for some in task.sequences(PAIRS, builder) for row in some]
    encoder_model.network.double()
    task.double()
    batch = pack(rows, FIRST_WORD)
    assert len(rows) > len(batch.ids), "some sources should be packed together"
    states = encoder_model.network(batch, task.positions(batch))
    loss = task.loss(encoder_model.network, states, batch, None)
    loss.total.backward()

    theirs = their_decoder(task, encoder_model)
    config, tensors = to_huggingface(
        encoder_model.recipe, {n: t.detach() for n, t in own_tensors(encoder_model.network).items()}, {}
    )
    encoder = transformers.BertModel(transformers.BertConfig(**config), add_pooling_layer=False).double().eval()
    body = {name.removeprefix("bert."): tensor.double() for name, tensor in tensors.items()}
    encoder.load_state_dict(body, strict=False)
    given = padded(rows)
    encoder_states = encoder(**given).last_hidden_state
    total: Tensor = torch.zeros((), dtype=torch.float64)
    for number, row in enumerate(rows):
        labels = torch.from_numpy(row.labels[LABELS])
        inputs = torch.cat([torch.tensor([EOS]), labels[:-1]])[None]
        mask = given["attention_mask"][number : number + 1]
        logits = theirs(
            input_ids=inputs,
            encoder_hidden_states=encoder_states[number : number + 1],
            encoder_attention_mask=mask,
        ).logits[0]
        total = total + torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    total.backward()
    assert torch.allclose(loss.total.detach(), total.detach(), rtol=1e-10)
    assert loss.count == sum(row.labels[LABELS].size for row in rows)
    ours = task.decoder.encoders[0].layers[0].cross_attention.out.weight.grad
    assert torch.allclose(ours, theirs.bert.encoder.layer[0].crossattention.output.dense.weight.grad, atol=1e-10)
    tokens = encoder_model.network.embedding.table.grad
    assert torch.allclose(tokens, encoder.embeddings.word_embeddings.weight.grad, atol=1e-10)
    assert float(tokens.abs().sum()) > 0


def test_mask_queries_predict_the_same() -> None:
    """Source, target and a mask query for each target token, with an attention mask, in BertForMaskedLM."""
    recipe = small(bert())
    model = model_of(replace(recipe, sequence=replace(recipe.sequence, length=48)))
    task = make_task(TaskRecipe(task="generate", network=model.recipe), model.network.vocabulary)
    assert isinstance(task, GenerateTask)
    builder, network = SequenceBuilder(model.recipe, model.tokenizer), model.network.double()
    rows = [row for some in task.sequences(PAIRS, builder) for row in some]
    batch = pack(rows, FIRST_WORD)
    loss = task.loss(network, network(batch, task.positions(batch)), batch, None)

    tensors = {name: tensor.detach() for name, tensor in own_tensors(network).items()}
    config, found = to_huggingface(model.recipe, tensors, {})
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**config, attn_implementation="eager")).double()
    theirs.load_state_dict({name: tensor.double() for name, tensor in found.items()}, strict=False)
    theirs.tie_weights()
    total = 0.0
    for pair in PAIRS:
        source, target = builder.encode([pair.source])[0].tolist(), builder.encode([pair.target or ""])[0].tolist()
        begin, queries = len(source) + 2, len(target) + 1
        ids = [BOS, *source, EOS, *target, *[MASK] * queries]
        positions = [*range(begin + len(target)), *range(begin, begin + queries)]
        mask_matrix = torch.zeros(len(ids), len(ids), dtype=torch.int64)
        for one, position in enumerate(positions):
            for other in range(begin + len(target)):
                mask = one >= begin + len(target)
                mask_matrix[one, other] = other < begin or (other < position if mask else other <= position)
            mask_matrix[one, one] = 1
        logits = theirs.eval()(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.log(mask_matrix.double())[None, None],
            token_type_ids=torch.tensor([[int(position >= begin) for position in positions]]),
            position_ids=torch.tensor([positions]),
        ).logits[0, -queries:]
        labels = torch.tensor([*target, EOS])
        total += torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()
    assert loss.total.item() == pytest.approx(total, abs=1e-9)
    assert loss.count == sum(row.query_only for row in rows)
