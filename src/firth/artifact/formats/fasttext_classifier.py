"""Classifiers to fastText's .bin files and back: both predict the same from the same words."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from firth.artifact.formats.fasttext_file import FasttextArgs, FasttextFile
from firth.artifact.formats.ngrams import words_tokenizer
from firth.artifact.formats.vectors_reading import SPECIALS
from firth.errors import AbilityError, ArtifactError
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import EOS
from firth.vectors.classifier_model import ClassifierModel
from firth.vectors.classifier_rows import END
from firth.vectors.recipe import ClassifierRecipe
from firth.vectors.text import FIRST_WORD

_PREFIX = "__label__"
_LOSSES: dict[str, Literal["softmax", "hierarchical", "negative"]] = {
    "softmax": "softmax",
    "hierarchical": "hierarchical",
    "negative": "negative",
    "one-versus-all": "negative",  # learnt in another way, but each label is told by itself in both
}


def classifier_of(path: Path, content: FasttextFile) -> ClassifierModel:
    """The model of a file, over a tokenizer with its words; </s> and its like keep their rows."""
    args = content.args
    if not content.labels:
        raise ArtifactError(f"{path} is a classifier without labels: train it on labelled text.")
    if not 1 <= args.word_ngrams <= 10:
        raise ArtifactError(f"{path} has n-grams of {args.word_ngrams} words: Firth reads those of 1 to 10.")
    specials = TokenizerRecipe(model="words").specials
    ordinary = np.array([row for row, word in enumerate(content.words) if word not in SPECIALS], dtype=np.int64)
    tokenizer = words_tokenizer([*specials, *(content.words[row] for row in ordinary.tolist())])
    words = FIRST_WORD + ordinary.size
    inputs = np.zeros((words + args.buckets, args.dimension), dtype=np.float32)
    counts = np.zeros(words, dtype=np.int64)
    for row, word in enumerate(content.words):
        if word in specials:
            inputs[specials.index(word)] = content.own[row]
    np.take(content.own, ordinary, axis=0, out=inputs[FIRST_WORD:words], mode="clip")
    counts[FIRST_WORD:] = content.counts[ordinary]
    inputs[words:] = content.ngrams
    recipe = ClassifierRecipe(
        tokenizer=tokenizer.recipe,
        dimension=args.dimension,
        epochs=max(args.epochs, 1),
        word_ngrams=args.word_ngrams if args.buckets else 1,
        loss=_LOSSES[args.loss],
        min_n=max(args.min_n, 1) if args.max_n else 0,
        max_n=args.max_n,
        buckets=args.buckets,
    )
    prefixed = all(label.startswith(_PREFIX) for label in content.labels)
    return ClassifierModel(
        recipe,
        tokenizer,
        "lines",
        inputs,
        used=np.arange(args.buckets, dtype=np.int32),
        outputs=content.output,
        labels=[label.removeprefix(_PREFIX) if prefixed else label for label in content.labels],
        label_counts=content.label_counts,
        counts=counts,
    )


def classifier_file(model: ClassifierModel) -> FasttextFile:
    """A classifier as a .bin file holds it: with a row for every bucket, those that are not used zero."""
    if model.phrases is not None:
        raise AbilityError("fastText finds no phrases in a text: train the classifier with phrases=0.")
    words, dimension = len(model.words), model.inputs.shape[1]
    kept = [row for row in range(words) if row >= FIRST_WORD or model.inputs[row].any()]
    ngrams = np.zeros((model.slots.size, dimension), dtype=np.float32)
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
            buckets=model.slots.size,
            min_n=recipe.min_n,
            max_n=recipe.max_n,
        ),
        words=[END if row == EOS else model.words[row] for row in kept],
        counts=counts[kept],
        own=model.inputs[kept],
        ngrams=ngrams,
        output=model.outputs,
        labels=[_PREFIX + label for label in model.labels],
        label_counts=model.label_counts,
        tokens=int(counts[kept].sum()),
    )
