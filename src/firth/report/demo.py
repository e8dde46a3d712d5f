"""The demo: recipes trained on the built-in corpus, compared on held-out text and fine-tuned on built-in tasks."""

from __future__ import annotations

import itertools
import json
import math
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firth.abilities import Fills, Generates, HasDenseVectors, Scores
from firth.apply.score import summarise
from firth.apply.similar import nearest_occurrences
from firth.artifact.folder import artifact_info
from firth.artifact.manifest import installed_versions
from firth.artifact.models import load
from firth.cores import cores
from firth.errors import AbilityError
from firth.files import new_folder, write_file
from firth.fit.finetune import finetune
from firth.fit.train import train
from firth.lm.pieces import score_documents
from firth.recipes.table import find_entry, find_recipe
from firth.recipes.values import difference, recipe_from_json
from firth.report.map import word_map
from firth.report.page import render_page
from firth.tasks.builtin import PARTS, builtin_examples
from firth.tasks.examples import TextExample, texts_of
from firth.text.check import check_corpus
from firth.text.corpus import Corpus, read_corpus
from firth.text.layout import Document
from firth.tokens.tokenizer import FIRST_WORD

TITLE = "Firth demo"
CORPUS, ORACLE = "builtin:pydoc", "builtin:oracle"
TOKENIZER_TEXTS = (
    "The tokenizer wouldn't recognise unbelievably rare words, e.g. floccinaucinihilipilification.",
    "Returns an array of the same shape (n_samples, 3) as x, or None.",
)


@dataclass(frozen=True)
class DemoModel:
    """A tokenizer or model that the demo trains."""

    recipe: str
    settings: tuple[str, ...] = ()
    tokenizer: str | None = None
    """Name of a tokenizer of the demo."""
    size: str | None = None
    budget: str | None = None

    @property
    def name(self) -> str:
        return f"{self.recipe}-{self.tokenizer}" if self.tokenizer else self.recipe


@dataclass(frozen=True)
class DemoTask:
    """A model that the demo fine-tunes."""

    task: str
    model: str
    """Name of a model of the demo."""
    random: bool = False
    """Initialise the network randomly, to show what pre-training contributes."""
    settings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.model}-{self.task}" + "-random" * self.random


TOKENIZERS = (
    DemoModel("words", ("min_count=2",)),
    DemoModel("chars", ("min_count=2",)),
    *(DemoModel(name, ("vocab_size=4000",)) for name in ("wordpiece", "byte-bpe")),
)
MODELS = (
    DemoModel("unigram", tokenizer="words"),
    *(DemoModel("kn5", tokenizer=tokenizer.name) for tokenizer in TOKENIZERS),
    DemoModel("kn5-cache", tokenizer="words"),
)
ORACLE_MODELS = (
    *(DemoModel(name) for name in ("unigram", "mkn5", "skipgram")),
    *(DemoModel(name, size="tiny", budget="300ktok") for name in ("gpt", "bert")),  # some ten seconds each
)
VECTORS = (DemoModel("skipgram"), DemoModel("fasttext", ("epochs=2",)))
NETS = (
    DemoModel("gpt", tokenizer="wordpiece", size="tiny", budget="15s"),
    DemoModel("bert", tokenizer="wordpiece", size="tiny", budget="25s"),
)
SHOWN = ("skipgram", "bert", "gpt")
SIMILAR_TO = ("horse", "farmer", "axe", "pie")
MASKED = ("the old horse [MASK] the hen.", "the [MASK] cook the mushrooms.", "the old [MASK] chase the crabs.")
PROMPTS = ("the old horse", "the bakers", "the mushrooms")
"""Words, masked sentences and beginnings of sentences of the oracle, for the models of it that are shown."""
CONTEXTS = (
    "index",
    "Return the lowest index in the string where the value is found.",
    "The rows and the index of the frame.",
)
"""A word and two contexts in which it has different meanings."""
NEIGHBOURS_OF = ("array", "string", "file", "error", "matrix", "returns", "tokenizers")
QUESTIONS = {
    "classify": "Which package is a text from?",
    "tag": "Which words are names of parameters?",
}
_EPOCHS = {"classify": 4, "tag": 5}
TASKS = tuple(
    DemoTask(task, model, settings=(f"learning.epochs={_EPOCHS[task]}", "learning.batch=16"))
    for task in QUESTIONS
    for model in ("skipgram", "bert-wordpiece")
)
TASK_EXAMPLES = (800, 400)
"""Maximum numbers of training and of validation examples."""
_MOST_CHARACTERS = 300  # of a task's example: short ones train faster
_OCCURRENCES = 2000  # sentences among which occurrences are compared
_PSEUDO = 300  # held-out sentences for masked models, which score a sentence by masking each token in turn


