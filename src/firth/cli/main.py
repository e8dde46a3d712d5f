"""The command line: one thin function per verb."""

from __future__ import annotations

from typing import Annotated

import typer

from firth.cli import console
from firth.cli.artifacts import export_, import_, info, verify
from firth.cli.corpus import check
from firth.cli.evaluate import evaluate, predict
from firth.cli.recipes import demo, diff, recipes
from firth.cli.train import adapt, finetune, mix, train
from firth.cli.use import embed, fill, generate, score, similar

app = typer.Typer(
    name="firth",
    help="Language models from raw text, English, Chinese and others. Exit code 0: done; 1: failed; 2: wrong usage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
VERBS = (
    recipes, diff, check, train, adapt, finetune, mix, score, generate, fill, similar, embed, predict, evaluate,
    export_, import_, info, verify, demo,
)  # fmt: skip
for function in VERBS:
    app.command(function.__name__.rstrip("_"))(function)


@app.callback()
def set_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the cause of an error, with its traceback.")] = False,
) -> None:
    console.debug.is_on = debug


def main() -> None:
    app()
