"""Networks against `transformers`: equal parameters give equal states, probabilities and gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.errors import AbilityError
from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.network import HiddenStates, KVCache, Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.objectives.registry import parse_objectives
from firth.recipes.nets import albert, bert, gpt2, roberta

transformers = pytest.importorskip("transformers")

WORDS, WIDTH, LAYERS, HEADS, LENGTH, CLOSE = 50, 16, 3, 2, 12, 1e-5
MASKED = {"vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
          "intermediate_size": 4 * WIDTH, "attn_implementation": "eager", "pad_token_id": 0}  # fmt: skip


def small(recipe: NetRecipe, **encoder: Any) -> NetRecipe:
    width = min(recipe.embedding.width, WIDTH) if recipe.embedding.width == recipe.encoder.width else 8
    return replace(
        recipe,
        embedding=replace(recipe.embedding, width=width),
        encoder=replace(recipe.encoder, layers=LAYERS, width=WIDTH, heads=HEADS, ffn_width=4 * WIDTH, **encoder),
        sequence=replace(recipe.sequence, length=LENGTH),
    )


def build(recipe: NetRecipe, words: int = WORDS) -> Network:
    return build_network(recipe, Vocabulary([str(word) for word in range(words)], np.ones(words, dtype=np.int64)), 0)


def shake(model: nn.Module) -> None:
    """Random weights large enough for every part to matter."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.ndim > 1 else 0.5))


def rows(count: int = 4, length: int = LENGTH, words: int = WORDS) -> Tensor:
    return torch.randint(5, words, (count, length), generator=torch.Generator().manual_seed(2))


def make_batch(ids: Tensor, **more: Tensor) -> Batch:
    return Batch(ids, torch.ones_like(ids, dtype=torch.bool), **more)


class Pair(NamedTuple):
    """A network and one of `transformers` with the same parameters."""

    ours: Network
    theirs: nn.Module
    names: list[tuple[str, list[str], bool]]
    """Our parameter, theirs (one below the other), and whether these are transposed."""


def make_pair(ours: Network, theirs: nn.Module, names: dict[str, str], transposed: bool = False) -> Pair:
    """`names` are of modules, with * for the number of a layer; the parameters of `theirs` are copied to `ours`."""
    shake(theirs)
    theirs.eval()
    known, found = dict(theirs.named_parameters()), []
    for name, parameter in ours.named_parameters():
        module, _, leaf = name.rpartition(".")
        number = module.split("layers.")[1].split(".")[0] if "layers." in module else ""
        before, _, last = names[module.replace(f"layers.{number}.", "layers.*.")].replace("*", number).rpartition(".")
        sources = [f"{before}.{one}.{leaf}".lstrip(".") for one in last.split("|")]
        turned = transposed and parameter.ndim == 2 and "layers" in name
        with torch.no_grad():
            values = torch.cat([known[one].T if turned else known[one] for one in sources])
            parameter.copy_(values[len(values) - len(parameter) :])  # RoBERTa's positions begin with two of padding
        found.append((name, sources, turned))
    return Pair(ours, theirs, found)


def masked_names(model: str, layer: str, shared: str = "attention.self.query|key|value") -> dict[str, str]:
    return {
        "embedding.tokens": f"{model}.embeddings.word_embeddings",
        "embedding.positions": f"{model}.embeddings.position_embeddings",
        "embedding.segments": f"{model}.embeddings.token_type_embeddings",
        "embedding.norm": f"{model}.embeddings.LayerNorm",
        "embedding.project": f"{model}.encoder.embedding_hidden_mapping_in",
        "encoders.0.layers.*.attention.qkv": f"{layer}.{shared}",
    }


