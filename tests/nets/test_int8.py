"""Tests of weights in 8 bits: exact products, saturation, artifacts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from firth.artifact.models import load, save
from firth.artifact.tensors import map_tensors, write_tensors
from firth.errors import ArtifactError
from firth.fit.compress.quantise_network import quantise_network, quantise_weight
from firth.nets import int8
from firth.nets.int8 import LEVELS, REDUCED_LEVELS, Int8Matrix, int8_of, pack_arrays, quantise_rows, unpack_arrays
from firth.nets.linear import linear
from firth.nets.model import NetModel
from firth.nets.restore import restore_net
from firth.nets.scoring import make_batch
from tests.nets.small_nets import TEXTS, small_net


def random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def exact_product(x: Tensor, matrix: Int8Matrix, bias: Tensor | None) -> Tensor:
    """The twin in NumPy, with integers of 64 bits."""
    largest = np.maximum(np.abs(x.numpy()).max(1, keepdims=True), np.float32(1e-30))
    rows = np.rint(x.numpy() * (np.float32(LEVELS) / largest)).astype(np.int64)
    sums = rows @ matrix.values.numpy().astype(np.int64).T
    made = sums.astype(np.float32) * matrix.scales.numpy() * (largest / np.float32(LEVELS))
    return torch.from_numpy(made if bias is None else made + bias.numpy())


@pytest.mark.parametrize("rows", [1, 7, 300])
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_are_those_of_exact_integers(rows: int, has_bias: bool) -> None:
    x, bias = random(rows, 320), random(256, seed=3) if has_bias else None
    matrix = Int8Matrix.of(random(256, 320, seed=2))
    if int8.exact_levels() != LEVELS:
        pytest.skip("weights have 7 bits on this processor")
    torch.testing.assert_close(matrix.product(x, bias), exact_product(x, matrix, bias), rtol=1e-6, atol=1e-6)


def test_products_are_near_those_of_float32() -> None:
    x, weight = random(40, 320), random(256, 320, seed=2)
    found = Int8Matrix.of(weight).product(x, None)
    cosine = torch.nn.functional.cosine_similarity(found, x @ weight.T)
    assert float(cosine.min()) > (0.9995 if int8.exact_levels() == LEVELS else 0.999)


def test_a_row_has_the_same_product_in_every_batch() -> None:
    x, matrix = random(600, 320), Int8Matrix.of(random(256, 320, seed=2))
    together = matrix.product(x, None)
    for row in (0, 5, 255, 256, 599):
        assert torch.equal(matrix.product(x[row : row + 1], None)[0], together[row])
    assert torch.equal(matrix.product(x.view(2, 300, 320), None).view(600, 256), together)


def test_some_rows_of_a_weight_have_the_same_products() -> None:
    x, bias, matrix = random(9, 320), random(256, seed=4), Int8Matrix.of(random(256, 320, seed=2))
    whole = matrix.product(x, bias)
    assert torch.equal(matrix.product(x, bias[64:128], slice(64, 128)), whole[:, 64:128])


def test_rows_without_numbers_are_zero() -> None:
    rows, scales = quantise_rows(torch.zeros(2, 3))
    assert not rows.any()
    assert torch.isfinite(scales).all()


def multiply_in_16_bits(x: npt.NDArray[np.int64], weight: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The product of processors without VNNI: sums of two products saturate at 16 bits, those of pairs do not."""
    pairs = (x[:, None, :] * weight[None]).reshape(len(x), len(weight), -1, 2).sum(-1)
    return np.clip(pairs, -(2**15), 2**15 - 1).sum(-1)


@pytest.mark.parametrize(("levels", "is_exact"), [(LEVELS, False), (REDUCED_LEVELS, True)])
@pytest.mark.parametrize("sign", [1, -1])
def test_only_7_bits_never_saturate_in_sums_of_16_bits(levels: int, is_exact: bool, sign: int) -> None:
    """Bytes of states are from 0 to 255 there, since the instruction has one operand without a sign."""
    x, weight = np.full((2, 8), 255), np.full((3, 8), sign * levels)
    assert np.array_equal(multiply_in_16_bits(x, weight), x @ weight.T) == is_exact


WITHOUT_VNNI = """
import torch
from firth.nets import int8
print(int8.is_exact(127), int8.is_exact(63), int8.exact_levels())
weight, x = torch.full((256, 256), 0.5), torch.ones(3, 256)
print(int8.Int8Matrix.of(weight).product(x, None)[0, 0].item())
int8.exact_levels.cache_clear()
int8.is_exact = lambda levels: True
print(int8.Int8Matrix.of(weight).product(x, None)[0, 0].item())
"""


def test_a_processor_without_vnni_gets_7_bits() -> None:
    """oneDNN pretends to be on an older processor: with 8 bits its products saturate, and with 7 they are right."""
    if not int8.is_exact(REDUCED_LEVELS):
        pytest.skip("this build of PyTorch has no product of bytes")
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_VNNI], capture_output=True, text=True, env=environment, check=True
    )
    exact, right, wrong = done.stdout.splitlines()
    assert exact == "False True 63"
    assert float(right) == pytest.approx(128, rel=1e-3)
    assert float(wrong) < 100, "8 bits were expected to saturate"


def quantised(name: str = "bert") -> NetModel:
    model = small_net(name, length=24)
    quantise_network(model.network)
    return model


