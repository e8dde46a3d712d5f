"""firth similar, firth embed: using vectors of words and texts."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from firth.cli.console import EncodingOption, JsonFlag, print_fields, show, verb
from firth.cli.use import ModelArgument

LayerOption = Annotated[
    str | None, typer.Option("--layer", help="Networks: a number, last, mix (the mean of all) or all side by side.")
]


@verb
def similar(
    model: ModelArgument,
    words: Annotated[list[str] | None, typer.Argument(help="A word, or several for what they have in common.")] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="How many: 10, or 200 on a map.")] = None,
    minus: Annotated[list[str] | None, typer.Option("--minus", help="A word to be far from, for analogies.")] = None,
    method: Annotated[str, typer.Option("--method", help="Analogies: add (3CosAdd) or mul (3CosMul).")] = "add",
    context: Annotated[str | None, typer.Option("--context", help="A text with the word that tells its sense.")] = None,
    text: Annotated[
        Path | None, typer.Option("--text", help="Networks: a file whose words are compared with the word in context.")
    ] = None,
    layer: LayerOption = None,
    odd: Annotated[bool, typer.Option("--odd", help="Which of the words does not belong?")] = False,
    distance: Annotated[bool, typer.Option("--distance", help="How near are two words?")] = False,
    map: Annotated[
        Path | None, typer.Option("--map", help="Draw the words, or the most frequent ones, into this SVG file.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """The words nearest to a word, in a context where a model reads it, analogies, the odd one out, a map.

    Example: firth similar sg king woman --minus man
    """
    from firth.apply.similar import find_similar
    from firth.artifact.models import load
    from firth.errors import AbilityError

    given = words or []
    _check_question(given, odd, distance, map, minus or [])
    if (text is not None or layer is not None) and (context is None or len(given) != 1):
        raise typer.BadParameter("--text and --layer go with one word and its --context.")
    loaded: Any = load(model)
    if map is not None:
        _draw(loaded, given, count or 200, map, as_json)
    elif odd:
        _tell_odd(loaded, given, as_json)
    elif distance:
        _tell_distance(loaded, given, as_json)
    elif context is not None and hasattr(loaded, "layers") and len(given) == 1 and not minus:
        _tell_occurrences(loaded, given[0], context, text, layer, count or 10, as_json)
    else:
        if text is not None or layer is not None:
            raise AbilityError("--text and --layer are for networks that read a context, such as elmo or bert.")
        found = find_similar(loaded, given, minus or [], count=count or 10, context=context, method=method)
        rows = [{"word": word, "score": score} for word, score in found]
        asked = {"word": given[0]} if len(given) == 1 and not minus else {"plus": given, "minus": minus or []}
        show(as_json, asked | {"neighbours": rows}, lambda: _print_scores(found))


def _check_question(words: list[str], odd: bool, distance: bool, map: Path | None, minus: list[str]) -> None:
    if odd + distance + (map is not None) > 1:
        raise typer.BadParameter("choose one of --odd, --distance and --map.")
    if (odd or distance or map) and minus:
        raise typer.BadParameter("--minus is for analogies alone.")
    if distance and len(words) != 2:
        raise typer.BadParameter("--distance takes two words.")
    if not words and map is None:
        raise typer.BadParameter("name a word, or several.")


def _tell_odd(model: Any, words: list[str], as_json: bool) -> None:
    from firth.apply.similar import odd_one_out

    found = odd_one_out(model, words)
    show(as_json, {"odd": found, "words": words}, lambda: print(found))


def _tell_occurrences(
    model: Any, word: str, context: str, text: Path | None, layer: str | None, count: int, as_json: bool
) -> None:
    from firth.apply.similar import nearest_occurrences
    from firth.text.corpus import read_corpus

    sentences: Iterator[str] | tuple[str, ...] = ()
    if text is not None:
        sentences = (sentence for document in read_corpus(text) for sentence in document.sentences)
    found = nearest_occurrences(model, word, context, sentences, count, _layer(layer or "last"))
    shown = [(f"{one['word']}  ·  {one['context']}", one["score"]) for one in found]
    show(
        as_json,
        {"word": word, "context": context, "neighbours": found},
        lambda: sys.stdout.writelines(f"{score:7.4f}  {line}\n" for line, score in shown),
    )


def _layer(text: str) -> str | int:
    """A layer as it is written on a command line.

    >>> _layer("mix"), _layer("2")
    ('mix', 2)
    """
    return int(text) if text.removeprefix("-").isdecimal() else text


def _tell_distance(model: Any, words: list[str], as_json: bool) -> None:
    from firth.apply.similar import require_vectors

    near = require_vectors(model).similarity(*words)
    facts = {"words": words, "similarity": near, "distance": 1 - near}
    show(as_json, facts, lambda: print_fields({name: facts[name] for name in ("similarity", "distance")}))


def _draw(model: Any, words: list[str], count: int, out: Path, as_json: bool) -> None:
    from firth.files import write_file
    from firth.report.map import word_map

    drawn = word_map(model, words or None, count=count)
    write_file(out, drawn.svg().encode())
    show(as_json, {"out": str(out)} | drawn.to_json(), lambda: print(f"{len(drawn.words)} words -> {out}"))


def _print_scores(found: list[tuple[str, float]]) -> None:
    """Words and scores in two columns; Chinese characters are two wide."""
    width = max((_width(word) for word, _ in found), default=0)
    for word, score in found:
        print(f"{word}{' ' * (width - _width(word))}  {score:7.4f}")


def _width(text: str) -> int:
    """How many columns a text takes on a terminal.

    >>> _width("word"), _width("足球")
    (4, 4)
    """
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


@verb
def embed(
    model: ModelArgument,
    file: Annotated[Path, typer.Argument(help="A text file, one text on each line; - for standard input.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The .npy file to write, a row for each line.")],
    layer: LayerOption = None,
    pooling: Annotated[
        str | None, typer.Option("--pooling", help="Networks: mean of the tokens, whole, max, first (CLS) or last.")
    ] = None,
    unit: Annotated[bool, typer.Option("--unit", help="Divide each vector by its length.")] = False,
    encoding: EncodingOption = None,
    as_json: JsonFlag = False,
) -> None:
    """The vector of each line of a file, as an array for NumPy.

    Example: firth embed sg texts.txt -o texts.npy
    """
    from firth.apply.embed import embed_file
    from firth.artifact.models import load

    options: dict[str, str | int] = {"pooling": pooling} if pooling is not None else {}
    if layer is not None:
        options["layer"] = _layer(layer)
    report = embed_file(load(model), file, out, encoding, unit=unit, **options)
    show(as_json, report, lambda: print_fields(report))
