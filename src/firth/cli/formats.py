"""firth export, firth import: models in the formats of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from firth.cli.console import JsonFlag, print_fields, show, verb
from firth.cli.use import ModelArgument

FormatArgument = Annotated[
    str, typer.Argument(help="The format: arpa, brown, fasttext, glove, huggingface or word2vec.")
]


@verb
def export_(
    model: ModelArgument,
    format: FormatArgument,
    path: Annotated[Path, typer.Argument(help="The file or folder to write; .gz packs a file, .bin makes it binary.")],
    as_json: JsonFlag = False,
) -> None:
    """Write a model in a format of another program.

    Example: firth export kn arpa kn.arpa

    Example: firth export sg word2vec sg.bin
    """
    from firth.artifact.formats import export_model
    from firth.artifact.models import load

    report = export_model(load(model), format, path)
    show(as_json, report, lambda: print_fields(report))


@verb
def import_(
    format: FormatArgument,
    path: Annotated[Path, typer.Argument(help="The file or folder to read.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to make.")],
    task: Annotated[
        str | None, typer.Option("--task", help="huggingface: what a head that labels is for, classify or pair.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make an artifact of a model in a format of another program.

    Example: firth import arpa kn.arpa -o kn

    Example: firth import glove glove.6B.100d.txt -o glove

    Example: firth import huggingface bert-mrpc -o mrpc --task pair
    """
    from firth.artifact.formats import import_model

    report = import_model(format, path, out, task)
    show(as_json, report, lambda: print_fields(report))
