"""firth similar: words and sentences that are alike."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from firth.abilities import POOLINGS
from firth.cli import options
from firth.cli.checks import parse_layer, require_choice
from firth.cli.console import checking_arguments, print_fields, show, verb
from firth.errors import ArgumentError


@verb
def similar(
    model: options.Model,
    words: Annotated[list[str] | None, Argument(help="A word, or several for their neighbours.")] = None,
    count: Annotated[int | None, Option("--count", min=1, help="Number of words: 10, or 200 on a map.")] = None,
    minus: Annotated[list[str] | None, Option("--minus", help="Analogies: a word to subtract.")] = None,
    method: options.Method = "add",
    context: Annotated[str | None, Option("--context", help="A text with the word in its sense.")] = None,
    text: Annotated[Path | None, Option("--text", help="Networks: file of words to compare.")] = None,
    sentences: Annotated[Path | None, Option("--sentences", help="File of texts to search; WORDS are queries.")] = None,
    layer: options.Layer = None,
    pooling: options.Pooling = None,
    language: options.Language = None,
    odd: Annotated[bool, Option("--odd", help="Print the word that does not belong to the others.")] = False,
    distance: Annotated[bool, Option("--distance", help="Print similarity and distance of two words.")] = False,
    map: Annotated[Path | None, Option("--map", help="SVG file: a map of the words, or of frequent ones.")] = None,
    as_json: options.Json = False,
) -> None:
    """Print the nearest words, in a context if given; analogies, the odd one out, a map.

    Example: firth similar sg king woman --minus man

    Example: firth similar sif --sentences news.txt "shares fell sharply"
    """
    from firth.apply.similar import find_similar, odd_one_out, require_method, require_vectors
    from firth.files import require_outside_artifacts

    given = words or []
    with checking_arguments():
        _check_options(given, odd, distance, map, minus or [])
        require_method(method)
        chosen_layer = parse_layer(layer)
        if sentences is not None and (odd or distance or map or minus or context or text or not given):
            raise ArgumentError("--sentences is searched for texts: give them, and no option of words.")
        is_layered = layer is not None and sentences is None
        if (text is not None or is_layered) and (context is None or len(given) != 1):
            raise ArgumentError("--text and --layer go with one word and its --context: name these.")
        if pooling is not None and sentences is None:
            raise ArgumentError("--pooling goes with --sentences: name a file of texts.")
        require_choice("pooling", pooling, POOLINGS)
    if map is not None:
        require_outside_artifacts(map)

    from firth.abilities import HasLayers
    from firth.apply.languages import in_language
    from firth.artifact.models import load_network
    from firth.errors import AbilityError

    loaded: Any = load_network(model)
    if context is not None or language is not None:
        loaded = in_language(loaded, language)
    if sentences is not None:
        wanted = {"layer": chosen_layer, "pooling": pooling}
        chosen = {name: value for name, value in wanted.items() if value is not None}
        _print_sentences(loaded, given, sentences, count or 10, chosen, as_json)
    elif map is not None:
        _draw_map(loaded, given, count or 200, map, as_json)
    elif odd:
        odd_word = odd_one_out(loaded, given)
        show(as_json, {"odd": odd_word, "words": given}, lambda: print(odd_word))
    elif distance:
        similarity = require_vectors(loaded).similarity(*given)
        facts = {"similarity": similarity, "distance": 1 - similarity}
        show(as_json, {"words": given} | facts, lambda: print_fields(facts))
    elif context is not None and isinstance(loaded, HasLayers) and len(given) == 1 and not minus:
        _print_occurrences(loaded, given[0], context, text, chosen_layer, count or 10, as_json)
    else:
        if text is not None or layer is not None:
            raise AbilityError("--text and --layer are for contextual models, such as elmo or bert: leave them out.")
        found = find_similar(loaded, given, minus or [], count=count or 10, context=context, method=method)
        rows = [{"word": word, "score": score} for word, score in found]
        query = {"word": given[0]} if len(given) == 1 and not minus else {"plus": given, "minus": minus or []}
        show(as_json, query | {"neighbours": rows}, lambda: _print_scores(found))


def _print_sentences(
    model: Any, queries: list[str], file: Path, count: int, chosen: dict[str, Any], as_json: bool
) -> None:
    from firth.apply.sentences import index_file

    index = index_file(model, file, **chosen)
    found = {query: index.similar(query, count) for query in queries}
    rows = [
        {"query": query, "neighbours": [{"text": text, "score": score} for text, score in near]}
        for query, near in found.items()
    ]

    def text_output() -> None:
        for query, near in found.items():
            if len(found) > 1:
                print(f"{query}:")
            sys.stdout.writelines(f"{score:7.4f}  {text}\n" for text, score in near)

    show(as_json, {"sentences": len(index.texts), "queries": rows}, text_output)


def _check_options(words: list[str], odd: bool, distance: bool, map: Path | None, minus: list[str]) -> None:
    if odd + distance + (map is not None) > 1:
        raise ArgumentError("--odd, --distance and --map exclude each other: choose one.")
    if (odd or distance or map) and minus:
        raise ArgumentError("--minus is for analogies: leave it out, or --odd, --distance and --map.")
    if distance and len(words) != 2:
        raise ArgumentError("--distance takes two words: name them.")
    if not words and map is None:
        raise ArgumentError("no word was given: name one, or several.")


def _print_occurrences(
    model: Any, word: str, context: str, text: Path | None, layer: str | int | None, count: int, as_json: bool
) -> None:
    from firth.apply.similar import nearest_occurrences
    from firth.text.corpus import read_corpus

    sentences: Iterator[str] | tuple[str, ...] = ()
    if text is not None:
        sentences = (sentence for document in read_corpus(text) for sentence in document.sentences)
    found = nearest_occurrences(model, word, context, sentences, count, "last" if layer is None else layer)
    shown = [(f"{one['word']}  ·  {one['context']}", one["score"]) for one in found]
    show(
        as_json,
        {"word": word, "context": context, "neighbours": found},
        lambda: sys.stdout.writelines(f"{score:7.4f}  {line}\n" for line, score in shown),
    )


def _draw_map(model: Any, words: list[str], count: int, out: Path, as_json: bool) -> None:
    from firth.files import write_file
    from firth.report.map import word_map

    drawn = word_map(model, words or None, count=count)
    write_file(out, drawn.svg().encode())
    show(as_json, {"out": str(out)} | drawn.to_json(), lambda: print(f"{len(drawn.words)} words -> {out}"))


def _print_scores(found: list[tuple[str, float]]) -> None:
    """Print words and scores in two columns; Chinese characters are two columns wide."""
    width = max((_width(word) for word, _ in found), default=0)
    for word, score in found:
        print(f"{word}{' ' * (width - _width(word))}  {score:7.4f}")


def _width(text: str) -> int:
    """The width of a text on a terminal in columns.

    >>> _width("word"), _width("足球")
    (4, 4)
    """
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)
