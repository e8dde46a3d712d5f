"""The command line: one thin function per verb."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

import firth
from firth.cli import console
from firth.cli.artifacts import export_, import_, info, verify
from firth.cli.cache import cache
from firth.cli.compress import compress
from firth.cli.corpus import check
from firth.cli.evaluate import evaluate, predict
from firth.cli.noise import noise
from firth.cli.recipes import demo, diff, recipes
from firth.cli.serve import serve
from firth.cli.similar import similar
from firth.cli.train import adapt, finetune, mix, train
from firth.cli.use import embed, fill, generate, score

app = typer.Typer(
    name="firth",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"firth {firth.__version__}")
        raise typer.Exit


@app.callback()
def options_of_all(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, Option("--debug", help="Show the cause of an error, with its traceback.")] = False,
) -> None:
    """Language models from raw text, English, Chinese and others. Exit code 0: done; 1: failed; 2: wrong usage.

    Token stores are cached in the folder FIRTH_CACHE, or ~/.cache/firth (see firth cache).
    """
    console.debug.is_on = debug


VERBS = (
    recipes, diff, check, noise, train, adapt, finetune, mix, score, generate, fill, similar, embed, predict, evaluate,
    compress, export_, import_, info, verify, serve, cache, demo,
)  # fmt: skip
for function in VERBS:
    app.command(function.__name__.rstrip("_"))(function)


def main() -> None:
    app()