def bert_pair() -> Pair:
    recipe = replace(
        small(bert()),
        objectives=parse_objectives("mlm"),
        sequence=replace(small(bert()).sequence, format="full-sentences"),
    )
    layer = "bert.encoder.layer.*"
    names = masked_names("bert", layer) | {
        "encoders.0.layers.*.attention.out": f"{layer}.attention.output.dense",
        "encoders.0.layers.*.norm1": f"{layer}.attention.output.LayerNorm",
        "encoders.0.layers.*.feedforward.inner": f"{layer}.intermediate.dense",
        "encoders.0.layers.*.feedforward.outer": f"{layer}.output.dense",
        "encoders.0.layers.*.norm2": f"{layer}.output.LayerNorm",
        "output.transform.dense": "cls.predictions.transform.dense",
        "output.transform.norm": "cls.predictions.transform.LayerNorm",
        "output": "cls.predictions",
    }
    theirs = transformers.BertForMaskedLM(transformers.BertConfig(**MASKED, max_position_embeddings=LENGTH))
    return make_pair(build(recipe), theirs, names)


def roberta_pair() -> Pair:
    layer = "roberta.encoder.layer.*"
    names = masked_names("roberta", layer) | {
        "encoders.0.layers.*.attention.out": f"{layer}.attention.output.dense",
        "encoders.0.layers.*.norm1": f"{layer}.attention.output.LayerNorm",
        "encoders.0.layers.*.feedforward.inner": f"{layer}.intermediate.dense",
        "encoders.0.layers.*.feedforward.outer": f"{layer}.output.dense",
        "encoders.0.layers.*.norm2": f"{layer}.output.LayerNorm",
        "output.transform.dense": "lm_head.dense",
        "output.transform.norm": "lm_head.layer_norm",
        "output": "lm_head",
    }
    config = transformers.RobertaConfig(
        **MASKED | {"pad_token_id": 1}, max_position_embeddings=LENGTH + 2, type_vocab_size=1, layer_norm_eps=1e-5
    )
    pair = make_pair(build(small(roberta(), eps=1e-5)), transformers.RobertaForMaskedLM(config), names)
    with torch.no_grad():  # the one segment that is always added there; ours has none
        pair.theirs.roberta.embeddings.token_type_embeddings.weight.zero_()
    return pair


def albert_pair() -> Pair:
    recipe = replace(
        small(albert()),
        objectives=parse_objectives("mlm"),
        sequence=replace(small(albert()).sequence, format="full-sentences"),
    )
    layer = "albert.encoder.albert_layer_groups.0.albert_layers.0"
    names = masked_names("albert", layer, "attention.query|key|value") | {
        "encoders.0.layers.*.attention.out": f"{layer}.attention.dense",
        "encoders.0.layers.*.norm1": f"{layer}.attention.LayerNorm",
        "encoders.0.layers.*.feedforward.inner": f"{layer}.ffn",
        "encoders.0.layers.*.feedforward.outer": f"{layer}.ffn_output",
        "encoders.0.layers.*.norm2": f"{layer}.full_layer_layer_norm",
        "output.transform.dense": "predictions.dense",
        "output.transform.norm": "predictions.LayerNorm",
        "output": "predictions",
    }
    config = transformers.AlbertConfig(**MASKED, max_position_embeddings=LENGTH, embedding_size=8)
    return make_pair(build(recipe), transformers.AlbertForMaskedLM(config), names)


def gpt2_pair() -> Pair:
    layer = "transformer.h.*"
    names = {
        "embedding.tokens": "transformer.wte",
        "embedding.positions": "transformer.wpe",
        "encoders.0.layers.*.norm1": f"{layer}.ln_1",
        "encoders.0.layers.*.attention.qkv": f"{layer}.attn.c_attn",
        "encoders.0.layers.*.attention.out": f"{layer}.attn.c_proj",
        "encoders.0.layers.*.norm2": f"{layer}.ln_2",
        "encoders.0.layers.*.feedforward.inner": f"{layer}.mlp.c_fc",
        "encoders.0.layers.*.feedforward.outer": f"{layer}.mlp.c_proj",
        "encoders.0.norm": "transformer.ln_f",
    }
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, attn_implementation="eager",
        bos_token_id=3, eos_token_id=3,
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(config)
    return make_pair(build(small(gpt2(), eps=1e-5)), theirs, names, transposed=True)


