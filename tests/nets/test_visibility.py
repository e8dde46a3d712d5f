"""Attention masks."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from firth.nets.visibility import PREDICATES, AttentionBias, AttentionMask, GatheredQueries


def test_predicates_by_hand() -> None:
    order = torch.arange(3)
    seen = {name: one(order[:, None], order[None]).int().tolist() for name, one in PREDICATES.items()}
    assert seen == {
        "causal": [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
        "anticausal": [[1, 1, 1], [0, 1, 1], [0, 0, 1]],
        "before": [[0, 0, 0], [1, 0, 0], [1, 1, 0]],
        "bidirectional": [[1, 1, 1], [1, 1, 1], [1, 1, 1]],
    }


def test_full_attention_needs_no_mask() -> None:
    view = AttentionMask("bidirectional", (2, 3))
    assert view.allowed is None
    assert view.bias() == AttentionBias(None, None)


def test_sequences_are_masked_and_padding_attends_to_padding() -> None:
    view = AttentionMask("causal", (1, 5), torch.tensor([[0, 0, 1, -1, -1]]))
    mask = view.allowed
    assert mask is not None
    assert mask[0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]


def test_attention_order_replaces_positions() -> None:
    """A bidirectional prefix, then a causal rest."""
    view = AttentionMask("causal", (1, 4), attention_order=torch.tensor([[0, 0, 1, 2]]))
    mask = view.allowed
    assert mask is not None
    assert mask[0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


def test_tokens_of_equal_order_attend_to_each_other() -> None:
    """A bidirectional network with an order is causal after the prefix."""
    order = torch.tensor([[0, 0, 1, 2]])
    assert torch.equal(
        AttentionMask("bidirectional", (1, 4), attention_order=order).allowed,  # type: ignore[arg-type]
        AttentionMask("causal", (1, 4), attention_order=order).allowed,  # type: ignore[arg-type]
    )


def test_query_only_tokens_are_attended_to_by_themselves_alone() -> None:
    view = AttentionMask("bidirectional", (1, 4), query_only=torch.tensor([[False, False, True, True]]))
    mask = view.allowed
    assert mask is not None
    assert mask[0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]
    order = torch.tensor([[0, 2, 1, 3]])
    mask = AttentionMask("causal", (1, 4), attention_order=order, query_only=view.query_only).allowed
    assert mask is not None
    assert mask[0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]


def test_biases_are_additive_masks_and_cached() -> None:
    view = AttentionMask("causal", (4, 6))
    bias, scale = view.bias()
    mask = view.allowed
    assert bias is not None
    assert mask is not None
    assert bias.shape == (1, 6, 6)
    assert torch.equal(bias == 0, mask)
    assert torch.equal(bias == -torch.inf, ~mask)
    assert scale is None
    assert view.bias().bias is bias
    double = view.bias(torch.float64).bias
    assert double is not None
    assert double.dtype == torch.float64


def test_queries_without_keys_have_scale_zero() -> None:
    bias, scale = AttentionMask("before", (1, 3)).bias()
    assert bias is not None
    assert scale is not None
    assert scale.flatten().tolist() == [0, 1, 1]
    assert bias[0].isinf().int().tolist() == [[0, 0, 0], [0, 1, 1], [0, 0, 1]]
    assert AttentionMask("causal", (1, 3), torch.tensor([[0, 1, -1]])).bias().query_scale is None
    limited = GatheredQueries(torch.tensor([0, 2]), (1, 3)).select_bias(AttentionBias(bias, scale)).query_scale
    assert limited is not None
    assert limited.flatten().tolist() == [0, 1]


@given(st.integers(1, 4), st.integers(1, 6), st.data())
def test_gathered_queries_are_padded_and_unpadded(rows: int, length: int, data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, rows * length - 1), min_size=1)))
    positions = torch.tensor(chosen)
    gathered = GatheredQueries(positions, (rows, length))
    counts = [sum(position // length == row for position in chosen) for row in range(rows)]
    assert gathered.per_row == max(counts)
    states = torch.arange(len(chosen) * 2.0).view(-1, 2)
    padded = gathered.pad(states)
    assert padded.shape == (rows, gathered.per_row, 2)
    assert torch.equal(gathered.unpad(padded), states)
    for row, count in enumerate(counts):
        own = [position % length for position in chosen if position // length == row]
        assert gathered.columns[row, :count].tolist() == own
        assert (padded[row, count:] == 0).all()


def test_gathered_queries_keep_their_bias() -> None:
    view, gathered = AttentionMask("causal", (2, 3)), GatheredQueries(torch.tensor([1, 5]), (2, 3))
    bias = gathered.select_bias(view.bias()).bias
    assert bias is not None
    assert (bias == 0).int().tolist() == [[[1, 1, 0]], [[1, 1, 1]]]
    assert gathered.select_bias(AttentionBias(None)) == AttentionBias(None)
