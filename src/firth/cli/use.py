"""firth score, generate, fill, embed: language models and vectors in use."""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, cast

from typer import Argument, Option

from firth.abilities import CONTEXTS, POOLINGS, Context
from firth.cli import options
from firth.cli.checks import check_encoding, check_reading, check_temperature, parse_layer, require_choice
from firth.cli.console import checking_arguments, print_fields, show, to_json, verb
from firth.cli.pairs import generate_from, refuse_options, score_pairs
from firth.errors import AbilityError, ArgumentError


@verb
def score(
    model: options.Model,
    files: Annotated[
        list[Path] | None, Argument(help="Text files with one text per line; - for standard input.")
    ] = None,
    out: Annotated[Path | None, Option("-o", "--out", help="Write the score of each line here as JSONL.")] = None,
    context: Annotated[
        str, Option("--context", help="line: each line by itself; document: after those since the last blank line.")
    ] = "line",
    explain: Annotated[bool, Option("--explain", help="Explain the probability of each token.")] = False,
    whole_words: Annotated[bool, Option("--whole-words", help="Masked models: mask whole words.")] = False,
    layout: Annotated[
        str | None, Option("--layout", help="lines, prose, wrapped, auto; default: as in the training text.")
    ] = None,
    encoding: options.Encoding = None,
    pair: options.Pair = None,
    settings: options.UseSettings = None,
    language: options.Language = None,
    threads: Annotated[int | None, Option("--threads", min=1, help="Number of threads; default: all cores.")] = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Print log-probability, bits per byte and perplexity of files.

    Example: firth score uni test.txt -o scores.jsonl
    """
    from firth.files import new_file, require_new_file

    with checking_arguments():
        require_choice("context", context, CONTEXTS)
        check_reading(layout or "auto", encoding)
        if explain and context == "document":
            raise ArgumentError("--explain is for lines by themselves: leave --context document out.")
        if not files and pair is None:
            raise ArgumentError("nothing to score was given: name the files.")
    if out is not None:
        require_new_file(out, force, [*(files or []), model])

    from firth.abilities import HasLayers, Score
    from firth.apply.languages import in_language
    from firth.apply.pairs import wants_pairs
    from firth.apply.score import directions, explain_text, line_row, open_texts, score_lines, summarise
    from firth.apply.settings import with_settings
    from firth.artifact.models import load_network
    from firth.cores import limit_threads
    from firth.progress import progress

    loaded: Any = in_language(with_settings(load_network(model), settings or []), language)
    if wants_pairs(loaded, files or [], pair):
        given = {"--context": context != "line", "--explain": explain, "--whole-words": whole_words, "--layout": layout}
        refuse_options(given, "this model scores a target given its source")
        with limit_threads(threads):
            return score_pairs(loaded, files or [], pair, encoding, out, as_json)
    if pair is not None or files is None:
        raise AbilityError(f"{model} scores texts by themselves, not pairs: leave --pair out, or use a transformer.")
    texts = open_texts(loaded, files, cast(Context, context), encoding=encoding, layout=layout)
    several = len(texts.files) > 1
    total = Score()
    explained: list[dict[str, Any]] = []
    with ExitStack() as stack:
        stack.enter_context(limit_threads(threads))
        rows = stack.enter_context(new_file(out)) if out else None
        # Networks have a progress bar of their own.
        advance = None if isinstance(loaded, HasLayers) else stack.enter_context(progress("scoring"))
        for line, one in score_lines(loaded, texts, whole_words=whole_words):
            total += one
            if advance is not None:
                advance(one.bytes)
            tokens = {"sentences": explain_text(loaded, line.text)} if explain else {}
            if rows:
                rows.write(to_json(line_row(line, one, several) | tokens).encode() + b"\n")
            elif explain:
                explained.append(({"file": line.file} if several else {}) | {"line": line.number} | tokens)
        summary = summarise(total, loaded.score_kind, texts.context) | directions(loaded, texts, total)
    details = {"lines": explained} if explain and not out else {}

    def text_output() -> None:
        for line in explained:
            _print_explained(line)
        print_fields(summary)

    show(as_json, summary | details, text_output)


def _print_explained(line: dict[str, Any]) -> None:
    """Print for each token: probability, order of the n-gram, its history, back-off weights of longer histories."""
    for sentence in line["sentences"]:
        for row in sentence:
            order = f"{row['order']}-gram" if "order" in row else ""
            weights = " ".join(f"{math.exp(weight):.3g}" for weight in row.get("backoffs", []))
            history = " ".join(row.get("history", []))
            backed_off = f"  after backing off with {weights}" if weights else ""
            print(f"{row['token']:<16} {math.exp(row['logprob']):<10.4g} {order:<8}{history}{backed_off}")
        print()


@verb
def generate(
    model: options.Model,
    prompt: Annotated[str, Option("--prompt", help="Text to continue.")] = "",
    count: Annotated[int, Option("--count", min=1, help="Number of texts.")] = 1,
    length: Annotated[
        int | None, Option("--length", min=1, help="Maximum number of tokens of each: 50, or as in training pairs.")
    ] = None,
    temperature: Annotated[float, Option("--temperature", help="Of sampling; 0: greedy decoding.")] = 1.0,
    top_k: Annotated[int | None, Option("--top-k", min=1, help="Sample from the k most probable tokens.")] = None,
    top_p: Annotated[float | None, Option("--top-p", min=0, max=1, help="Nucleus sampling.")] = None,
    beams: Annotated[
        int | None, Option("--beams", min=1, help="Networks: beam search with this many beams; 4 with --source.")
    ] = None,
    seed: options.Seed = 0,
    settings: options.UseSettings = None,
    language: options.Language = None,
    next_count: Annotated[int | None, Option("--next", min=1, help="Print the N most probable next tokens.")] = None,
    source: Annotated[
        str | None, Option("--source", help="Text to translate, or a file with one on each line.")
    ] = None,
    out: Annotated[
        Path | None, Option("-o", "--out", help="With --source: file of texts to write; .jsonl with scores.")
    ] = None,
    force: options.Force = False,
    shots: options.Shots = None,
    train: options.ShotsFile = None,
    template: options.Template = None,
    as_json: options.Json = False,
) -> None:
    """Generate text, or print the most probable next tokens.

    Example: firth generate kn --prompt "the stock" --next 5

    Example: firth generate en-de --source "A dog runs." --beams 4

    Example: firth generate gpt --prompt "a fine film" --shots 4 --train reviews.tsv --next 3
    """
    with checking_arguments():
        check_temperature(temperature)

    from firth.abilities import Generates, Translates
    from firth.apply.languages import in_language
    from firth.apply.score import next_tokens
    from firth.apply.settings import with_settings
    from firth.artifact.models import load_network
    from firth.errors import AbilityError
    from firth.files import require_new_file

    if out is not None:
        require_new_file(out, force, [model])
    loaded: Any = in_language(with_settings(load_network(model), settings or []), language)
    if source is not None and isinstance(loaded, Translates):
        sampled = {"--temperature": temperature != 1, "--top-k": top_k, "--top-p": top_p is not None}
        given = {"--prompt": prompt, "--count": count > 1, "--next": next_count} | sampled
        refuse_options(given, "one text is generated from a source, by beam search")
        return generate_from(loaded, source, beams, length, out, as_json)
    if isinstance(loaded, Translates):
        raise AbilityError(f"{model} generates a text from another one: give it with --source.")
    if source is not None:
        raise AbilityError(f"{model} reads no source: continue a text with --prompt, or use a transformer.")
    refuse_options({"-o": out}, "texts that continue a prompt are printed")
    beams, length = beams or 1, length or 50
    if shots is not None or train is not None or template is not None:
        from firth.apply.few_shot import shots_prompt

        prompt = shots_prompt(loaded, prompt, shots or 0, train, template=template, seed=seed)
    if not isinstance(loaded, Generates):
        raise AbilityError(f"{model} cannot generate text: generate with a language model, such as gpt, lstm or mkn5.")
    if next_count is not None:
        found = next_tokens(loaded, prompt, next_count)
        rows = [{"token": token, "probability": probability} for token, probability in found]
        show(as_json, {"next": rows}, lambda: sys.stdout.writelines(f"{p:.4f}  {token}\n" for token, p in found))
        return
    texts = loaded.generate(
        prompt, count=count, length=length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, beams=beams
    )
    show(as_json, {"texts": texts}, lambda: sys.stdout.writelines(text + "\n" for text in texts))


@verb
def fill(
    model: options.Model,
    text: Annotated[str, Argument(help="A text with one or several [MASK].")],
    top: Annotated[int, Option("--top", min=1, help="Number of tokens for each mask.")] = 5,
    language: options.Language = None,
    as_json: options.Json = False,
) -> None:
    """Print the most probable tokens for the masks of a text, with their probabilities.

    Example: firth fill b "The capital of France is [MASK]."
    """
    from firth.apply.fill import fill_text
    from firth.apply.languages import has_languages, in_language
    from firth.artifact.models import load_network

    loaded: Any = in_language(load_network(model), language)
    masks = fill_text(loaded, text, top)
    read_in = {"language": loaded.language_of(text)} if has_languages(loaded) else {}
    show(as_json, {"masks": masks} | read_in, lambda: _print_masks(masks))


def _print_masks(masks: list[list[dict[str, Any]]]) -> None:
    for number, mask in enumerate(masks):
        if number:
            print()
        for one in mask:
            completed = "" if one["text"] is None else f"  {one['text']}"
            print(f"{one['probability']:.4f}  {one['token']:<16}{completed}".rstrip())


@verb
def embed(
    model: options.Model,
    file: options.Texts,
    out: Annotated[Path, Option("-o", "--out", help="The .npy file to write, one row per line.")],
    layer: options.Layer = None,
    pooling: options.Pooling = None,
    unit: Annotated[bool, Option("--unit", help="Normalise vectors to unit length.")] = False,
    language: options.Language = None,
    encoding: options.Encoding = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Write the vectors of the lines of a file as a NumPy array, a row for each line, also a blank one.

    Example: firth embed sg texts.txt -o texts.npy
    """
    from firth.files import require_new_file

    with checking_arguments():
        given = {"layer": parse_layer(layer), "pooling": pooling}
        require_choice("pooling", pooling, POOLINGS)
        check_encoding(encoding)
    require_new_file(out, force, [file, model])

    from firth.apply.embed import embed_file
    from firth.apply.languages import in_language
    from firth.artifact.models import load_network

    arguments = {name: value for name, value in given.items() if value is not None}
    report = embed_file(in_language(load_network(model), language), file, out, encoding, unit=unit, **arguments)
    show(as_json, report, lambda: print_fields(report))
