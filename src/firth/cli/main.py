"""The command line: one thin function a verb."""

from __future__ import annotations

import typer

from firth.cli.corpus import check
from firth.cli.demo import demo
from firth.cli.evaluate import evaluate
from firth.cli.fill import fill
from firth.cli.finetune import finetune
from firth.cli.folders import info, verify
from firth.cli.formats import export_, import_
from firth.cli.mix import mix
from firth.cli.predict import predict
from firth.cli.recipes import diff, recipes
from firth.cli.train import adapt, train
from firth.cli.use import generate, score
from firth.cli.vectors import embed, similar

app = typer.Typer(
    name="firth",
    help="Raw text, English and Chinese first, into language models. Exit code 0: done; 1: failed; 2: wrong usage.",
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


def main() -> None:
    """Runs the command line."""
    app()