def run_demo(out: Path, threads: int | None = None, log: Callable[[str], None] = print) -> dict[str, Any]:
    """Train, score and compare; write the artifacts, `report.json` and `report.html` into `out`."""
    _remove_older(out)
    started = time.monotonic()
    with new_folder(out) as draft:
        demo = _Demo(draft / "models", threads, log)
        log(f"checking {CORPUS}")
        corpus = read_corpus(CORPUS)
        parts = corpus.parts()
        split = {part.part: sum(not document.continues for document in part) for part in parts}
        report: dict[str, Any] = {
            "title": TITLE,
            "subtitle": "From raw text to language models, compared by bits per byte of held-out text.",
            "command": f"firth demo -o {out}",
            "versions": installed_versions(),
            "machine": {"cores": cores(), "system": f"{platform.system()} {platform.machine()}"},
            "corpus": {"name": CORPUS, **check_corpus(corpus).to_json(), "split": split},
            "tokenizers": [demo.train_tokenizer(line, parts[0]) for line in TOKENIZERS],
            "runs": [demo.train_model(line, parts[0], parts[2]) for line in (*MODELS, *NETS)],
            "vectors": demo.train_vectors(parts[0]),
            "nets": demo.inspect_nets(parts[2]),
            "oracle": demo.compare_with_entropy(),
            "tasks": demo.fine_tune(),
        }
        report["seconds"] = time.monotonic() - started
        write_file(draft / "report.json", (json.dumps(report, ensure_ascii=False, indent=1) + "\n").encode())
        write_file(draft / "report.html", render_page(report).encode())
        return report


def _remove_older(out: Path) -> None:
    """Remove the output of an earlier demo, if there is nothing else in the folder."""
    if not out.is_dir() or {path.name for path in out.iterdir()} != {"models", "report.json", "report.html"}:
        return
    try:
        title = json.loads((out / "report.json").read_bytes())["title"]
    except (ValueError, KeyError, TypeError, OSError):
        return
    if title == TITLE:
        shutil.rmtree(out)


