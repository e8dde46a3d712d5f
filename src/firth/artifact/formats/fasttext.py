"""Word vectors, with or without character n-grams, and classifiers to fastText's files and back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from firth.artifact.formats.fasttext_file import (
    FasttextArgs,
    FasttextFile,
    Matrix,
    is_fasttext,
    read_fasttext,
    write_fasttext,
)
from firth.artifact.formats.vectors import (
    SPECIALS,
    Report,
    export_table,
    exported_words,
    has_binary_name,
    import_table,
    save_vectors,
)
from firth.artifact.formats.words import words_tokenizer
from firth.errors import AbilityError, ArtifactError
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import EOS, FIRST_WORD, Tokenizer
from firth.vectors.classifier_model import END, ClassifierModel
from firth.vectors.model import VectorModel
from firth.vectors.recipe import ClassifierRecipe, ImportedRecipe
from firth.vectors.subwords import SubwordModel

__all__ = ["FasttextArgs", "FasttextFile", "export_fasttext", "import_fasttext", "read_fasttext", "write_fasttext"]

_LABEL_PREFIX = "__label__"
_CLASSIFIER_LOSSES: dict[str, Literal["softmax", "hierarchical", "negative"]] = {
    "softmax": "softmax",
    "hierarchical": "hierarchical",
    "negative": "negative",
    "one-versus-all": "negative",  # trained differently, but both predict each label independently
}


def export_fasttext(model: Any, path: Path) -> Report:
    """Write a complete model if the name ends with .bin, otherwise a table of its words (.vec)."""
    if path.name.lower().endswith(".ftz"):
        raise AbilityError("Firth does not quantise models: name the file .bin, and quantise it with fastText.")
    if not has_binary_name(path):
        return export_table(model, path, header=True, binary=False)
    content = classifier_file(model) if isinstance(model, ClassifierModel) else vectors_file(model)
    write_fasttext(path, content)
    return {"vocabulary": len(content.words), "dimension": content.args.dimension, "ngrams": len(content.ngram_input)}


def import_fasttext(path: Path, out: Path) -> Report:
    """Make an artifact of a fastText .bin or .vec file, by its content."""
    if not is_fasttext(path):
        return import_table(path, out, "fasttext", header=True)
    started = time.monotonic()
    content = read_fasttext(path)
    report: Report = {"ngrams": len(content.ngram_input)}
    if content.args.model == "supervised":
        report["labels"] = len(content.labels)
        return save_vectors(path, out, classifier_model(path, content), started, report)
    if left_out := [word for word in content.words if word in SPECIALS]:
        report["left_out"] = left_out
    return save_vectors(path, out, vector_model(path, content), started, report)


def vector_model(path: Path, content: FasttextFile) -> VectorModel:
    """The model of a file, with a tokenizer of its words; special tokens get no vectors."""
    args = content.args
    rows, tokenizer = _ordinary_words(content)
    if not rows.size:
        raise ArtifactError(f"{path} has no words besides special tokens: train it on more text.")
    counts = np.concatenate([np.zeros(FIRST_WORD, dtype=np.int64), content.counts[rows]])
    own = _below_specials(content.word_input, rows)
    # The output rows of hierarchical softmax belong to nodes of the Huffman tree, not to words.
    outputs = _below_specials(content.output, rows) if args.loss != "hierarchical" else None
    min_n, buckets = (args.min_n, args.buckets) if args.max_n else (0, 0)
    recipe = ImportedRecipe(
        tokenizer=tokenizer.recipe, source="fasttext", min_n=min_n, max_n=args.max_n, buckets=buckets
    )
    if not args.max_n:
        return VectorModel(recipe, tokenizer, "lines", own, counts=counts, outputs=outputs)
    return SubwordModel.of(
        recipe, tokenizer, "lines", own=own, ngrams=content.ngram_input, counts=counts, outputs=outputs
    )


def _ordinary_words(content: FasttextFile) -> tuple[npt.NDArray[np.int64], Tokenizer]:
    """The rows of words that are no special tokens, and a tokenizer of these words."""
    rows = np.array([row for row, word in enumerate(content.words) if word not in SPECIALS], dtype=np.int64)
    specials = TokenizerRecipe(model="words").specials
    return rows, words_tokenizer([*specials, *(content.words[row] for row in rows.tolist())])


def _below_specials(matrix: Matrix, rows: npt.NDArray[np.int64]) -> Matrix:
    """The given rows, below rows of zeros for the special tokens."""
    found = np.zeros((FIRST_WORD + rows.size, matrix.shape[1]), dtype=np.float32)
    np.take(matrix, rows, axis=0, out=found[FIRST_WORD:], mode="clip")  # other modes make a copy
    return found


def vectors_file(model: Any) -> FasttextFile:
    """The .bin content of a vector model; without character n-grams `max_n` is 0."""
    words = exported_words(model)
    own, ngrams = model.vectors[FIRST_WORD:], np.empty((0, model.vectors.shape[1]), dtype=np.float32)
    if isinstance(model, SubwordModel):
        own, ngrams = model.own[FIRST_WORD:], model.ngrams
    # fastText samples words by their counts as soon as it loads a file, so none may be 0.
    counts = np.ones(len(words), np.int64) if model.counts is None else np.maximum(model.counts[FIRST_WORD:], 1)
    loss, output = _loss_and_output(model)
    recipe = model.recipe
    names = ("window", "epochs", "negatives", "subsample", "min_n", "max_n")
    return FasttextFile(
        args=FasttextArgs(
            dimension=model.vectors.shape[1],
            min_count=recipe.tokenizer.min_count,
            loss=loss,
            model="cbow" if getattr(recipe, "architecture", "") == "cbow" else "skipgram",
            buckets=len(ngrams),
            **{name: getattr(recipe, name) for name in names if getattr(recipe, name, "auto") != "auto"},
        ),
        words=words,
        counts=counts,
        word_input=own,
        ngram_input=ngrams,
        output=output,
        tokens=int(counts.sum()),
    )


def _loss_and_output(model: Any) -> tuple[Any, Matrix]:
    """The loss and its output matrix; zeros, as before training, if the model has no output row per word."""
    loss = getattr(model.recipe, "loss", "negative")
    outputs = model.outputs
    if outputs is None or outputs.shape != model.vectors.shape or loss == "hierarchical":
        return "negative", np.broadcast_to(np.float32(0), (len(model.vectors) - FIRST_WORD, model.vectors.shape[1]))
    return "softmax" if loss == "softmax" else "negative", outputs[FIRST_WORD:]


def classifier_model(path: Path, content: FasttextFile) -> ClassifierModel:
    """The classifier of a file, with a tokenizer of its words; special tokens such as </s> keep their rows."""
    args = content.args
    if not content.labels:
        raise ArtifactError(f"{path} is a classifier without labels: train it on labelled text.")
    if not 1 <= args.word_ngrams <= 10:
        raise ArtifactError(f"{path} has n-grams of {args.word_ngrams} words: Firth reads those of 1 to 10.")
    rows, tokenizer = _ordinary_words(content)
    words = FIRST_WORD + rows.size
    inputs = np.zeros((words + args.buckets, args.dimension), dtype=np.float32)
    counts = np.zeros(words, dtype=np.int64)
    for number, special in enumerate(tokenizer.recipe.specials):
        if special in content.words:
            inputs[number] = content.word_input[content.words.index(special)]
    np.take(content.word_input, rows, axis=0, out=inputs[FIRST_WORD:words], mode="clip")
    counts[FIRST_WORD:] = content.counts[rows]
    inputs[words:] = content.ngram_input
    recipe = ClassifierRecipe(
        tokenizer=tokenizer.recipe,
        dimension=args.dimension,
        epochs=max(args.epochs, 1),
        word_ngrams=args.word_ngrams if args.buckets else 1,
        loss=_CLASSIFIER_LOSSES[args.loss],
        min_n=max(args.min_n, 1) if args.max_n else 0,
        max_n=args.max_n,
        buckets=args.buckets,
    )
    has_prefix = all(label.startswith(_LABEL_PREFIX) for label in content.labels)
    return ClassifierModel(
        recipe,
        tokenizer,
        "lines",
        inputs,
        used=np.arange(args.buckets, dtype=np.int32),
        outputs=content.output,
        labels=[label.removeprefix(_LABEL_PREFIX) if has_prefix else label for label in content.labels],
        label_counts=content.label_counts,
        counts=counts,
    )


def classifier_file(model: ClassifierModel) -> FasttextFile:
    """The .bin content of a classifier, with one row per bucket, zeros for buckets not in use."""
    if model.phrases is not None:
        raise AbilityError("fastText has no phrases: train the classifier with phrases=0.")
    words, dimension = len(model.words), model.inputs.shape[1]
    kept = [row for row in range(words) if row >= FIRST_WORD or model.inputs[row].any()]
    ngrams = np.zeros((model.bucket_rows.size, dimension), dtype=np.float32)
    ngrams[model.used] = model.inputs[words:]
    counts: Any = np.ones(words, np.int64) if model.counts is None else np.maximum(model.counts, 1)
    recipe = model.recipe
    assert model.outputs is not None
    return FasttextFile(
        args=FasttextArgs(
            dimension=dimension,
            epochs=recipe.epochs,
            min_count=recipe.tokenizer.min_count,
            word_ngrams=recipe.word_ngrams,
            loss=recipe.loss,
            model="supervised",
            buckets=model.bucket_rows.size,
            min_n=recipe.min_n,
            max_n=recipe.max_n,
        ),
        words=[END if row == EOS else model.words[row] for row in kept],
        counts=counts[kept],
        word_input=model.inputs[kept],
        ngram_input=ngrams,
        output=model.outputs,
        labels=[_LABEL_PREFIX + label for label in model.labels],
        label_counts=model.label_counts,
        tokens=int(counts[kept].sum()),
    )