PAIRS = {"bert": bert_pair, "roberta": roberta_pair, "albert": albert_pair, "gpt2": gpt2_pair}


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> Pair:
    transformers.logging.set_verbosity_error()
    return PAIRS[request.param]()


def near(ours: Tensor, theirs: Tensor) -> None:
    """Within 1e-5 of the largest number."""
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs, rtol=0, atol=CLOSE * max(1.0, float(theirs.detach().abs().max())))


def causal(pair: Pair) -> bool:
    return pair.ours.recipe.visibility == "causal"


def test_all_layers_and_logits_are_those_of_transformers(pair: Pair) -> None:
    ids = rows()
    more = {} if pair.ours.embedding.segments is None else {"segment_ids": (ids % 2)}
    theirs = pair.theirs(
        input_ids=ids, output_hidden_states=True, **({"token_type_ids": more["segment_ids"]} if more else {})
    )
    states = pair.ours(make_batch(ids, **more))
    assert len(states.layers) == LAYERS + 1
    for ours, expected in zip(states.layers, theirs.hidden_states, strict=True):
        near(ours, expected)
    near(pair.ours.output.logits(states.last_hidden_state).view(*ids.shape, -1), theirs.logits)


def test_loss_and_gradients_are_those_of_transformers(pair: Pair) -> None:
    ids = rows()
    if causal(pair):
        positions = torch.arange(ids.numel()).view(ids.shape)[:, :-1].flatten()
        labels, targets = ids, ids[:, 1:].flatten()
    else:
        positions = torch.tensor([1, 2, 7, 15, 30, 40])
        targets = ids.flatten()[positions]
        labels = torch.full_like(ids, -100).flatten().index_copy(0, positions, targets).view(ids.shape)
    expected = pair.theirs(input_ids=ids, labels=labels).loss
    states = pair.ours(make_batch(ids), positions)
    loss = pair.ours.output.loss(states.at(positions), targets) / len(positions)
    near(loss, expected)
    loss.backward()
    expected.backward()
    gradients = {name: one.grad for name, one in pair.theirs.named_parameters()}
    for name, sources, turned in pair.names:
        parameter = pair.ours.get_parameter(name)
        theirs = torch.cat([gradients[one].T if turned else gradients[one] for one in sources])  # type: ignore[union-attr]
        assert parameter.grad is not None
        near(parameter.grad, theirs[len(theirs) - len(parameter) :])


def test_parameter_counts_are_the_published_ones() -> None:
    """Without next-sentence prediction: BERT-base 110M, ALBERT-base 12M, GPT-2 124M."""
    with torch.device("meta"):
        sizes = {}
        for name, recipe, words in (("bert", bert(), 30_522), ("albert", albert(), 30_000), ("gpt2", gpt2(), 50_257)):
            network = Network(recipe, Vocabulary([""] * words, np.ones(words, dtype=np.int64)))
            sizes[name] = sum(parameter.numel() for parameter in network.parameters())
    assert sizes["bert"] == 109_514_298
    assert sizes["albert"] == 11_221_680
    assert sizes["gpt2"] == 124_439_808


def test_decoding_with_a_cache_equals_encoding() -> None:
    network, ids = build(small(gpt2())), rows()
    shake(network)
    whole = network(make_batch(ids)).layers[-1]
    cache, found = None, []
    for begin, end in ((0, 5), (5, 6), (6, 7), (7, LENGTH)):
        states, cache = network.decode_step(ids[:, begin:end], cache)
        found.append(states)
    near(torch.cat(found, 1), whole)
    assert cache is not None
    assert cache.length == LENGTH
    assert len(cache.tensors) == 2 * LAYERS


