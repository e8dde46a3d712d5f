"""Plots: reproducible files, and elements that follow the colours of a page."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from firth.plots import COLOURS, Curve, learning_curves, loss_plot

FALLING = [(100.0, 9.0), (1_000.0, 6.0), (20_000.0, 3.5)]


def test_the_same_losses_give_the_same_file() -> None:
    one, two = (loss_plot([Curve("mlm", FALLING)], [Curve("mlm", FALLING[1:])], "mlm") for _ in range(2))
    assert one == two
    assert b"mlm, validation" in one
    assert ElementTree.fromstring(one).tag.endswith("svg")


def test_learning_curves_have_labels_and_variable_colours() -> None:
    svg = learning_curves([Curve("a < b", FALLING), Curve("bert", [(x, y - 1) for x, y in FALLING])], 860, 340)
    root = ElementTree.fromstring(svg)
    texts = {element.text for element in root.iter() if element.tag.endswith("text")}
    assert {"a < b 3.50", "bert 2.50", "1k", "10k", "training tokens"} <= texts
    assert f"var(--c1, {COLOURS[1]})" in svg
    assert "a &lt; b ends at 3.500" in svg
    assert "url(" not in svg, "nothing outside the element is referenced"


def test_infinite_losses_and_single_points_are_left_out() -> None:
    assert learning_curves([Curve("one", FALLING[:1]), Curve("inf", [(1.0, math.inf), (0.0, 1.0)])], 380, 300) == ""
