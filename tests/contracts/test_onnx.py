"""Tests over every neural recipe: onnxruntime computes what Firth computes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.artifact.formats import export_model
from firth.artifact.formats.onnx_models import has_mean_vectors
from firth.nets.batch import Batch
from firth.nets.causal import BidirectionalNet, CausalNet
from firth.nets.context import ContextNet
from firth.nets.electra import ElectraNet
from firth.nets.embedding import LANGUAGES
from firth.nets.model import NetModel
from firth.nets.outputs.output import NoOutput
from firth.nets.permutation import PermutationNet
from firth.nets.scoring import make_batch
from firth.nets.seq2seq import Seq2SeqNet
from firth.nets.visibility import make_encoder_states
from firth.tokens.tokenizer import EOS, FIRST_WORD, MASK
from tests.nets.small_nets import NETS, small_net
from tests.onnx_sessions import Session

EVERY = pytest.mark.parametrize("name", NETS)
LENGTHS = (9, 4, 1)
TOLERANCE = 1e-4


def close(found: Any, wanted: Tensor) -> None:
    torch.testing.assert_close(torch.from_numpy(np.array(found)), wanted, rtol=TOLERANCE, atol=TOLERANCE)


def padded_ids(model: NetModel, lengths: tuple[int, ...] = LENGTHS) -> tuple[Tensor, Tensor]:
    """Rows of different lengths, and the mask of their tokens."""
    rng = np.random.default_rng(5)
    ids = torch.from_numpy(rng.integers(FIRST_WORD, len(model.words), (len(lengths), max(lengths))))
    is_token = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids * is_token, is_token


def further_inputs(model: NetModel, ids: Tensor) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Segments and languages, if the network has them: as inputs of a graph and as fields of a batch."""
    inputs: dict[str, Tensor] = {}
    fields: dict[str, Any] = {}
    if model.recipe.segments:
        inputs["token_type_ids"] = fields["segment_ids"] = (torch.arange(ids.shape[1]) > 2).long().expand_as(ids)
    if model.recipe.embedding.languages:
        inputs["language_ids"] = torch.ones_like(ids) * (model.recipe.embedding.languages - 1)
        fields["side_ids"] = {LANGUAGES: inputs["language_ids"]}
    return inputs, fields


def run_padded(model: NetModel, session: Session) -> tuple[dict[str, Any], Any, Tensor]:
    """The outputs of a graph for padded rows, the states of the network, and the mask of tokens."""
    ids, is_token = padded_ids(model)
    inputs, fields = further_inputs(model, ids)
    found = session(input_ids=ids, attention_mask=is_token.long(), **inputs)
    with torch.inference_mode():
        states = model.network(Batch(ids, is_token, sequence_ids=is_token.long() - 1, **fields))
    return found, states, is_token


@EVERY
def test_hidden_states_are_those_of_the_network(name: str, tmp_path: Path) -> None:
    model = small_net(name)
    export_model(model, "onnx", tmp_path / "m")
    file = "encoder.onnx" if isinstance(model, Seq2SeqNet) else "model.onnx"
    found, states, is_token = run_padded(model, Session(tmp_path / "m" / file))
    last = states.last_hidden_state.view(*is_token.shape, -1)
    close(found["last_hidden_state"][is_token.numpy()], last[is_token])
    if isinstance(model, ContextNet):
        return
    assert sum(key.startswith("hidden_states.") for key in found) == len(states.layers)
    for number, layer in enumerate(states.layers):
        close(found[f"hidden_states.{number}"][is_token.numpy()], layer[is_token])


@EVERY
def test_vectors_of_texts_are_those_of_embed(name: str, tmp_path: Path) -> None:
    """Also read as users do: with the tokenizer of the folder alone."""
    model = small_net(name, length=24)
    export_model(model, "onnx", tmp_path / "m")
    texts = ["the cat sat", "a dog", "the dog ran on the grass and slept"]
    found = Session(tmp_path / "m" / ("encoder.onnx" if isinstance(model, Seq2SeqNet) else "model.onnx"))
    inputs = found.read(texts, json.loads((tmp_path / "m" / "onnx.json").read_text()))
    if model.recipe.embedding.languages:
        languages = [model.recipe.languages.index(model.language_of(text)) if model.languages else 0 for text in texts]
        inputs["language_ids"] = np.zeros_like(inputs["input_ids"]) + np.array(languages)[:, None]
    made = found(**inputs)
    if not has_mean_vectors(model.recipe):
        assert "sentence_embedding" not in made
        return
    close(made["sentence_embedding"], torch.from_numpy(model.embed(texts)))
    if "sentence_embedding_whole" in made:
        close(made["sentence_embedding_whole"], torch.from_numpy(model.embed(texts, pooling="whole")))


