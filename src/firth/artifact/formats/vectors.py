"""Word vectors to the tables of word2vec, GloVe and fastText, text or binary, and back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

from firth.artifact.formats.ngrams import words_tokenizer
from firth.artifact.formats.vectors_reading import VectorTable, read_vectors
from firth.artifact.formats.vectors_writing import spell_words, write_binary, write_text
from firth.artifact.models import save
from firth.errors import AbilityError
from firth.files import digest_file
from firth.tokens.recipe import TokenizerRecipe
from firth.vectors.model import VectorModel
from firth.vectors.recipe import ImportedRecipe
from firth.vectors.text import FIRST_WORD

Report = dict[str, Any]


def export_word2vec(model: Any, path: Path) -> Report:
    """Writes the vectors in word2vec's format: binary if the name ends with .bin or .bin.gz, text otherwise."""
    return export_table(model, path, header=True, binary=is_binary_name(path))


def export_glove(model: Any, path: Path) -> Report:
    """Writes the vectors in GloVe's format: text without a first line that tells how many there are."""
    return export_table(model, path, header=False, binary=False)


def import_word2vec(path: Path, out: Path) -> Report:
    """Makes an artifact of a word2vec file, text or binary."""
    return import_table(path, out, "word2vec", header=True)


def import_glove(path: Path, out: Path) -> Report:
    """Makes an artifact of a GloVe file."""
    return import_table(path, out, "glove", header=False)


def is_binary_name(path: Path) -> bool:
    """Whether a file of that name is to be binary."""
    return path.name.lower().removesuffix(".gz").endswith(".bin")


def export_table(model: Any, path: Path, *, header: bool, binary: bool) -> Report:
    """Writes a row for each word, in the order of the model, which begins with the most frequent ones."""
    words, vectors = known_words(model), model.vectors[FIRST_WORD:]
    spelt = spell_words(path, words)
    if binary:
        write_binary(path, spelt, vectors)
    else:
        write_text(path, spelt, vectors, header=header)
    return {"vocabulary": len(words), "dimension": vectors.shape[1], "binary": binary}


def known_words(model: Any) -> list[str]:
    """The words of a model that have vectors; one that has none raises `AbilityError`."""
    vectors = getattr(model, "vectors", None)
    if not isinstance(model, VectorModel) or not isinstance(vectors, np.ndarray) or vectors.ndim != 2:
        raise AbilityError("this format holds vectors of words and nothing else: export a model such as skipgram.")
    if len(vectors) != len(model.words) or len(vectors) <= FIRST_WORD:
        raise AbilityError("the model has no vectors of words that could be exported: train one such as skipgram.")
    return model.words[FIRST_WORD:]


def import_table(path: Path, out: Path, source: Literal["word2vec", "glove", "fasttext"], *, header: bool) -> Report:
    """Makes an artifact of a table of vectors; its words are those of text with spaces between them."""
    started = time.monotonic()
    table = read_vectors(path, header=header)
    tokenizer = words_tokenizer([*TokenizerRecipe(model="words").specials, *table.words])
    recipe = ImportedRecipe(tokenizer=tokenizer.recipe, source=source)
    return keep(path, out, VectorModel(recipe, tokenizer, "lines", table.vectors), started, _facts(table))


def _facts(table: VectorTable) -> Report:
    found: Report = {"duplicates": table.duplicates} if table.duplicates else {}
    return found | ({"left_out": table.left_out} if table.left_out else {})


def keep(path: Path, out: Path, model: VectorModel, started: float, facts: Report) -> Report:
    """Saves a model that was read from `path`; returns what was read."""
    report = {"vocabulary": len(model.words) - FIRST_WORD, "dimension": model.vectors.shape[1], **facts}
    save(
        out,
        model,
        name="imported",
        recipe=model.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - started}},
        corpus={"layout": model.layout, "imported": path.name, "digest": digest_file(path)},
        seed=0,
        metrics=report,
    )
    return report
