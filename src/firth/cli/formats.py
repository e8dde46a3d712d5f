"""firth export, firth import: models in the formats of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from firth.cli.console import JsonFlag, print_fields, show, verb
from firth.cli.use import ModelArgument

FormatArgument = Annotated[str, typer.Argument(help="The format: arpa.")]


@verb
def export_(
    model: ModelArgument,
    format: FormatArgument,
    path: Annotated[Path, typer.Argument(help="The file to write; packed if its name ends with .gz.")],
    as_json: JsonFlag = False,
) -> None:
    """Write a model in a format of another program.

    Example: firth export kn arpa kn.arpa
    """
    from firth.artifact.formats import export_model
    from firth.artifact.models import load

    report = export_model(load(model), format, path)
    show(as_json, report, lambda: print_fields(report))


@verb
def import_(
    format: FormatArgument,
    path: Annotated[Path, typer.Argument(help="The file to read.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to make.")],
    as_json: JsonFlag = False,
) -> None:
    """Make an artifact of a model in a format of another program.

    Example: firth import arpa kn.arpa -o kn
    """
    from firth.artifact.formats import import_model

    report = import_model(format, path, out)
    show(as_json, report, lambda: print_fields(report))