@EVERY
def test_logits_are_those_of_the_model(name: str, tmp_path: Path) -> None:
    model = small_net(name)
    export_model(model, "onnx", tmp_path / "m")
    ids, _ = padded_ids(model, (8, 8))
    ones = torch.ones_like(ids)
    if isinstance(model, Seq2SeqNet):
        encoder, decoder = (Session(tmp_path / "m" / file) for file in ("encoder.onnx", "decoder.onnx"))
        inputs, _ = further_inputs(model, ids)
        assert not inputs, "logits() has no segments"
        states = encoder(input_ids=ids, attention_mask=ones)["last_hidden_state"]
        made = decoder(input_ids=ids[:, :5], encoder_hidden_states=states, encoder_attention_mask=ones)
        close(made["logits"], model.logits(ids[:, :5], ids))
        return
    given = zero_inputs(model, ids)
    found = Session(tmp_path / "m" / "model.onnx")(input_ids=ids, attention_mask=ones, **given)
    if isinstance(model.network.output, NoOutput) and not isinstance(model, ElectraNet):
        assert not (tmp_path / "m" / "lm_head.onnx").exists()
        return
    if "logits" in found:
        assert isinstance(model, CausalNet)
        close(found["logits"], model.logits(ids))
        return
    head = Session(tmp_path / "m" / "lm_head.onnx")
    if isinstance(model, ElectraNet):
        found = Session(tmp_path / "m" / "generator.onnx")(input_ids=ids, attention_mask=ones, **given)
    if isinstance(model, ContextNet):
        rows = torch.nn.functional.pad(ids, (1, 1), value=EOS)
        found = Session(tmp_path / "m" / "model.onnx")(input_ids=rows, attention_mask=torch.ones_like(rows))
        made = head(hidden_states=found["context_vectors"][:, 1:-1].reshape(ids.numel(), -1))["logits"]
        close(made.reshape(*ids.shape, -1), model.logits(ids))
        return
    states = found["last_hidden_state"].reshape(ids.numel(), -1)
    if isinstance(model, PermutationNet):
        return  # its logits are those of queries, which have a test of their own
    if isinstance(model, BidirectionalNet):
        with torch.inference_mode():
            both = model.network(make_batch(ids)).last_hidden_state
            backward = model.network.output.logits(both[:, both.shape[1] // 2 :])
        close(head(hidden_states=states[:, states.shape[1] // 2 :])["logits"], backward)
        states = states[:, : states.shape[1] // 2]
    if type(model).__name__ == "UnifiedNet":
        with torch.inference_mode():
            wanted = model.network.output.logits(model.network(make_batch(ids)).last_hidden_state)
        close(head(hidden_states=states)["logits"], wanted)
        return
    close(head(hidden_states=states)["logits"].reshape(*ids.shape, -1), model.logits(ids))


def zero_inputs(model: NetModel, ids: Tensor) -> dict[str, Tensor]:
    """Segments of 0, and the languages that the network chooses."""
    given = {"token_type_ids": torch.zeros_like(ids)} if model.recipe.segments else {}
    if model.recipe.embedding.languages:
        given["language_ids"] = model.network.language_votes.choose(ids).contiguous()
    return given


@pytest.mark.parametrize("name", [name for name in NETS if isinstance(small_net(name), CausalNet)])
def test_steps_after_past_states_are_those_of_the_whole(name: str, tmp_path: Path) -> None:
    model = small_net(name)
    export_model(model, "onnx", tmp_path / "m")
    file = tmp_path / "m" / "model_with_past.onnx"
    has_states = model.recipe.encoder.kind in ("rnn", "lstm", "transformer") and not model.recipe.memory.length
    assert file.exists() == (has_states and model.recipe.visibility == "causal")
    if file.exists():
        check_steps(Session(file), padded_ids(model, (8, 8))[0], model.logits(padded_ids(model, (8, 8))[0]))


def check_steps(session: Session, ids: Tensor, wanted: Tensor, **more: Any) -> None:
    """The logits of ids that are read in three parts."""
    past, done, needs_mask = session.no_past(len(ids)), 0, "attention_mask" in session.inputs
    is_attention = any(one.ndim == 4 for one in past.values())
    for end in (1, 5, ids.shape[1]):
        part = ids[:, done:end].contiguous()
        mask = {"attention_mask": torch.ones(len(ids), end if is_attention else end - done, dtype=torch.int64)}
        made = session(input_ids=part, **past, **(mask if needs_mask else {}), **more)
        close(made["logits"], wanted[:, done:end])
        past = {key.replace("present", "past"): one for key, one in made.items() if key.startswith("present")}
        done = end


@pytest.mark.parametrize("name", [name for name in NETS if isinstance(small_net(name), Seq2SeqNet)])
def test_decoders_take_padded_sources_and_steps(name: str, tmp_path: Path) -> None:
    model = small_net(name)
    export_model(model, "onnx", tmp_path / "m")
    ids, is_token = padded_ids(model, (7, 3))
    encoder, decoder = (Session(tmp_path / "m" / file) for file in ("encoder.onnx", "decoder.onnx"))
    states = encoder(input_ids=ids, attention_mask=is_token.long())["last_hidden_state"]
    target = padded_ids(model, (8, 8))[0]
    with torch.inference_mode():
        source = Batch(ids, is_token, sequence_ids=is_token.long() - 1)
        encoded = make_encoder_states(model.network(source).last_hidden_state.view(*ids.shape, -1), is_token)
        hidden, _ = model.network.decode_step(target, encoder_states=encoded)
        wanted = model.network.output.logits(hidden.flatten(0, 1)).view(*target.shape, -1)
    given = {"encoder_hidden_states": states, "encoder_attention_mask": is_token.long()}
    close(decoder(input_ids=target, **given)["logits"], wanted)
    check_steps(Session(tmp_path / "m" / "decoder_with_past.onnx"), target, wanted, **given)


def test_queries_of_permuted_networks_are_those_of_fill(tmp_path: Path) -> None:
    model = small_net("xlnet", length=24)
    assert isinstance(model, PermutationNet)
    export_model(model, "onnx", tmp_path / "m")
    ids, is_token = padded_ids(model, (9, 6))
    ids[0, 2] = ids[0, 5] = ids[1, 1] = MASK
    order = (ids == MASK).long()
    given = {"token_type_ids": torch.zeros_like(ids)}
    states = Session(tmp_path / "m" / "queries.onnx")(
        input_ids=ids, attention_mask=is_token.long(), attention_order=order, **given
    )["last_hidden_state"]
    head = Session(tmp_path / "m" / "lm_head.onnx")
    for row, length in enumerate((9, 6)):
        masks = order[row, :length].nonzero()[:, 0]
        with torch.inference_mode():
            wanted = model.network.output.logits(model.mask_states(make_batch(ids[row : row + 1, :length]), masks))
        close(head(hidden_states=states[row, masks.numpy()])["logits"], wanted)


OUTPUTS = ["full", "tied", "classes", "huffman", "tree", "importance", "nce", "adaptive", "adaptive-tied"]


@pytest.mark.parametrize("kind", OUTPUTS)
@pytest.mark.parametrize("transform", [False, True])
def test_every_output_layer_has_the_same_logits(kind: Any, transform: bool, tmp_path: Path) -> None:
    first = small_net("gpt")
    model = small_net("gpt", output=replace(first.recipe.output, kind=kind, transform=transform))
    export_model(model, "onnx", tmp_path / "m")
    ids, _ = padded_ids(model, (8, 8))
    found = Session(tmp_path / "m" / "model.onnx")(input_ids=ids, attention_mask=torch.ones_like(ids))
    close(found["logits"], model.logits(ids))


def test_layers_of_different_sizes(tmp_path: Path) -> None:
    """Of a network whose heads and units were pruned."""
    encoder = replace(small_net("gpt").recipe.encoder, layers=2, heads=2, layer_sizes=("1x8", "2x24"))
    model = small_net("gpt", encoder=encoder)
    export_model(model, "onnx", tmp_path / "m")
    ids, _ = padded_ids(model, (8, 8))
    found = Session(tmp_path / "m" / "model.onnx")(input_ids=ids, attention_mask=torch.ones_like(ids))
    close(found["logits"], model.logits(ids))
    check_steps(Session(tmp_path / "m" / "model_with_past.onnx"), ids, model.logits(ids))
