"""Character embeddings against a loop over single windows of single words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from firth.nets import characters
from firth.nets.characters import CharacterTable, distinct_fraction, encode_bytes
from firth.nets.recipe import EmbeddingRecipe, EncoderRecipe, NetRecipe

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
WORDS = ["a", "cat", "cats", "unbelievable", "北京", "naïve", "<s>", "x" * 80, "x" * 90]


def made(width: int = 16, words: list[str] = WORDS) -> CharacterTable:
    recipe = NetRecipe(
        embedding=EmbeddingRecipe(width=width, characters=True),
        encoder=EncoderRecipe(kind="lstm", layers=1, width=width, ffn_width=0),
    )
    torch.manual_seed(0)
    return CharacterTable(recipe, [*SPECIAL, *words])


def loop_vector(table: CharacterTable, codes: list[int]) -> Tensor:
    """The vector of one word, filter by filter and window by window."""
    embedded = [table.bytes.weight[code] for code in codes]
    found = []
    for layer in table.filters:
        count, _, span = layer.weight.shape  # type: ignore[misc, union-attr]
        padded = embedded + [torch.zeros(16, dtype=embedded[0].dtype)] * max(0, span - len(embedded))
        for number in range(count):
            best = max(
                layer.bias[number] + sum(layer.weight[number, :, k] @ padded[at + k] for k in range(span))  # type: ignore[index]
                for at in range(len(padded) - span + 1)
            )
            found.append(best.clamp(min=0))
    x = torch.stack(found)
    for highway in table.highways:
        new, gate = (highway.both.weight @ x + highway.both.bias).chunk(2)  # type: ignore[operator, union-attr]
        x = gate.sigmoid() * new.relu() + (1 - gate.sigmoid()) * x
    return table.project.weight @ x + table.project.bias


def test_word_vectors_equal_a_plain_loop() -> None:
    table = made().double()
    ids = torch.arange(len(SPECIAL) + len(WORDS))[None]
    vectors = table(ids)[0]
    for number, word in enumerate(WORDS):
        codes = [257, *(byte + 1 for byte in word.encode()[:48]), 258]
        torch.testing.assert_close(vectors[5 + number], loop_vector(table, codes))
    for number in range(5):
        torch.testing.assert_close(vectors[number], loop_vector(table, [257, 259 + number, 258]))


def test_special_tokens_have_own_codes_and_long_words_are_truncated() -> None:
    table = made()
    one = table(torch.tensor([[2, 11, 12, 13]]))[0]
    assert not torch.allclose(one[0], one[1])  # the special token <s>, and the word <s>
    torch.testing.assert_close(one[2], one[3])


def test_a_vector_does_not_depend_on_the_words_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made()
    together = table(torch.tensor([[5, 8, 6], [6, 12, 6]]))
    torch.testing.assert_close(table(torch.tensor([[6]]))[0, 0], together[0, 2])
    torch.testing.assert_close(together[0, 2], together[1, 0])
    monkeypatch.setattr(characters, "_CHUNK", 2)
    torch.testing.assert_close(table(torch.tensor([[5, 8, 6], [6, 12, 6]])), together)


def test_each_distinct_word_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table, seen = made(), []
    original = table._vectors
    monkeypatch.setattr(table, "_vectors", lambda codes: seen.append(len(codes)) or original(codes))
    assert table(torch.tensor([[5, 6, 6, 6], [6, 5, 7, 6]])).shape == (2, 4, 16)
    assert seen == [3]


def test_gradients_by_finite_differences() -> None:
    table = made(8, ["a", "cat", "unbelievable"]).double()
    ids = torch.tensor([[3, 5, 6], [6, 7, 6]])
    names = [name for name, _ in table.named_parameters() if name != "bytes.weight"]
    parameters = [table.get_parameter(name) for name in names]
    assert torch.autograd.gradcheck(lambda *_: table(ids), parameters, fast_mode=True)
    # The padding vector has no gradient, so the bytes are tested one by one.
    weights = torch.randn(2, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    (table(ids) * weights).sum().backward()
    embedded = table.bytes.weight
    assert embedded.grad is not None
    assert not embedded.grad[0].any()
    for code in (98, 257, 262):
        with torch.no_grad():
            values = []
            for step in (1e-6, -1e-6):
                embedded[code, 3] += step
                values.append(float((table(ids) * weights).sum()))
                embedded[code, 3] -= step
        assert float(embedded.grad[code, 3]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-8)


def test_sizes_are_the_published_ones() -> None:
    """2,048 filters, two highway layers and a projection to 512 (Peters et al. 2018)."""
    table = made(512, [])
    counts = [(layer.kernel_size[0], layer.out_channels) for layer in table.filters]  # type: ignore[union-attr, index]
    assert counts == [(1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)]
    sizes = {name: parameter.numel() for name, parameter in table.named_parameters()}
    highways = sum(size for name, size in sizes.items() if name.startswith("highways"))
    assert highways == 2 * (2048 * 4096 + 4096)
    assert sizes["project.weight"] == 2048 * 512


def test_flops_count_each_distinct_word_once() -> None:
    table = made(16, ["abcdefgh"] * 3)  # ten codes with the boundary codes
    ids = torch.tensor([[5, 6, 7]])
    with FlopCounterMode(display=False) as counter:
        table(ids)
    monkey: Any = table
    monkey.codes, monkey.distinct = table.codes[5:], 1.0
    assert counter.get_total_flops() == pytest.approx(3 * table.flops())


def test_distinct_fraction_equals_that_of_draws() -> None:
    rng = np.random.default_rng(0)
    chances = 1 / np.arange(1, 1001)
    draws = rng.choice(1000, (200, 300), p=chances / chances.sum())
    measured = np.mean([np.unique(row).size / 300 for row in draws])
    assert distinct_fraction(1000, 300) == pytest.approx(measured, rel=0.02)


def test_byte_codes_are_saved_with_the_parameters() -> None:
    table = made()
    state = table.state_dict()
    assert state["codes"].dtype == torch.int16
    other = made(words=["q"] * len(WORDS))
    other.load_state_dict(state)
    ids = torch.arange(5, 9)[None]
    assert torch.equal(other(ids), table(ids))


def test_byte_codes_by_hand() -> None:
    assert encode_bytes(["é", ""])[:, :4].tolist() == [[257, 0xC3 + 1, 0xA9 + 1, 258], [257, 258, 0, 0]]
    assert encode_bytes(["x" * 100])[0, -2:].tolist() == [ord("x") + 1, 258]
