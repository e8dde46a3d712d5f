"""What Python callers pass is checked alike by every model: texts, words, lists and paths."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firth
from firth.arguments import ChecksArguments, require_list, require_strings
from firth.artifact.ensemble import EnsembleModel
from firth.counts.ngram import NgramModel
from firth.errors import ArgumentError
from firth.nets.causal import CausalNet
from firth.nets.masked import MaskedNet
from firth.tasks.linear_classifier import LinearClassifier
from firth.tasks.many import ManyModel
from firth.tasks.task import TaskModel
from firth.tokens.tokenizer import Tokenizer
from firth.vectors.bag import TfidfModel
from firth.vectors.classifier_model import ClassifierModel
from firth.vectors.model import VectorModel
from firth.vectors.paragraph import ParagraphModel

LISTS = {
    NgramModel: ("score", "log_probabilities"),
    EnsembleModel: ("score", "log_probabilities"),
    CausalNet: ("score", "log_probabilities", "embed", "layers"),
    MaskedNet: ("score", "fill_many", "embed", "layers"),
    VectorModel: ("embed", "analogy", "odd_one_out"),
    TfidfModel: ("embed",),
    ParagraphModel: ("embed", "infer"),
    ClassifierModel: ("embed", "predict", "probabilities"),
    TaskModel: ("predict",),
    ManyModel: ("predict",),
    LinearClassifier: ("predict",),
    Tokenizer: ("encode_batch",),
}
STRINGS = {
    NgramModel: ("generate", "next", "explain"),
    CausalNet: ("generate", "next", "explain", "vector", "similar"),
    MaskedNet: ("fill", "vector", "similar"),
    VectorModel: ("similar", "vector", "similarity", "row"),
    ParagraphModel: ("similar_documents",),
    Tokenizer: ("tokenize", "encode"),
}


def pairs(methods: dict[Any, tuple[str, ...]]) -> list[tuple[type, str]]:
    return [(kind, name) for kind, names in methods.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), pairs(LISTS))
def test_one_text_is_no_list_of_texts(kind: type, name: str) -> None:
    model = object.__new__(kind)  # untrained: arguments are checked before anything else
    with pytest.raises(ArgumentError, match=rf"not one: write {name}\(\['some text'\]\)\."):
        getattr(model, name)("some text")
    with pytest.raises(ArgumentError, match="must be a list of"):
        getattr(model, name)(3)


@pytest.mark.parametrize(("kind", "name"), pairs(STRINGS))
def test_a_number_is_no_text(kind: type, name: str) -> None:
    model = object.__new__(kind)
    with pytest.raises(ArgumentError, match=f"must be a string, not 1 in {name}"):
        getattr(model, name)(1)


def subclasses(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


def test_every_method_that_takes_texts_checks_them() -> None:
    """Of all classes of models, whoever wrote the method."""
    checked = 0
    for kind in subclasses(ChecksArguments):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            first = list(inspect.signature(method).parameters.values())[1:2]
            takes_texts = first and first[0].name in ("texts", "sentences", "items", "documents", "words")
            is_public = not name.startswith("_") and not inspect.isabstract(kind)
            if is_public and takes_texts and re.search("str|Any", str(first[0].annotation)):
                checked += 1
                with pytest.raises(ArgumentError):
                    method(object.__new__(kind), "text")
    assert checked > 50


def test_any_iterable_of_strings_is_a_list() -> None:
    texts = ["a", "bc"]
    assert require_strings(texts, "texts") is texts
    assert require_strings((text for text in texts), "texts") == texts
    assert require_strings(np.array(texts), "texts") == texts
    assert require_strings(dict.fromkeys(texts).keys(), "texts") == texts
    for wrong in ([1], ["a", None], b"ab", {"a": 1}, None):
        with pytest.raises(ArgumentError, match="must be a list of strings"):
            require_strings(wrong, "texts")


def test_documents_are_lists_of_sentences(trigrams: Any) -> None:
    if hasattr(trigrams, "score_documents"):
        with pytest.raises(ArgumentError, match="not one: write"):
            trigrams.score_documents(["a sentence", "another one"])


@pytest.fixture(scope="module")
def trigrams(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("arguments")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder / "cache"))
        return firth.train("mkn3", [["a b c", "b a"]], out=folder / "model")


def test_a_generator_is_scored_like_a_list(trigrams: Any) -> None:
    assert trigrams.score(text for text in ("a b", "c")) == trigrams.score(["a b", "c"])
    assert trigrams.score(texts=["a b"]) == trigrams.score(["a b"])


@pytest.mark.parametrize("out", [None, "", 3, ["folder"]])
def test_every_trainer_names_the_folder_that_it_needs(out: Any, tmp_path: Path) -> None:
    for call in (
        lambda: firth.train("mkn3", ["a b"], out=out),
        lambda: firth.adapt(tmp_path, ["a b"], out=out),
        lambda: firth.finetune(tmp_path, "classify", train=[], dev=[], out=out),
        lambda: firth.import_("arpa", "x.arpa", out=out),
        lambda: firth.export(object.__new__(NgramModel), "arpa", out),
    ):
        with pytest.raises(ArgumentError, match=r"(out|path) must be a path"):
            call()


def test_lists_of_options_are_no_strings(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"add must be a list, not 'june.txt': write add=\['june.txt'\]"):
        firth.adapt(tmp_path, out=tmp_path / "out", add="june.txt")
    with pytest.raises(ArgumentError, match="models must be a list"):
        firth.mix("model", ["a b"])
    assert require_list(("a", "b"), "add") == ["a", "b"]