@pytest.fixture(autouse=True)
def small_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of integers for the small matrices of these tests, too."""
    monkeypatch.setattr(int8, "_MIN_SIZE", 64)
    monkeypatch.setattr("firth.fit.compress.quantise_network._MIN_SIZE", 64)


@pytest.mark.parametrize("name", ["bert", "albert", "gpt2", "lstm", "elmo", "xlnet", "t5", "transformer", "cnn-lm"])
def test_arrays_have_8_bits_and_give_the_same_model(name: str) -> None:
    model = quantised(name)
    arrays = model.arrays()
    assert any(array.dtype == np.int8 for array in arrays.values())
    again = restore_net(model.recipe, arrays, model.tokenizer, "lines")
    assert np.array_equal(again.embed(TEXTS), model.embed(TEXTS))
    for key, array in again.arrays().items():
        assert np.array_equal(array, arrays[key]), key


@pytest.mark.parametrize("name", ["bert", "gpt2", "xlnet"])
def test_vectors_are_near_those_of_32_bits(name: str) -> None:
    first, second = small_net(name, length=24).embed(TEXTS), quantised(name).embed(TEXTS)
    cosines = (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    assert cosines.min() > 0.99


def test_without_fast_products_results_are_nearly_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = quantised()
    fast = model.embed(TEXTS)
    monkeypatch.setattr(int8, "exact_levels", lambda: 0)
    slow = restore_net(model.recipe, model.arrays(), model.tokenizer, "lines")
    assert not any(one.is_fast for one in map(int8_of, slow.network.parameters()) if one is not None)
    found = slow.embed(TEXTS)
    cosines = (found * fast).sum(1) / np.linalg.norm(fast, axis=1) / np.linalg.norm(found, axis=1)
    assert cosines.min() > 0.995
    assert not np.array_equal(found, fast)


def test_some_positions_have_the_states_of_all() -> None:
    """Also where queries, and keys and values, are products with parts of a weight."""
    model = quantised()
    ids = torch.tensor([[2, 7, 8, 9, 10, 3]])
    with torch.inference_mode():
        every = model.network(make_batch(ids)).last_hidden_state
        some = model.network(make_batch(ids), torch.tensor([1, 3])).last_hidden_state
    torch.testing.assert_close(some, every[[1, 3]], rtol=1e-5, atol=1e-5)


def test_a_quantised_model_has_all_abilities() -> None:
    model: Any = quantised()
    assert len(model.fill("the [MASK] sat")[0]) == 5
    assert np.isfinite(model.score(["the cat sat"])[0].logprob)
    causal: Any = quantised("gpt")
    assert np.isfinite(causal.score(["the cat sat"])[0].logprob)
    assert causal.generate("the", length=3)


def test_training_changes_the_weights_that_are_used() -> None:
    weight = torch.nn.Parameter(random(16, 16))
    quantise_weight(weight)
    x = random(3, 16, seed=5)
    with torch.no_grad():
        before = linear(x, weight, None)
        weight.mul_(2.0)
        assert int8_of(weight) is None
        torch.testing.assert_close(linear(x, weight, None), 2 * before, rtol=0.1, atol=0.1)
    assert pack_arrays({"weight": weight})["weight"].dtype == np.float32


@pytest.mark.parametrize("damage", ["shape", "dtype", "zero", "missing"])
def test_damaged_scales_are_refused(damage: str) -> None:
    model = quantised()
    arrays = model.arrays()
    name = next(key for key in arrays if key.endswith(int8.SCALE))
    scales = arrays[name]
    changed = {"shape": scales[:-1], "dtype": scales.astype(np.float64), "zero": scales * 0}
    if damage == "missing":
        del arrays[name]
    else:
        arrays[name] = changed[damage]
    with pytest.raises(ArtifactError):
        restore_net(model.recipe, arrays, model.tokenizer, "lines")


def test_a_saved_folder_is_a_quarter_and_damage_is_found(tmp_path: Path) -> None:
    model, sizes = small_net("bert", length=24), []
    for number in range(2):
        if number:
            quantise_network(model.network)
        save(
            tmp_path / str(number),
            model,
            name="bert",
            recipe=model.recipe,
            budget={"asked": None, "spent": {}},
            corpus={"layout": "lines", "digest": "0"},
            seed=0,
            metrics={},
        )
        arrays = model.arrays()
        sizes.append(sum(array.nbytes for name, array in arrays.items() if name not in ("counts", "spelling")))
    assert sizes[1] < 0.5 * sizes[0]  # scales and vectors are much of so small a model
    again = load(tmp_path / "1")
    assert np.array_equal(again.embed(TEXTS), model.embed(TEXTS))
    file = tmp_path / "1" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ArtifactError):
        load(tmp_path / "1")


def test_arrays_without_integers_are_as_they_were() -> None:
    arrays = {"a.scale": np.ones(3, dtype=np.float32), "a": np.ones((3, 2), dtype=np.float32)}
    found, matrices = unpack_arrays(arrays)
    assert not matrices
    assert found.keys() == arrays.keys()


def test_integers_are_stored_as_such(tmp_path: Path) -> None:
    matrix = Int8Matrix.of(random(8, 8))
    write_tensors(tmp_path / "m.safetensors", {"w": matrix.values.numpy()})
    assert map_tensors(tmp_path / "m.safetensors")["w"].dtype == np.int8
