"""The demo: every recipe it lists, trained on the built-in corpus and compared on held-out text."""

from __future__ import annotations

import itertools
import json
import math
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firth.abilities import Generates, Scores, score_documents
from firth.apply.score import summarise
from firth.artifact.folder import artifact_info
from firth.artifact.manifest import installed_versions
from firth.artifact.models import load
from firth.cores import cores
from firth.errors import AbilityError
from firth.files import new_folder, write_file
from firth.fit.train import train
from firth.recipes.table import find_entry, find_recipe
from firth.recipes.values import difference, recipe_from_json
from firth.report.demo_tasks import fine_tune
from firth.report.map import word_map
from firth.report.page import render_page
from firth.text.check import check_corpus
from firth.text.corpus import Corpus, read_corpus
from firth.vectors.text import FIRST_WORD

TITLE = "Firth demo"
CORPUS, ORACLE = "builtin:pydoc", "builtin:oracle"
EXAMPLES = (
    "The tokenizer wouldn't recognise unbelievably rare words, e.g. floccinaucinihilipilification.",
    "Returns an array of the same shape (n_samples, 3) as x, or None.",
)


@dataclass(frozen=True)
class Line:
    """One thing that the demo trains."""

    recipe: str
    settings: tuple[str, ...] = ()
    tokenizer: str | None = None
    """The folder of an earlier line."""
    size: str | None = None
    budget: str | None = None

    @property
    def name(self) -> str:
        return f"{self.recipe}-{self.tokenizer}" if self.tokenizer else self.recipe


TOKENIZERS = (
    Line("words", ("min_count=2",)),
    Line("chars", ("min_count=2",)),
    Line("wordpiece", ("vocab_size=4000",)),
    Line("bpe", ("vocab_size=4000",)),
    Line("pieces", ("vocab_size=4000",)),
    Line("byte-bpe", ("vocab_size=4000",)),
)
MODELS = (
    *(Line("unigram", tokenizer=line.name) for line in TOKENIZERS),
    Line("katz3", tokenizer="words"),
    *(Line("kn5", tokenizer=line.name) for line in TOKENIZERS),
    Line("mkn5", tokenizer="words"),
    Line("kn5-cache", tokenizer="words"),
)
ORACLE_MODELS = (Line("unigram"), Line("kn3"), Line("mkn5"))


VECTORS = (
    Line("skipgram"),
    Line("glove"),
    Line("fasttext", ("epochs=2",)),
)
NETS = (
    Line("lstm", tokenizer="words", size="mini", budget="25s"),
    Line("elmo", tokenizer="words", size="tiny", budget="25s"),
    Line("gpt", tokenizer="wordpiece", size="tiny", budget="30s"),
    Line("bert", tokenizer="wordpiece", size="tiny", budget="40s"),
)
CONTEXTS = (
    "index",
    "Return the lowest index in the string where the value is found.",
    "The rows and the index of the frame.",
)
"""A word and two contexts that it means different things in."""
_OCCURRENCES = 2000  # sentences among which occurrences are compared
_PSEUDO = 300  # sentences of held-out text that are scored by masking each token in turn
ASKED = ("array", "string", "file", "error", "matrix", "returns", "tokenizers")
"""Words whose neighbours are shown where a model has a vector for them."""


