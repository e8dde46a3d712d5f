"""firth score, firth generate: using a language model."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from firth.cli.console import EncodingOption, JsonFlag, print_fields, show, verb

ModelArgument = Annotated[Path, typer.Argument(help="The folder of a trained model.")]


@verb
def score(
    model: ModelArgument,
    file: Annotated[Path, typer.Argument(help="A text file, one text on each line; - for standard input.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write each line's score here as JSONL.")] = None,
    encoding: EncodingOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Log-probability, bits per byte and perplexity of a file.

    Example: firth score uni test.txt -o scores.jsonl
    """
    from firth.abilities import Score
    from firth.apply.score import line_row, score_file, summarise
    from firth.artifact.models import load
    from firth.files import new_file
    from firth.progress import progress

    loaded: Any = load(model)
    whole = Score()
    with ExitStack() as stack:
        rows = stack.enter_context(new_file(out)) if out else None
        advance = stack.enter_context(progress("scoring"))
        for number, one in score_file(loaded, file, encoding):
            whole += one
            advance(one.bytes)
            if rows:
                rows.write(json.dumps(line_row(number, one)).encode() + b"\n")
    summary = summarise(whole, loaded.score_kind)
    show(as_json, summary, lambda: print_fields(summary))


@verb
def generate(
    model: ModelArgument,
    prompt: Annotated[str, typer.Option("--prompt", help="Text to go on from.")] = "",
    count: Annotated[int, typer.Option("--count", min=1, help="How many texts.")] = 1,
    length: Annotated[int, typer.Option("--length", min=1, help="Tokens at most in each.")] = 50,
    temperature: Annotated[float, typer.Option("--temperature", help="Below 1 likelier, above 1 wilder.")] = 1.0,
    top_k: Annotated[int | None, typer.Option("--top-k", min=1, help="Only the k likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", min=0, max=1, help="Only the likeliest tokens of this mass.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Decides what is drawn.")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Text that the model writes.

    Example: firth generate uni --count 3 --length 20
    """
    from firth.abilities import Generates
    from firth.artifact.models import load
    from firth.errors import AbilityError

    loaded: Any = load(model)
    if not isinstance(loaded, Generates):
        raise AbilityError(f"{model} cannot write text: generate with a language model.")
    texts = loaded.generate(
        prompt, count=count, length=length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    show(as_json, {"texts": texts}, lambda: sys.stdout.writelines(text + "\n" for text in texts))
