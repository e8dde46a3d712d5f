"""Several kinds of text in one run: running text, translations, labelled pairs. Each step is of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from firth.errors import CorpusError
from firth.fit.labelled_pairs import count_labels, open_labelled_pairs, pair_columns, require_labels
from firth.fit.run import open_corpus, open_pairs
from firth.nets.objective import Source
from firth.nets.recipe import NetRecipe
from firth.objectives.sentences import LabelledObjective
from firth.progress import note
from firth.text.corpus import Corpus
from firth.text.parallel import ParallelCorpus, is_parallel, read_parallel, table_columns

NEEDED: dict[Source, str] = {
    "text": "text: name a file of it",
    "translations": "translations: name a file of pairs whose header has two languages",
    "labels": "labelled pairs: name a file with the columns label, text_a and text_b",
    "trees": "parsed sentences: name a file with the columns text and tree",
}
"""What objectives are trained on, and how it is given."""


@dataclass(frozen=True, repr=False)
class MixedCorpus(Corpus):
    """A corpus of several kinds of text."""

    sources: tuple[tuple[Source, Corpus], ...] = ()

    def of(self, kind: Source) -> Corpus | None:
        """The text of one kind, if there is any."""
        return dict(self.sources).get(kind)

    def key(self) -> str:
        return f"{super().key()} {' '.join(kind for kind, _ in self.sources)}"

    def describe(self) -> dict[str, Any]:
        found: dict[str, Any] = {kind: [one.title() for one in corpus.inputs] for kind, corpus in self.sources}
        labels = self.of("labels")
        counted = {} if labels is None else {"labels": dict(sorted(count_labels(labels).items()))}
        return super().describe() | {"sources": found} | counted


def mixes_sources(recipe: Any) -> bool:
    """Whether a recipe is trained on several kinds of text, or on one that is not running text."""
    if not isinstance(recipe, NetRecipe) or recipe.embedding.languages:
        return False
    return any(one.groups_sentences or one.source != "text" for one in recipe.objectives)


def open_sources(recipe: NetRecipe, texts: Sequence[Any], **reading: Any) -> MixedCorpus:
    """The texts given to a verb, of the kinds that their columns tell; `reading` is that of `open_corpus`."""
    if len(texts) == 1 and isinstance(texts[0], MixedCorpus):
        return texts[0]
    kinds: dict[Source, list[Any]] = {}
    for text in texts:
        kinds.setdefault(kind_of(text), []).append(text)
    needed = {one.source for one in recipe.objectives} | {"text"}
    for kind, given in kinds.items():
        if kind not in needed:
            raise CorpusError(
                f"{given[0]!s:.80} has {NEEDED[kind].split(':')[0]}, which {'+'.join(recipe.names)} does not use: "
                "leave it out, or set other objectives."
            )
    if not kinds:
        raise CorpusError("no corpus was given: name a file, a folder, a glob, - or builtin:pydoc.")
    found: list[tuple[Source, Corpus]] = []
    if "text" in kinds:
        found.append(("text", open_corpus(kinds["text"], **reading)))
    if "translations" in kinds:
        found.append(("translations", open_pairs(kinds["translations"], None, reading.get("encoding"))))
    if "trees" in kinds:
        found.append(("trees", read_parallel(*kinds["trees"], pair="text,tree", encoding=reading.get("encoding"))))
    if "labels" in kinds:
        found.append(("labels", open_labelled_pairs(kinds["labels"], reading.get("encoding"))))
    inputs = tuple(one for _, corpus in found for one in corpus.inputs)
    first = found[0][1]
    return MixedCorpus(inputs, first.layout, segmenter=first.segmenter, sources=tuple(found))


def kind_of(text: Any) -> Source:
    """What a text given to a verb is, by the columns of a file or the type of an object."""
    if isinstance(text, ParallelCorpus):
        return "translations"
    if isinstance(text, list | tuple) and text and all(isinstance(one, Mapping) for one in text):
        return "labels"
    if not isinstance(text, str | Path) or str(text) == "-" or str(text).startswith("builtin:"):
        return "text"
    if pair_columns(text) is not None:
        return "labels"
    if set(table_columns(text)) >= {"text", "tree"}:
        return "trees"
    return "translations" if is_parallel(text) else "text"


def with_sources(recipe: NetRecipe, corpus: Corpus, *, further: bool = False) -> NetRecipe:
    """The recipe if the corpus has all that its objectives are trained on; raises `CorpusError` otherwise.

    In further training objectives without their kind of text are left out, with a note.
    """
    if not mixes_sources(recipe):
        return recipe
    given: set[Source] = {kind for kind, _ in corpus.sources} if isinstance(corpus, MixedCorpus) else {"text"}
    absent = [one for one in recipe.objectives if one.source not in given and one.is_optional]
    for one in absent:
        note(f"{one.name} is not trained: there are no {NEEDED[one.source]}")
    recipe = replace(recipe, objectives=tuple(one for one in recipe.objectives if one not in absent))
    lacking = [one for one in recipe.objectives if one.source not in given]
    others = tuple(one for one in recipe.objectives if one not in lacking)
    names = "+".join(one.name for one in others)
    if lacking and not (further and others):
        remedy = f", or set objectives={names}" if others else ""
        raise CorpusError(f"{lacking[0].name} is trained on {NEEDED[lacking[0].source]}{remedy}.")
    if lacking:
        note(f"trained by {names} alone: there is no other kind of text than {', '.join(sorted(given))}")
    if "text" in given and all(one.source != "text" for one in others):
        note("the running text is read for the vocabulary and initial vectors alone")
    labels = corpus.of("labels") if isinstance(corpus, MixedCorpus) else None
    for one in others:
        if labels is not None and isinstance(one, LabelledObjective):
            require_labels(labels, one.known_labels)
    return replace(recipe, objectives=others)
