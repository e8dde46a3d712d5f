"""firth info, firth verify: what an artifact is, and whether it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from firth.cli.console import JsonFlag, print_fields, show, verb

FolderArgument = Annotated[Path, typer.Argument(help="The folder of an artifact.")]


@verb
def info(folder: FolderArgument, as_json: JsonFlag = False) -> None:
    """What an artifact is and how it was made.

    Example: firth info uni
    """
    from firth.artifact.folder import artifact_info
    from firth.recipes.values import flatten

    facts = artifact_info(folder)
    show(as_json, facts, lambda: print_fields(flatten(facts)))


@verb
def verify(
    folder: Annotated[Path, typer.Argument(help="The folder of an artifact, or an ARPA file.")],
    as_json: JsonFlag = False,
) -> None:
    """Whether an artifact or an ARPA file is whole: every byte is checked, and that probabilities sum to one.

    Example: firth verify kn
    """
    from firth.artifact.folder import verify_artifact
    from firth.artifact.formats.arpa import verify_arpa

    if folder.is_file():
        found = verify_arpa(folder)
        show(as_json, found, lambda: print_fields(found))
        return
    report = verify_artifact(folder)

    def text() -> None:
        print(f"{folder} is whole: {report['name']} ({report['kind']}), format {report['format']}")
        print_fields({name: f"{entry['size']:,} bytes" for name, entry in report["files"].items()})

    show(as_json, report, text)
