"""firth train: from text to an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from firth.cli.console import (
    EncodingOption,
    FieldOption,
    JsonFlag,
    LayoutOption,
    ThreadsOption,
    print_fields,
    show,
    verb,
)


@verb
def train(
    recipe: Annotated[str, typer.Argument(help="What to train: firth recipes lists all.")],
    corpus: Annotated[list[str], typer.Argument(help="Files, folders, globs, - or builtin:NAME.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The new folder to write.")],
    valid: Annotated[str | None, typer.Option("--valid", help="Held-out text to score at the end.")] = None,
    size: Annotated[
        str | None, typer.Option("--size", help="tiny, mini, small or base, where there are sizes.")
    ] = None,
    budget: Annotated[str | None, typer.Option("--budget", help="20s, 10min, 3h, 300ktok, 20Mtok, 1e15flop.")] = None,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="Use the tokenizer of this artifact.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a field: key.sub=value.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Decides all that is random.")] = 0,
    threads: ThreadsOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an earlier run stopped.")] = False,
    field: FieldOption = "text",
    encoding: EncodingOption = None,
    layout: LayoutOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Train a recipe on text and save it as an artifact.

    Example: firth train wordpiece news.txt -o wp --set vocab_size=16000
    """
    from firth.artifact.folder import artifact_info
    from firth.files import return_freed_memory
    from firth.fit.train import train as run

    return_freed_memory()

    run(
        recipe,
        *corpus,
        out=out,
        valid=valid,
        size=size,
        budget=budget,
        tokenizer=tokenizer,
        settings=settings or [],
        seed=seed,
        threads=threads,
        resume=resume,
        field=field,
        encoding=encoding,
        layout=layout,
        reload=False,
    )
    _tell(as_json, out, artifact_info(out))


@verb
def adapt(
    model: Annotated[Path, typer.Argument(help="The folder of a trained model or tokenizer.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The new folder to write.")],
    corpus: Annotated[list[str] | None, typer.Argument(help="Files, folders, globs, - or builtin:NAME.")] = None,
    add: Annotated[list[str] | None, typer.Option("--add", help="Text or n-gram model whose counts to add.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="Text or model to take away again.")] = None,
    valid: Annotated[str | None, typer.Option("--valid", help="Held-out text for free parameters.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Change a field: key.sub=value.")] = None,
    budget: Annotated[str | None, typer.Option("--budget", help="Nets: 20s, 10min, 3h, 300ktok, 1e15flop.")] = None,
    threads: ThreadsOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Nets: go on where an earlier run stopped.")] = False,
    field: FieldOption = "text",
    encoding: EncodingOption = None,
    layout: LayoutOption = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Go on with a domain's text: a vocabulary grows, an n-gram model's counts are added up, vectors and nets learn on.

    Example: firth adapt kn --add june.txt --remove may.txt -o kn-june
    """
    from firth.artifact.folder import artifact_info
    from firth.fit.adapt import adapt as run

    run(
        model,
        *(corpus or []),
        out=out,
        add=add or [],
        remove=remove or [],
        valid=valid,
        settings=settings or [],
        budget=budget,
        threads=threads,
        resume=resume,
        field=field,
        encoding=encoding,
        layout=layout,
    )
    _tell(as_json, out, artifact_info(out))


def _tell(as_json: bool, out: Path, info: dict[str, Any]) -> None:
    """What was made, of what."""

    def text() -> None:
        spent, read = info["budget"]["spent"], info["corpus"]
        print(f"{info['name']} -> {out}  ({info['bytes']:,} bytes, {spent['seconds']:.1f} s)")
        counts = {key: read[key] for key in ("documents", "sentences", "words", "tokens", "bytes", "layout")}
        print_fields(counts | info["metrics"])

    show(as_json, {"out": str(out), **info}, text)