@dataclass(frozen=True)
class _Demo:
    """The parts of the demo; each returns its part of the report."""

    models: Path
    threads: int | None
    log: Callable[[str], None]

    def _train(self, line: DemoModel, corpus: Corpus, name: str | None = None) -> tuple[Any, dict[str, Any]]:
        """The trained model and its manifest."""
        folder = self.models / (name or line.name)
        tokenizer = self.models / line.tokenizer if line.tokenizer else None
        model = train(
            line.recipe, corpus, out=folder, settings=line.settings, tokenizer=tokenizer, threads=self.threads,
            size=line.size, budget=line.budget,
        )  # fmt: skip
        return model, artifact_info(folder)

    def train_tokenizer(self, line: DemoModel, corpus: Corpus) -> dict[str, Any]:
        tokenizer, info = self._train(line, corpus)
        metrics = info["metrics"]
        self.log(f"{line.name:<20} {metrics['vocabulary']:>7,} tokens, {metrics['bytes_per_token']:.2f} bytes each")
        examples = [
            {"text": text, "tokens": tokenizer.tokenize(text), "word_starts": tokenizer.encode(text).word_starts}
            for text in TOKENIZER_TEXTS
        ]
        return {"name": line.name, **metrics, "examples": examples}

    def train_model(self, line: DemoModel, corpus: Corpus, held_out: Corpus) -> dict[str, Any]:
        model, info = self._train(line, corpus)
        scores = summarise(score_documents(model, _documents_to_score(held_out, model)), model.score_kind)
        self.log(f"{line.name:<20} {scores['bits_per_byte']:.4f} bits per byte, perplexity {scores['perplexity']:,.1f}")
        changed = difference(find_recipe(line.recipe), recipe_from_json(dict(info["recipe"])))
        return {
            "name": line.name,
            "recipe": line.recipe,
            "family": find_entry(line.recipe).family,
            "tokenizer": model.tokenizer.recipe.model,
            "vocabulary": len(model.tokenizer),
            **scores,
            "budget": info["budget"],
            "size": info["bytes"],
            "digest": info["files"]["model.safetensors"]["sha256"],
            "settings": {key: value for key, (_, value) in changed.items()},
            "samples": model.generate(count=2, length=25, seed=1) if isinstance(model, Generates) else [],
        }

    def train_vectors(self, corpus: Corpus) -> dict[str, Any]:
        """Neighbours of some words by each recipe, and a map of the first."""
        rows: list[dict[str, Any]] = []
        drawn: dict[str, Any] = {}
        for line in VECTORS:
            model, info = self._train(line, corpus)
            near = {word: model.similar(word, 6) for word in NEIGHBOURS_OF if _has_vector(model, word)}
            rows.append({
                "name": line.name,
                "vocabulary": len(model.words) - FIRST_WORD,
                "dimension": int(model.vectors.shape[1]),
                "loss": info["metrics"]["losses"][-1],
                "seconds": info["budget"]["spent"]["seconds"],
                "neighbours": {word: [list(pair) for pair in found] for word, found in near.items()},
            })  # fmt: skip
            for word, found in itertools.islice(near.items(), 1):
                self.log(f"{line.name:<20} {word}: {', '.join(other for other, _ in found)}")
            drawn = drawn or word_map(model, count=150).to_json()
        return {"runs": rows, "map": drawn}

    def inspect_nets(self, held_out: Corpus) -> dict[str, Any]:
        """Learning curves, and a word in two contexts by the networks that read in both directions."""
        rows, contexts = [], []
        sentences = list(itertools.islice((one for document in held_out for one in document.sentences), _OCCURRENCES))
        word, *texts = CONTEXTS
        for line in NETS:
            folder = self.models / line.name
            info = artifact_info(folder)
            steps = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
            rows.append({
                "name": line.name,
                "parameters": info["metrics"]["parameters"],
                "tokens": info["budget"]["spent"]["tokens"],
                "seconds": info["budget"]["spent"]["seconds"],
                "curve": [[step["tokens"], step["loss"]] for step in steps if step.get("loss") is not None],
            })  # fmt: skip
            if info["recipe"]["visibility"] != "causal":
                model = load(folder)
                near = [nearest_occurrences(model, word, text, sentences, 4) for text in texts]
                found = [{"context": text, "neighbours": one} for text, one in zip(texts, near, strict=True)]
                contexts.append({"word": word, "name": line.name, "rows": found})
                self.log(f"{line.name:<20} {word} in context is nearest to: {near[0][0]['context']}")
        return {"runs": rows, "contexts": contexts}

    def compare_with_entropy(self) -> dict[str, Any]:
        """Scores of models on text whose entropy is known, and what each of them does best."""
        corpus = read_corpus(ORACLE)
        parts = corpus.parts()
        entropy = (corpus.entropy() or {})["bits_per_byte"]
        rows, learned = [], []
        for line in ORACLE_MODELS:
            model, info = self._train(line, parts[0], f"oracle-{line.name}")
            seconds, shown = info["budget"]["spent"]["seconds"], _show(model) if line.recipe in SHOWN else ()
            learned += [{"name": line.name, "seconds": seconds, **one} for one in shown]
            if isinstance(model, Scores) and model.score_kind == "causal":
                bits = score_documents(model, parts[2]).bits_per_byte
                rows.append({"name": line.name, "family": find_entry(line.recipe).family, "bits_per_byte": bits})
                self.log(f"{ORACLE}: {line.name} {bits:.4f} bits per byte, entropy {entropy:.4f}")
        for one in learned:
            self.log(f"{ORACLE}: {one['name']} {one['given']} -> {', '.join(one['found'])}")
        return {"corpus": ORACLE, "entropy_per_byte": entropy, "runs": rows, "learned": learned}

    def fine_tune(self) -> list[dict[str, Any]]:
        """A row for each fine-tuned model."""
        rows = []
        examples: dict[str, tuple[list[Any], list[Any]]] = {}
        for one in TASKS:
            if one.task not in examples:
                examples[one.task] = _short_examples(one.task)
            rows.append(self._fine_tune(one, *examples[one.task]))
            self.log(f"{one.name:<28} {rows[-1]['metric']} {rows[-1]['value']:.3f}  ({rows[-1]['seconds']:.0f} s)")
        return rows

    def _fine_tune(self, one: DemoTask, train: list[Any], dev: list[Any]) -> dict[str, Any]:
        started = time.monotonic()
        folder = self.models / one.name
        finetune(
            self.models / one.model, one.task, train=train, dev=dev, out=folder, random=one.random,
            settings=one.settings, threads=self.threads,
        )  # fmt: skip
        found = artifact_info(folder)["metrics"]["dev"]
        metric = found["main"]
        return {
            "task": one.task,
            "about": QUESTIONS[one.task],
            "model": one.model,
            "random": one.random,
            "metric": metric,
            "value": found[metric],
            "interval": found[f"{metric}_interval"],
            "baseline": found["baseline"][metric],
            "examples": len(train),
            "seconds": time.monotonic() - started,
        }


