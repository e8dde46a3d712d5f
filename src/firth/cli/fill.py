"""firth fill: what stands at the hidden places of a text."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from firth.cli.console import JsonFlag, show, verb
from firth.cli.use import ModelArgument


@verb
def fill(
    model: ModelArgument,
    text: Annotated[
        str, typer.Argument(help="A text with [MASK] where a token is to be found, once or several times.")
    ],
    top: Annotated[int, typer.Option("--top", min=1, help="How many tokens for each mask.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """The likeliest tokens for the masks of a text, with their probabilities.

    Example: firth fill b "The capital of France is [MASK]."
    """
    from firth.apply.fill import fill_text
    from firth.artifact.models import load

    masks = fill_text(load(model), text, top)
    show(as_json, {"masks": masks}, lambda: _print(masks))


def _print(masks: list[list[dict[str, Any]]]) -> None:
    """A line for each token; masks apart."""
    for number, mask in enumerate(masks):
        if number:
            print()
        for one in mask:
            made = "" if one["text"] is None else f"  {one['text']}"
            print(f"{one['probability']:.4f}  {one['token']:<16}{made}".rstrip())