def test_rows_of_a_cache_can_be_selected_for_beams() -> None:
    network, ids = build(small(gpt2())), rows()
    shake(network)
    _, cache = network.decode_step(ids[:, :5])
    order = torch.tensor([3, 0, 0])
    states, _ = network.decode_step(ids[order, 5:], cache.select_rows(order))
    near(states, network(make_batch(ids[order])).layers[-1][:, 5:])


def test_states_at_positions() -> None:
    last = torch.arange(6.0)[:, None]
    states = HiddenStates([], last[[1, 4, 5]], torch.tensor([1, 4, 5]))
    assert states.at(torch.tensor([4, 5])).flatten().tolist() == [4, 5]
    assert states.at(torch.tensor([1, 4, 5])) is states.last_hidden_state
    assert HiddenStates([], last, None).at(torch.tensor([2])).flatten().tolist() == [2]


def test_a_cache_keeps_its_length() -> None:
    assert KVCache(3, [torch.eye(3)]).select_rows(torch.tensor([2])).length == 3


def test_too_many_positions_are_refused_in_one_sentence() -> None:
    network = build(small(bert()))
    with pytest.raises(AbilityError, match="the network has 12 positions, not 13"):
        network(make_batch(rows(length=13)))
    with pytest.raises(AbilityError, match=r"sequence\.length=14"):
        network(make_batch(rows(), position_ids=torch.full((4, LENGTH), 13)))
    causal_network = build(small(gpt2()))
    _, cache = causal_network.decode_step(rows())
    with pytest.raises(AbilityError, match="12 positions"):
        causal_network.decode_step(rows()[:, :1], cache)


def test_the_same_seed_gives_the_same_network_and_the_same_step() -> None:
    def step(seed: int) -> list[Tensor]:
        network, ids = build(small(bert())), rows()
        positions = torch.tensor([3, 9, 20])
        network.output.loss(
            network(make_batch(ids), positions, DropoutRng(seed, 1)).last_hidden_state, ids.flatten()[positions]
        ).backward()
        return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]

    assert all(torch.equal(a, b) for a, b in zip(step(0), step(0), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(step(0), step(1), strict=True))


def test_two_directions_are_concatenated() -> None:
    base = small(gpt2())
    recipe = replace(
        base,
        visibility="forward+backward",
        objectives=parse_objectives("bilm"),
        output=replace(base.output, kind="full"),
    )
    network, ids = build(recipe), rows()
    shake(network)
    states = network(make_batch(ids))
    assert states.last_hidden_state.shape == (ids.numel(), 2 * WIDTH)
    other = ids.clone()
    other[:, 6] = 5
    change = (network(make_batch(other)).layers[-1] - states.layers[-1]).abs()
    forwards, backwards = change.unflatten(-1, (2, WIDTH)).amax((0, 3)).unbind(-1)
    assert ((forwards > 0) == (torch.arange(LENGTH) >= 6)).all()
    assert ((backwards > 0) == (torch.arange(LENGTH) <= 6)).all()


def test_flops_are_those_of_torch() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    for recipe in (bert(), albert(), gpt2()):
        network, ids = build(small(recipe)), rows().repeat(16, 1)  # products have multiples of 16 rows
        for fraction in (0.25, 1.0):
            positions = torch.arange(ids.numel()).view(ids.shape)[:, : int(fraction * LENGTH)].flatten()
            with FlopCounterMode(display=False) as counter:
                network.output.logits(network(make_batch(ids), positions).last_hidden_state)
            assert counter.get_total_flops() == pytest.approx(network.flops(LENGTH, fraction) * ids.numel(), rel=1e-12)


def test_the_loss_of_a_network_is_cross_entropy() -> None:
    network, ids = build(small(bert())), rows()
    shake(network)
    states = network(make_batch(ids))
    expected = f.cross_entropy(network.output.logits(states.last_hidden_state), ids.flatten(), reduction="sum")
    near(network.output.loss(states.last_hidden_state, ids.flatten()), expected)
