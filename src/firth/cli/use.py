"""firth score, firth generate: using a language model."""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from firth.cli.console import EncodingOption, JsonFlag, print_fields, show, to_json, verb

ModelArgument = Annotated[Path, typer.Argument(help="The folder of a trained model.")]


@verb
def score(
    model: ModelArgument,
    file: Annotated[Path, typer.Argument(help="A text file, one text on each line; - for standard input.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write each line's score here as JSONL.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say of each token how its probability came about.")
    ] = False,
    whole_words: Annotated[
        bool, typer.Option("--whole-words", help="Masked models: hide the rest of a token's word, too.")
    ] = False,
    encoding: EncodingOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Log-probability, bits per byte and perplexity of a file.

    Example: firth score uni test.txt -o scores.jsonl
    """
    from firth.abilities import Score
    from firth.apply.score import directions, explain_text, line_row, score_file, summarise
    from firth.artifact.models import load
    from firth.files import new_file
    from firth.progress import progress

    loaded: Any = load(model)
    whole = Score()
    explained: list[dict[str, Any]] = []
    texts: list[str] = []
    with ExitStack() as stack:
        rows = stack.enter_context(new_file(out)) if out else None
        shown = not getattr(loaded, "shows_progress", False)  # a model that does so itself needs no second bar
        advance = stack.enter_context(progress("scoring")) if shown else None
        for number, text, one in score_file(loaded, file, encoding, whole_words=whole_words):
            whole += one
            if advance is not None:
                advance(one.bytes)
            if hasattr(loaded, "score_backwards"):
                texts.append(text)
            if explain:
                explained.append({"line": number, "sentences": explain_text(loaded, text)})
            if rows:
                row = line_row(number, one) | ({"sentences": explained.pop()["sentences"]} if explain else {})
                rows.write(to_json(row).encode() + b"\n")
    summary = summarise(whole, loaded.score_kind) | directions(loaded, texts, whole)
    details = {"lines": explained} if explain and not out else {}

    def text_output() -> None:
        for line in explained:
            _print_explained(line)
        print_fields(summary)

    show(as_json, summary | details, text_output)


def _print_explained(line: dict[str, Any]) -> None:
    """A row for each token: probability, length of the n-gram that gave it, its history, weights of longer ones."""
    for sentence in line["sentences"]:
        for row in sentence:
            order = f"{row['order']}-gram" if "order" in row else ""
            weights = " ".join(f"{math.exp(weight):.3g}" for weight in row.get("backoffs", []))
            history = " ".join(row.get("history", []))
            passed = f"  after backing off with {weights}" if weights else ""
            print(f"{row['token']:<16} {math.exp(row['logprob']):<10.4g} {order:<8}{history}{passed}")
        print()


@verb
def generate(
    model: ModelArgument,
    prompt: Annotated[str, typer.Option("--prompt", help="Text to go on from.")] = "",
    count: Annotated[int, typer.Option("--count", min=1, help="How many texts.")] = 1,
    length: Annotated[int, typer.Option("--length", min=1, help="Tokens at most in each.")] = 50,
    temperature: Annotated[
        float, typer.Option("--temperature", help="Below 1 likelier, above 1 wilder; 0: always the likeliest.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option("--top-k", min=1, help="Only the k likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option("--top-p", min=0, max=1, help="Only the likeliest tokens of this mass.")
    ] = None,
    beams: Annotated[
        int, typer.Option("--beams", min=1, help="Networks: look for the likeliest texts by so many beams.")
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Decides what is drawn.")] = 0,
    likeliest: Annotated[
        int | None, typer.Option("--next", min=1, help="Show the likeliest next tokens instead, so many of them.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Text that the model writes, or what it expects next.

    Example: firth generate kn --prompt "the stock" --next 5
    """
    from firth.abilities import Generates
    from firth.apply.score import next_tokens
    from firth.artifact.models import load
    from firth.errors import AbilityError

    loaded: Any = load(model)
    if not isinstance(loaded, Generates):
        raise AbilityError(f"{model} cannot write text: generate with a language model, such as gpt, lstm or mkn5.")
    if likeliest is not None:
        found = next_tokens(loaded, prompt, likeliest)
        rows = [{"token": token, "probability": probability} for token, probability in found]
        show(as_json, {"next": rows}, lambda: sys.stdout.writelines(f"{p:.4f}  {token}\n" for token, p in found))
        return
    writer: Any = loaded
    if beams > 1 and not hasattr(loaded, "network"):
        raise AbilityError(f"{model} has no beam search: leave --beams out, or use a network, such as gpt or lstm.")
    searched = {"beams": beams} if beams > 1 else {}
    texts = writer.generate(
        prompt, count=count, length=length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, **searched
    )
    show(as_json, {"texts": texts}, lambda: sys.stdout.writelines(text + "\n" for text in texts))
