"""XLNets give the logits of XLNetLMHeadModel in any order; those of the transformers library are imported."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.artifact.formats import import_model
from firth.artifact.formats.huggingface import read_model
from firth.artifact.formats.huggingface_registry import model_type_for
from firth.artifact.models import load
from firth.errors import AbilityError, ArtifactError, FirthError
from firth.nets.batch import Batch
from firth.nets.permutation import PermutationNet
from firth.nets.recipe import NetRecipe
from firth.nets.visibility import SegmentMemory
from firth.recipes.nets import xlnet
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, MASK, PAD
from tests.artifact.formats.small_transformers import (
    TEXTS,
    equal,
    load_theirs,
    model_of,
    put,
    small,
    tokenizer_of,
    transformers,
)
from tests.command import firth
from tests.vectors.small_models import save_model

ROWS, LENGTH = 3, 12
NEVER = [PAD, BOS, MASK]  # tokens that Firth gives the probability 0


def recipe_of(**encoder: Any) -> NetRecipe:
    made = small(xlnet())
    return replace(made, encoder=replace(made.encoder, ffn_width=40, **encoder), memory=replace(made.memory, length=9))


@cache
def model() -> PermutationNet:
    made = model_of(recipe_of())
    assert isinstance(made, PermutationNet)
    return made


def masks_of(order: Tensor, positions: Tensor) -> dict[str, Tensor]:
    """`perm_mask` of an order, and `target_mapping` of the same number of positions in each row."""
    later = order[:, None] >= order[:, :, None]
    mapping = torch.zeros(len(order), len(positions) // len(order), order.shape[1])
    per_row = positions.view(len(order), -1) % order.shape[1]
    return {"perm_mask": later.float(), "target_mapping": mapping.scatter(2, per_row[:, :, None], 1.0)}


def drawn(seed: int, reused: int = LENGTH) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, an order of each row in which the reused part comes first, and four positions of each.

    The first token of an order is not predicted: with every key masked theirs attends to all alike, ours to none.
    """
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.integers(FIRST_WORD, len(model().tokenizer), (ROWS, LENGTH)))
    orders = [rng.permutation(LENGTH) + LENGTH * (np.arange(LENGTH) >= reused) for _ in range(ROWS)]
    order = torch.from_numpy(np.stack(orders))
    chosen = np.sort(np.stack([rng.choice(np.flatnonzero(one > one.min()), 4, replace=False) for one in orders]), 1)
    return ids, order, torch.from_numpy((chosen + LENGTH * np.arange(ROWS)[:, None]).ravel())


def our_logits(made: Any, given: tuple[Tensor, Tensor, Tensor], segments: Tensor, memory: Any = None) -> Tensor:
    ids, order, positions = given
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool), segment_ids=segments)
    batch.attention_order, batch.is_query = order, True
    states = made.network(batch, positions, memory=memory).last_hidden_state
    return made.network.output.logits(states).view(ROWS, -1, len(made.tokenizer))


def test_logits_in_any_order_with_a_memory(tmp_path: Path) -> None:
    """Two segments of text: `perm_mask`, `target_mapping`, `token_type_ids`, and `mems` of the first in the second."""
    folder = put(model(), tmp_path / "out")
    theirs = load_theirs(folder, "XLNetLMHeadModel")
    segments = torch.tensor([0] * 7 + [1] * 4 + [2]).expand(ROWS, -1)
    reused = LENGTH // 2
    theirs.transformer.reuse_len = reused
    memory, mems = None, None
    with torch.no_grad():
        for seed in range(3):
            given = drawn(seed, reused)  # what is remembered does not see what follows it
            ids, order, positions = given
            found = theirs(ids, mems=mems, token_type_ids=segments, use_mems=True, **masks_of(order, positions))
            mine = our_logits(model(), given, segments, memory)
            torch.testing.assert_close(mine, found.logits, rtol=0, atol=1e-5)
            mems = found.mems
            layers = [one.transpose(0, 1) for one in mems]
            visible = torch.ones(ROWS, LENGTH, layers[0].shape[1], dtype=torch.bool)
            memory = SegmentMemory(layers, visible)
    assert mems is not None
    assert len(mems[0]) == 9  # mem_len


def test_scores_are_those_of_their_logits(tmp_path: Path) -> None:
    """Each token from those before it, from left to right and in a random order."""
    theirs = load_theirs(put(model(), tmp_path / "out"), "AutoModelForCausalLM")
    assert type(theirs).__name__ == "XLNetLMHeadModel"
    for text in TEXTS:
        ids = torch.tensor([[EOS, *model().encode([text])[0].tolist(), EOS]])
        count = ids.shape[1]
        rank = np.random.default_rng([4, 0]).permutation(count - 1) + 1
        for order, expected in (
            (np.arange(count), model().score([text])),
            (np.array([0, *rank]), model().score_in_order([text], "random", seed=4)),
        ):
            with torch.no_grad():
                logits = theirs(ids, **masks_of(torch.from_numpy(order)[None], torch.arange(1, count))).logits[0]
            logits[:, NEVER] = -torch.inf
            found = logits.log_softmax(-1).gather(1, ids[0, 1:, None]).sum()
            assert expected[0].logprob == pytest.approx(float(found), abs=1e-4)


