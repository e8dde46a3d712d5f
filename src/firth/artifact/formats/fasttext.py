"""Word vectors, with or without character n-grams, to fastText's files and back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from firth.artifact.formats.fasttext_classifier import classifier_file, classifier_of
from firth.artifact.formats.fasttext_file import FasttextArgs, FasttextFile, Matrix
from firth.artifact.formats.fasttext_reading import is_fasttext, read_fasttext
from firth.artifact.formats.fasttext_writing import write_fasttext
from firth.artifact.formats.ngrams import words_tokenizer
from firth.artifact.formats.vectors import (
    Report,
    export_table,
    import_table,
    is_binary_name,
    keep,
    known_words,
)
from firth.artifact.formats.vectors_reading import SPECIALS
from firth.errors import AbilityError, ArtifactError
from firth.tokens.recipe import TokenizerRecipe
from firth.vectors.classifier_model import ClassifierModel
from firth.vectors.model import VectorModel
from firth.vectors.recipe import ImportedRecipe
from firth.vectors.subwords import SubwordModel
from firth.vectors.text import FIRST_WORD

__all__ = ["FasttextArgs", "FasttextFile", "export_fasttext", "import_fasttext", "read_fasttext", "write_fasttext"]


def export_fasttext(model: Any, path: Path) -> Report:
    """Writes a model as fastText does: all of it if the name ends with .bin, a table of its words otherwise (.vec)."""
    if path.name.lower().endswith(".ftz"):
        raise AbilityError("Firth does not quantise models: name the file .bin, and have fastText quantise that.")
    if not is_binary_name(path):
        return export_table(model, path, header=True, binary=False)
    content = classifier_file(model) if isinstance(model, ClassifierModel) else file_of(model)
    write_fasttext(path, content)
    return {"vocabulary": len(content.words), "dimension": content.args.dimension, "ngrams": len(content.ngrams)}


def import_fasttext(path: Path, out: Path) -> Report:
    """Makes an artifact of a fastText .bin or .vec file, as its content says."""
    if not is_fasttext(path):
        return import_table(path, out, "fasttext", header=True)
    started = time.monotonic()
    content = read_fasttext(path)
    if content.args.model == "supervised":
        facts: Report = {"ngrams": len(content.ngrams), "labels": len(content.labels)}
        return keep(path, out, classifier_of(path, content), started, facts)
    left_out = [word for word in content.words if word in SPECIALS]
    facts = {"ngrams": len(content.ngrams)} | ({"left_out": left_out} if left_out else {})
    return keep(path, out, model_of(path, content), started, facts)


def model_of(path: Path, content: FasttextFile) -> VectorModel:
    """The model of a file, over a tokenizer with its words; special tokens get no vectors."""
    args = content.args
    chosen = np.array([row for row, word in enumerate(content.words) if word not in SPECIALS], dtype=np.int64)
    if not chosen.size:
        raise ArtifactError(f"{path} has no words beside special tokens: train it on more text.")
    specials = TokenizerRecipe(model="words").specials
    tokenizer = words_tokenizer([*specials, *(content.words[row] for row in chosen.tolist())])
    counts = np.concatenate([np.zeros(FIRST_WORD, dtype=np.int64), content.counts[chosen]])
    own = _below_specials(content.own, chosen)
    # Rows of a Huffman tree's nodes are no rows of words.
    outputs = _below_specials(content.output, chosen) if args.loss != "hierarchical" else None
    min_n, buckets = (args.min_n, args.buckets) if args.max_n else (0, 0)
    recipe = ImportedRecipe(
        tokenizer=tokenizer.recipe, source="fasttext", min_n=min_n, max_n=args.max_n, buckets=buckets
    )
    if not args.max_n:
        return VectorModel(recipe, tokenizer, "lines", own, counts=counts, outputs=outputs)
    return SubwordModel.of(recipe, tokenizer, "lines", own=own, ngrams=content.ngrams, counts=counts, outputs=outputs)


def _below_specials(matrix: Matrix, rows: Any) -> Matrix:
    """The chosen rows, below rows of zeros for the special tokens."""
    found = np.zeros((FIRST_WORD + rows.size, matrix.shape[1]), dtype=np.float32)
    np.take(matrix, rows, axis=0, out=found[FIRST_WORD:], mode="clip")  # without the copy that other modes make
    return found


def file_of(model: Any) -> FasttextFile:
    """A model as a .bin file holds it; without character n-grams it is one with `max_n` 0."""
    words = known_words(model)
    own, ngrams = model.vectors[FIRST_WORD:], np.empty((0, model.vectors.shape[1]), dtype=np.float32)
    if isinstance(model, SubwordModel):
        own, ngrams = model.own[FIRST_WORD:], model.ngrams
    # fastText draws words by their counts as soon as it loads a file, so none may be 0.
    counts = np.ones(len(words), np.int64) if model.counts is None else np.maximum(model.counts[FIRST_WORD:], 1)
    loss, output = _outputs(model)
    return FasttextFile(
        args=_args(model, loss, len(ngrams)),
        words=words,
        counts=counts,
        own=own,
        ngrams=ngrams,
        output=output,
        labels=[],
        label_counts=np.empty(0, dtype=np.int64),
        tokens=int(counts.sum()),
    )


def _outputs(model: Any) -> tuple[Any, Matrix]:
    """The loss, and the matrix that goes with it: zeros, as before training, if there is none with a row for a word."""
    loss = getattr(model.recipe, "loss", "negative")
    outputs = model.outputs
    if outputs is None or outputs.shape != model.vectors.shape or loss == "hierarchical":
        return "negative", np.broadcast_to(np.float32(0), (len(model.vectors) - FIRST_WORD, model.vectors.shape[1]))
    return "softmax" if loss == "softmax" else "negative", outputs[FIRST_WORD:]


def _args(model: Any, loss: Any, buckets: int) -> FasttextArgs:
    """What is known of how the model was trained; fastText's own defaults for the rest."""
    recipe = model.recipe
    names = ("window", "epochs", "negatives", "subsample", "min_n", "max_n")
    told = {name: getattr(recipe, name) for name in names if getattr(recipe, name, "auto") != "auto"}
    return FasttextArgs(
        dimension=model.vectors.shape[1],
        min_count=recipe.tokenizer.min_count,
        loss=loss,
        model="cbow" if getattr(recipe, "architecture", "") == "cbow" else "skipgram",
        buckets=buckets,
        **told,
    )
