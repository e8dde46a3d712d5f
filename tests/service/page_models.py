"""Small models of every family for the tests of the page, trained in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import firth

ENGLISH = [
    "The bank raised its rates on loans.",
    "They walked along the bank of the river.",
    "The lender cut rates on savings.",
    "The boat stayed near the shore of the lake.",
    "The old man walked to the market.",
    "The old woman walked to the river.",
]
CHINESE = ["苹果发布了新的手机。", "他每天吃一个苹果。", "公司发布了新的软件。", "他每天吃一个香蕉。"]
TEXT = [ENGLISH, CHINESE] * 12
TOPICS = [("<b>money</b>", text) for text in ENGLISH[::2]] * 4 + [("nature", text) for text in ENGLISH[1::2]] * 4
TAGS = [
    (["John", "went", "to", "New", "York", "."], ["B-PER", "O", "O", "B-LOC", "I-LOC", "O"]),
    (["Mary", "went", "to", "Paris", "."], ["B-PER", "O", "O", "B-LOC", "O"]),
] * 8
PAIRS = [("same", "The old man walked.", "The man walked."), ("other", "The bank cut rates.", "The boat stayed.")] * 6
PASSAGE = "Firth was born in Keighley in 1890."
QUESTIONS = [
    {"passage": PASSAGE, "question": "When was Firth born?", "answers": [{"text": "1890", "start": 30}]},
    {"passage": PASSAGE, "question": "Where was Firth born?", "answers": [{"text": "Keighley", "start": 18}]},
] * 4
CHOICES = [
    {"context": PASSAGE, "question": "Where was Firth born?", "choices": ["Keighley", "Paris"], "label": 0},
    {"context": PASSAGE, "question": "When was Firth born?", "choices": ["1790", "1890"], "label": 1},
] * 4
TINY = ["encoder.width=32", "embedding.width=32", "encoder.ffn_width=64", "encoder.heads=2", "encoder.layers=1"]


def train_models(folder: Path) -> list[Path]:
    """The folders of models, one for each ability that the page shows."""
    _train("kn", "kn3", folder)
    _train("sg", "ppmi-svd", folder, settings=["dimension=8", "tokenizer.min_count=1"])
    _train("lstm", "lstm", folder, size="tiny", budget="3ktok")
    for name in ("gpt", "bert"):
        _train(name, name, folder, size="tiny", settings=TINY, budget="3ktok")
    _finetune("topics", "kn", "classify", TOPICS, folder)
    _finetune("entities", "kn", "tag", TAGS, folder)
    for name, task, examples in (
        ("pairs", "pair", PAIRS),
        ("answers", "span", QUESTIONS),
        ("choices", "choice", CHOICES),
    ):
        _finetune(name, "bert", task, examples, folder, settings=["learning.epochs=1"])
    return sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)


def _train(name: str, recipe: str, folder: Path, **options: Any) -> None:
    firth.train(recipe, TEXT, out=folder / name, threads=1, **options)


def _finetune(name: str, base: str, task: str, examples: Sequence[Any], folder: Path, **options: Any) -> None:
    firth.finetune(folder / base, task, train=examples, dev=examples[:4], out=folder / name, threads=1, **options)