def run_demo(out: Path, threads: int | None = None, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """Trains, scores and compares; writes the artifacts, `report.json` and `report.html` into `out`."""
    _remove_older(out)
    with new_folder(out) as draft:
        return _run(draft, out, threads, tell)


def _run(draft: Path, out: Path, threads: int | None, tell: Callable[[str], None]) -> dict[str, Any]:
    started = time.monotonic()
    corpus = read_corpus(CORPUS)
    tell(f"checking {CORPUS}")
    parts = corpus.parts()
    report: dict[str, Any] = {
        "title": TITLE,
        "subtitle": "From raw text to language models, compared on one scale: bits per byte of held-out text.",
        "command": f"firth demo -o {out}",
        "versions": installed_versions(),
        "machine": {"cores": cores(), "system": f"{platform.system()} {platform.machine()}"},
        "corpus": _describe_corpus(corpus, parts),
    }
    report["tokenizers"] = [_tokenizer_row(line, parts[0], draft, threads, tell) for line in TOKENIZERS]
    report["runs"] = [_model_row(line, parts, draft, threads, tell) for line in (*MODELS, *NETS)]
    report["vectors"] = _vectors(parts[0], draft, threads, tell)
    report["nets"] = _nets(parts[2], draft, tell)
    report["oracle"] = _oracle(draft, threads, tell)
    report["tasks"] = fine_tune(draft, threads, tell)
    report["seconds"] = time.monotonic() - started
    write_file(draft / "report.json", (json.dumps(report, ensure_ascii=False, indent=1) + "\n").encode())
    write_file(draft / "report.html", render_page(report).encode())
    return report


def _remove_older(out: Path) -> None:
    """Removes what an earlier demo left in `out`, if that is all there is."""
    if not out.is_dir() or {path.name for path in out.iterdir()} != {"models", "report.json", "report.html"}:
        return
    try:
        title = json.loads((out / "report.json").read_bytes())["title"]
    except (ValueError, KeyError, TypeError, OSError):
        return
    if title == TITLE:
        shutil.rmtree(out)


def _describe_corpus(corpus: Corpus, parts: tuple[Corpus, Corpus, Corpus]) -> dict[str, Any]:
    facts = check_corpus(corpus).to_json()
    split = {part.part: sum(not document.continues for document in part) for part in parts}
    return {"name": CORPUS, **facts, "split": split}


def _train(line: Line, corpus: Corpus, folder: Path, models: Path, threads: int | None) -> Any:
    tokenizer = models / line.tokenizer if line.tokenizer else None
    return train(
        line.recipe, corpus, out=folder, settings=line.settings, tokenizer=tokenizer, threads=threads, size=line.size,
        budget=line.budget,
    )  # fmt: skip


def _tokenizer_row(
    line: Line, corpus: Corpus, out: Path, threads: int | None, tell: Callable[[str], None]
) -> dict[str, Any]:
    folder = out / "models" / line.name
    tokenizer = _train(line, corpus, folder, out / "models", threads)
    metrics = artifact_info(folder)["metrics"]
    tell(f"{line.name:<20} {metrics['vocabulary']:>7,} tokens, {metrics['bytes_per_token']:.2f} bytes each")
    examples = []
    for text in EXAMPLES:
        starts = tokenizer.encode(text).starts
        examples.append({"text": text, "tokens": tokenizer.tokenize(text), "starts": starts})
    return {"name": line.name, **metrics, "examples": examples}


def _model_row(
    line: Line,
    parts: tuple[Corpus, Corpus, Corpus],
    out: Path,
    threads: int | None,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    folder = out / "models" / line.name
    model = _train(line, parts[0], folder, out / "models", threads)
    scores = summarise(score_documents(model, _held_out(parts[2], model)), model.score_kind)
    info = artifact_info(folder)
    tell(f"{line.name:<20} {scores['bits_per_byte']:.4f} bits per byte, perplexity {scores['perplexity']:,.1f}")
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
        "settings": _changed(line.recipe, info["recipe"]),
        "samples": model.generate(count=2, length=25, seed=1) if isinstance(model, Generates) else [],
    }


def _held_out(corpus: Corpus, model: Scores) -> Iterator[Sequence[str]]:
    """The documents to score; only the first ones for models that read a sentence once for each of its tokens."""
    left = _PSEUDO if model.score_kind == "pseudo" else math.inf
    for document in corpus:
        if left <= 0:
            return
        left -= len(document.sentences)
        yield document.sentences


def _nets(held_out: Corpus, out: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """How the networks learnt, and a word in two contexts by those that read from both sides."""
    rows, contexts = [], []
    sentences = list(itertools.islice((one for document in held_out for one in document.sentences), _OCCURRENCES))
    for line in NETS:
        folder = out / "models" / line.name
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
            contexts.append(_in_context(load(folder), line.name, sentences))
            near = contexts[-1]["rows"][0]["neighbours"][0]
            tell(f"{line.name:<20} {CONTEXTS[0]} in context is nearest to: {near['context']}")
    return {"runs": rows, "contexts": contexts}


def _in_context(model: Any, name: str, sentences: Sequence[str]) -> dict[str, Any]:
    from firth.nets.contexts import nearest_occurrences

    word, *contexts = CONTEXTS
    found = []
    for context in contexts:
        near = nearest_occurrences(model, word, context, sentences, 4)
        found.append({"context": context, "neighbours": [one._asdict() for one in near]})
    return {"word": word, "name": name, "rows": found}


def _changed(name: str, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What was set otherwise than the recipe has it by default."""
    return {key: value for key, (_, value) in difference(find_recipe(name), recipe_from_json(dict(recipe))).items()}


def _vectors(corpus: Corpus, out: Path, threads: int | None, tell: Callable[[str], None]) -> dict[str, Any]:
    """Neighbours of some words in each kind of vectors, and a map of the first."""
    rows: list[dict[str, Any]] = []
    drawn: dict[str, Any] = {}
    for line in VECTORS:
        folder = out / "models" / line.name
        model = _train(line, corpus, folder, out / "models", threads)
        info = artifact_info(folder)
        near = {word: model.similar(word, 6) for word in ASKED if _has_vector(model, word)}
        rows.append({
            "name": line.name,
            "vocabulary": len(model.words) - FIRST_WORD,
            "dimension": int(model.vectors.shape[1]),
            "loss": info["metrics"]["losses"][-1],
            "seconds": info["budget"]["spent"]["seconds"],
            "neighbours": {word: [[other, score] for other, score in found] for word, found in near.items()},
        })  # fmt: skip
        for word, found in list(near.items())[:1]:
            tell(f"{line.name:<20} {word}: {', '.join(other for other, _ in found)}")
        drawn = drawn or word_map(model, count=150).to_json()
    return {"runs": rows, "map": drawn}


def _has_vector(model: Any, word: str) -> bool:
    try:
        model.vector(word)
    except AbilityError:
        return False
    return True


def _oracle(out: Path, threads: int | None, tell: Callable[[str], None]) -> dict[str, Any]:
    """How far models stay from the best that any model could do."""
    corpus = read_corpus(ORACLE)
    parts = corpus.parts()
    entropy = corpus.entropy() or {}
    rows = []
    for line in ORACLE_MODELS:
        model = _train(line, parts[0], out / "models" / f"oracle-{line.name}", out / "models", threads)
        score = score_documents(model, (document.sentences for document in parts[2]))
        rows.append({"name": line.name, "family": find_entry(line.recipe).family, "bits_per_byte": score.bits_per_byte})
        tell(f"{ORACLE}: {line.name} {score.bits_per_byte:.4f} bits per byte, optimum {entropy['bits_per_byte']:.4f}")
    return {"corpus": ORACLE, "entropy_per_byte": entropy["bits_per_byte"], "runs": rows}
