"""Who sees whom."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from firth.nets.visibility import PREDICATES, Asked, Sight, View


def test_predicates_by_hand() -> None:
    times = torch.arange(3)
    seen = {name: one(times[:, None], times[None]).int().tolist() for name, one in PREDICATES.items()}
    assert seen == {
        "causal": [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
        "anticausal": [[1, 1, 1], [0, 1, 1], [0, 0, 1]],
        "before": [[0, 0, 0], [1, 0, 0], [1, 1, 0]],
        "bidirectional": [[1, 1, 1], [1, 1, 1], [1, 1, 1]],
    }


def test_everything_seen_needs_no_mask() -> None:
    view = View("bidirectional", (2, 3))
    assert view.mask() is None
    assert view.sight() == Sight(None, None)
    assert view.plain


def test_parts_divide_and_padding_sees_padding_alone() -> None:
    view = View("causal", (1, 5), torch.tensor([[0, 0, 1, -1, -1]]))
    mask = view.mask()
    assert mask is not None
    assert mask[0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]
    assert not view.plain


def test_times_stand_for_places() -> None:
    """A prefix is known from the start; what follows, in its order."""
    view = View("causal", (1, 4), times=torch.tensor([[0, 0, 1, 2]]))
    mask = view.mask()
    assert mask is not None
    assert mask[0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


def test_what_is_known_at_once_is_seen_from_both_sides() -> None:
    """A network that sees both sides reads a prefix so, and what follows in its order."""
    times = torch.tensor([[0, 0, 1, 2]])
    assert torch.equal(
        View("bidirectional", (1, 4), times=times).mask(),  # type: ignore[arg-type]
        View("causal", (1, 4), times=times).mask(),  # type: ignore[arg-type]
    )


def test_places_that_ask_are_seen_by_themselves_alone() -> None:
    view = View("bidirectional", (1, 4), unseen=torch.tensor([[False, False, True, True]]))
    mask = view.mask()
    assert mask is not None
    assert mask[0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]
    times = torch.tensor([[0, 2, 1, 3]])
    mask = View("causal", (1, 4), times=times, unseen=view.unseen).mask()
    assert mask is not None
    assert mask[0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]


def test_sights_are_masks_to_add_made_once() -> None:
    view = View("causal", (4, 6))
    hidden, sees = view.sight()
    mask = view.mask()
    assert hidden is not None
    assert mask is not None
    assert hidden.shape == (1, 6, 6)
    assert torch.equal(hidden == 0, mask)
    assert torch.equal(hidden == -torch.inf, ~mask)
    assert sees is None
    assert view.sight().hidden is hidden
    double = view.sight(torch.float64).hidden
    assert double is not None
    assert double.dtype == torch.float64


def test_who_sees_nothing_is_known() -> None:
    hidden, sees = View("before", (1, 3)).sight()
    assert hidden is not None
    assert sees is not None
    assert sees.flatten().tolist() == [0, 1, 1]
    assert hidden[0].isinf().int().tolist() == [[0, 0, 0], [0, 1, 1], [0, 0, 1]]
    assert View("causal", (1, 3), torch.tensor([[0, 1, -1]])).sight().sees is None
    limited = Asked(torch.tensor([0, 2]), (1, 3)).limit(Sight(hidden, sees)).sees
    assert limited is not None
    assert limited.flatten().tolist() == [0, 1]


@given(st.integers(1, 4), st.integers(1, 6), st.data())
def test_asked_places_go_there_and_back(rows: int, length: int, data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, rows * length - 1), min_size=1)))
    places = torch.tensor(chosen)
    asked = Asked(places, (rows, length))
    counts = [sum(place // length == row for place in chosen) for row in range(rows)]
    assert asked.most == max(counts)
    states = torch.arange(len(chosen) * 2.0).view(-1, 2)
    spread = asked.spread(states)
    assert spread.shape == (rows, asked.most, 2)
    assert torch.equal(asked.collect(spread), states)
    for row, count in enumerate(counts):
        own = [place % length for place in chosen if place // length == row]
        assert asked.table[row, :count].tolist() == own
        assert (spread[row, count:] == 0).all()


def test_asked_places_see_what_they_saw() -> None:
    view, asked = View("causal", (2, 3)), Asked(torch.tensor([1, 5]), (2, 3))
    hidden = asked.limit(view.sight()).hidden
    assert hidden is not None
    assert (hidden == 0).int().tolist() == [[[1, 1, 0]], [[1, 1, 1]]]
    assert asked.limit(Sight(None)) == Sight(None)
