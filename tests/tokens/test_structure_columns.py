"""Columns of the structure of documents, by hand, in English and Chinese."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from firth.text.corpus import read_corpus
from firth.text.discourse import MARKERS, RELATIONS
from firth.tokens.build import open_tokens
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore
from firth.tokens.structure import make_columns
from firth.tokens.tokenizer import Tokenizer

RECIPE = TokenizerRecipe(model="wordpiece", vocab_size=500, lowercase=True, min_count=1)


def opened(documents: list[list[str]], name: str) -> tuple[Tokenizer, TokenStore]:
    return open_tokens(RECIPE, read_corpus(documents), columns=make_columns([name]))


def parts(documents: list[list[str]], name: str) -> list[list[tuple[str, int]]]:
    """For each sentence its runs of equal values, as text without spaces and value."""
    tokenizer, store = opened(documents, name)
    found = []
    for begin, end in pairwise(store.sentences.astype(int).tolist()):
        values = store.columns[name][begin:end]
        bounds = [0, *(np.flatnonzero(np.diff(values.astype(int))) + 1).tolist(), end - begin]
        runs = [
            (tokenizer.decode(store.ids[begin + one : begin + two].tolist()).replace(" ", ""), int(values[one]))
            for one, two in pairwise(bounds)
        ]
        found.append(runs)
    return found


def number(relation: str) -> int:
    return RELATIONS.index(relation) + 1


def test_markers_are_lists_without_doubles() -> None:
    every = [marker for markers in MARKERS.values() for marker in markers]
    assert len(every) == len(set(every))
    assert tuple(MARKERS) == RELATIONS


def test_discourse_markers() -> None:
    """The longest one at the beginning of a sentence, with its comma; not in the first sentence of a document."""
    found = parts(
        [
            ["However, it is so.", "However, the sea is cold.", "In addition the sky is in.", "Sofas are here.", "So"],
            ["因此很好。", "因此，我们去。", "但是他不来。", "他但是来。"],
        ],
        "discourse",
    )
    assert found == [
        [("however,itisso.", 0)],
        [("however,", number("contrast")), ("theseaiscold.", 0)],
        [("inaddition", number("addition")), ("theskyisin.", 0)],
        [("sofasarehere.", 0)],
        [("so", 0)],
        [("因此很好。", 0)],
        [("因此，", number("result")), ("我们去。", 0)],
        [("但是", number("contrast")), ("他不来。", 0)],
        [("他但是来。", 0)],
    ]


def test_headlines() -> None:
    """A short first line that does not end like a sentence, before a body."""
    found = parts(
        [
            ["Rain in the north", "It rains."],
            ["It rains.", "It rains again."],
            ["Alone"],
            ["北方下雨", "今天下雨。"],
            ['He asked "why?"', "Nobody knew."],
        ],
        "headlines",
    )
    assert [runs[0][1] for runs in found] == [1, 0, 0, 0, 0, 1, 0, 0, 0]


def test_turns_of_dialogues() -> None:
    """The speaker who begins is 1; a sentence without a speaker goes on; other documents with colons have none."""
    found = parts(
        [
            ["A: hi there", "B: hello", "how are you", "A: fine"],
            ["男：你好", "女：你好", "男：再见"],
            ["name: anna", "age: five", "city: rome"],
            ["A: one", "B: two"],
            ["note: this is", "a text", "without turns", "of people"],
        ],
        "turns",
    )
    assert found[:4] == [
        [("a:", 1), ("hithere", 0)],
        [("b:", 2), ("hello", 0)],
        [("howareyou", 0)],
        [("a:", 1), ("fine", 0)],
    ]
    assert found[4:7] == [[("男：", 1), ("你好", 0)], [("女：", 2), ("你好", 0)], [("男：", 1), ("再见", 0)]]
    assert all(value == 0 for runs in found[7:] for _, value in runs)


def test_repeated_tokens() -> None:
    """In two sentences of a document, not twice in one, nor in two documents."""
    found = parts([["a cat cat sat", "a dog ran"], ["dog sat", "cat ran"]], "repeats")
    assert found == [
        [("a", 1), ("catcatsat", 0)],
        [("a", 1), ("dogran", 0)],
        [("dogsat", 0)],
        [("catran", 0)],
    ]
