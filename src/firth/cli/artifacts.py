"""firth info, verify, export, import: artifact folders and files of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from firth.cli import options
from firth.cli.console import print_fields, show, verb

FormatArgument = Annotated[str, Argument(help="arpa, brown, fasttext, glove, huggingface or word2vec.")]


@verb
def info(folder: options.Model, as_json: options.Json = False) -> None:
    """Print the manifest of an artifact: recipe, budget, corpus, metrics, versions and files.

    Example: firth info uni
    """
    from firth.artifact.folder import artifact_info
    from firth.recipes.values import flatten

    facts = artifact_info(folder)
    show(as_json, facts, lambda: print_fields(flatten(facts)))


@verb
def verify(
    folder: Annotated[Path, Argument(help="The folder of an artifact, or an ARPA file.")],
    as_json: options.Json = False,
) -> None:
    """Verify every byte of an artifact and the model in it, or that the probabilities of an ARPA file sum to one.

    Example: firth verify kn
    """
    from firth.artifact.models import verify_model

    if folder.is_file():
        from firth.artifact.formats.arpa import verify_arpa

        found = verify_arpa(folder)
        show(as_json, found, lambda: print_fields(found))
        return
    report = verify_model(folder)

    def text() -> None:
        print(f"{folder} is complete: {report['name']} ({report['kind']}), format {report['format']}")
        print_fields({name: f"{entry['size']:,} bytes" for name, entry in report["files"].items()})

    show(as_json, report, text)


@verb
def export_(
    model: options.Model,
    format: FormatArgument,
    path: Annotated[Path, Argument(help="The file or folder to write; .gz compresses, .bin is binary.")],
    as_json: options.Json = False,
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
    path: Annotated[Path, Argument(help="The file or folder to read.")],
    out: options.Out,
    task: Annotated[str | None, Option("--task", help="Task of a Hugging Face classifier: classify or pair.")] = None,
    as_json: options.Json = False,
) -> None:
    """Make an artifact of a model in a format of another program.

    Example: firth import arpa kn.arpa -o kn

    Example: firth import glove glove.6B.100d.txt -o glove

    Example: firth import huggingface bert-mrpc -o mrpc --task pair
    """
    from firth.artifact.formats import import_model

    report = import_model(format, path, out, task)
    show(as_json, report, lambda: print_fields(report))