@pytest.mark.parametrize(
    "change",
    [{}, {"clamp_length": 5}, {"activation": "relu"}, {"attention_dropout": 0.3}, {"heads": 4, "layers": 3}],
)
@pytest.mark.parametrize("kind", ["tied", "full"])
def test_a_round_trip_changes_nothing(kind: Any, change: dict[str, Any], tmp_path: Path) -> None:
    recipe = recipe_of(**change)
    made = model_of(replace(recipe, output=replace(recipe.output, kind=kind)))
    folder = put(made, tmp_path / "out")
    theirs = load_theirs(folder, "XLNetLMHeadModel")
    segments = torch.zeros(ROWS, LENGTH, dtype=torch.int64)
    given = drawn(1)
    with torch.no_grad():
        found = theirs(given[0], token_type_ids=segments, **masks_of(*given[1:])).logits
        torch.testing.assert_close(our_logits(made, given, segments), found, rtol=0, atol=1e-5)
    back = read_model(folder)
    assert equal(made, back)
    assert back.recipe == made.recipe
    assert back.tokenizer.data == made.tokenizer.data


def test_a_model_without_an_output_bias(tmp_path: Path) -> None:
    recipe = recipe_of()
    made = model_of(replace(recipe, output=replace(recipe.output, bias=False)))
    back = read_model(put(made, tmp_path / "out"))
    assert not bool(back.arrays()["output.bias"].any())


def test_the_commands(tmp_path: Path) -> None:
    save_model(model(), tmp_path / "m")
    assert firth("export", tmp_path / "m", "huggingface", tmp_path / "hf", "--json").json["type"] == "xlnet"
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["architectures"] == ["XLNetLMHeadModel"]
    assert (config["mem_len"], config["reuse_len"], config["bi_data"]) == (9, 12, False)
    assert firth("import", "huggingface", tmp_path / "hf", "-o", tmp_path / "back").code == 0
    assert equal(load(tmp_path / "back"), model())


def their_tokenizer() -> Any:
    """That of XLNet, with the special tokens of the published one."""
    content = json.loads(tokenizer_of("pieces").data)["model"]["vocab"][5:]
    names = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    vocabulary = [*((name, 0.0) for name in names), *((piece, score) for piece, score in content)]
    return transformers.XLNetTokenizer(vocab=vocabulary)


def their_folder(folder: Path, **settings: Any) -> tuple[Any, Any]:
    tokenizer = their_tokenizer()
    sizes = {"vocab_size": len(tokenizer), "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 20}
    torch.manual_seed(4)
    other = transformers.XLNetLMHeadModel(transformers.XLNetConfig(**(sizes | {"mem_len": None} | settings))).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    other.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return other, tokenizer


def test_models_of_transformers_are_imported_and_exported(tmp_path: Path) -> None:
    other, tokenizer = their_folder(tmp_path / "theirs")
    report = import_model("huggingface", tmp_path / "theirs", tmp_path / "ours")
    assert report["type"] == "xlnet"
    made = load(tmp_path / "ours")
    assert isinstance(made, PermutationNet)
    assert made.recipe.memory.length == 0
    again, folder = load_theirs(put(made, tmp_path / "again"), "XLNetLMHeadModel"), tmp_path / "again"
    exported = transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS[:2]:
        theirs, new = (one(text, return_token_type_ids=True) for one in (tokenizer, exported))
        assert len(theirs["input_ids"]) == len(new["input_ids"])
        assert theirs["token_type_ids"] == new["token_type_ids"]
        count = len(theirs["input_ids"])
        masks = masks_of(torch.randperm(count)[None], torch.arange(count))
        pairs = dict(zip(new["input_ids"], theirs["input_ids"], strict=True))
        columns = torch.tensor(list(pairs)), torch.tensor(list(pairs.values()))
        with torch.no_grad():
            found = other(torch.tensor([theirs["input_ids"]]), **masks).logits[0]
            mine = again(torch.tensor([new["input_ids"]]), **masks).logits[0]
        torch.testing.assert_close(mine[:, columns[0]], found[:, columns[1]], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"attn_type": "uni"}, "attn_type='uni'"),
        ({"same_length": True}, "same_length=True"),
        ({"bi_data": True}, "bi_data=True"),
        ({"untie_r": False}, "untie_r=False"),
        ({"ff_activation": "mish"}, "ff_activation='mish'"),
        ({"clamp_len": "far"}, "clamp_len='far'"),
        ({"mem_len": -3}, "memory.length=-3"),
        ({"n_head": 3}, "multiple of encoder.heads=3"),
        ({"d_inner": 24}, "has the shape"),
    ],
)
def test_other_configs_are_refused(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = put(model(), tmp_path / "out")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))
    with pytest.raises(ArtifactError, match=message):
        read_model(folder)


def test_damaged_configs_are_refused_with_one_sentence(tmp_path: Path) -> None:
    folder = put(model(), tmp_path / "out")
    config = json.loads((folder / "config.json").read_text())
    for key, value in itertools.product([one for one in config if one != "firth"], [None, -1, 1e30, "x", {}]):
        (folder / "config.json").write_text(json.dumps(config | {key: value}))
        try:
            assert read_model(folder).score(["the dog"])[0].tokens
        except FirthError as error:
            assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"norm": "pre"}, r"encoder\.norm=pre"),
        ({"tie_position_biases": True}, r"encoder\.tie_position_biases=True"),
        ({"segments": "none"}, r"encoder\.segments=none"),
        ({"tie_layers": "all"}, r"encoder\.tie_layers=all"),
    ],
)
def test_what_xlnet_has_not_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(AbilityError, match=message):
        model_type_for(recipe_of(**change))