def _show(model: Any) -> Iterator[dict[str, Any]]:
    """What a model of the oracle finds: neighbours of words, words for masks, or ends of sentences."""
    if isinstance(model, Fills):
        for text in MASKED:
            yield {"ability": "fills", "given": text, "found": [one.token for one in model.fill(text, 5)[0]]}
    elif isinstance(model, Generates):
        for prompt in PROMPTS:
            yield {"ability": "generates", "given": prompt, "found": model.generate(prompt, count=2, length=20, seed=1)}
    elif isinstance(model, HasDenseVectors):
        for word in SIMILAR_TO:
            if _has_vector(model, word):
                yield {"ability": "neighbours", "given": word, "found": [other for other, _ in model.similar(word, 5)]}


def _documents_to_score(corpus: Corpus, model: Scores) -> Iterator[Document]:
    """All documents, or only the first ones for models that score by masking each token in turn."""
    left = _PSEUDO if model.score_kind == "pseudo" else math.inf
    for document in corpus:
        if left <= 0:
            return
        left -= len(document.sentences)
        yield document


def _has_vector(model: HasDenseVectors, word: str) -> bool:
    try:
        model.vector(word)
    except AbilityError:
        return False
    return True


def _short_examples(task: str) -> tuple[list[Any], list[Any]]:
    """Short training and validation examples; labels of the latter occur in the former."""
    train, dev = (
        [one for one in builtin_examples(task, part) if sum(map(len, texts_of(one))) <= _MOST_CHARACTERS][:most]
        for part, most in zip(PARTS, TASK_EXAMPLES, strict=True)
    )
    known = {label for one in train if isinstance(one, TextExample) for label in one.labels or ()}
    return train, [one for one in dev if not isinstance(one, TextExample) or known.issuperset(one.labels or ())]
