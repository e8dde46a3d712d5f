"""firth info, verify, export, import: artifact folders and files of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from firth.cli import options
from firth.cli.checks import require_choice
from firth.cli.console import checking_arguments, print_fields, show, verb
from firth.errors import ArgumentError

FormatArgument = Annotated[
    str,
    Argument(
        help="arpa, brown, fasttext, glove, huggingface, onnx or word2vec.",
        autocompletion=options.completion("formats"),
    ),
]


@verb
def info(
    folder: options.Model,
    every: Annotated[bool, Option("--all", help="Print every field of the manifest.")] = False,
    as_json: options.Json = False,
) -> None:
    """Print what an artifact is: recipe, text, budget, metrics, versions and files.

    Example: firth info uni
    """
    from firth.artifact.folder import artifact_info
    from firth.cli.summaries import summarise_artifact
    from firth.recipes.values import flatten

    facts = artifact_info(folder)
    show(as_json, facts, lambda: print_fields(flatten(facts) if every else summarise_artifact(facts)))


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
    task: options.Task = None,
    pooling: Annotated[str | None, Option("--pooling", help="sentence-transformers: whole, first or max.")] = None,
    unit: Annotated[bool, Option("--unit", help="sentence-transformers: normalise vectors.")] = False,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Write a model in a format of another program.

    Example: firth export kn arpa kn.arpa

    Example: firth export sg word2vec sg.bin

    Example: firth export bert sentence-transformers bert-st --pooling whole --unit

    Example: firth export bert onnx bert-onnx
    """
    from firth.artifact.formats import FOLDERS, FORMATS, export_model
    from firth.files import require_free, require_new_file

    with checking_arguments():
        require_choice("format", format, FORMATS)
    if format in FOLDERS:
        require_free(path)  # a folder is never replaced
    else:
        require_new_file(path, force, [model])

    from firth.abilities import for_task
    from firth.artifact.models import load

    report = export_model(for_task(load(model), task), format, path, pooling=pooling, unit=unit)
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
    from firth.artifact.formats import FORMATS, import_model

    with checking_arguments():
        require_choice("format", format, FORMATS)
        require_choice("task of a classifier", task, ("classify", "pair"))
        if task is not None and format != "huggingface":
            raise ArgumentError(f"--task is for models of huggingface, not of {format}: leave it out.")
    report = import_model(format, path, out, task)
    show(as_json, report, lambda: print_fields(report))
