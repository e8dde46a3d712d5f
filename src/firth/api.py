"""The verbs of the command line as functions; a model is a loaded one, or the folder of a saved one.

Functions import what they need when they are called, because some of it takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from firth.abilities import (
    Context,
    Filling,
    Generates,
    Model,
    Score,
    ScoresPairs,
    Translates,
    for_task,
    total,
    without_tasks,
)
from firth.arguments import require_list, require_pairs, require_path, require_string, require_strings
from firth.errors import AbilityError, ArgumentError, near_miss
from firth.files import require_new_file
from firth.progress import note

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from firth.artifact.any_model import AnyModel
    from firth.recipes.values import Settings

_COLUMNS = "--field ROLE=NAME"
SUITES = (
    *("words", "analogies", "context", "senses", "probe", "sentences", "links"),
    *("classify", "task", "translation", "retrieval", "pairs"),
)


def load(folder: str | Path, *, verify: bool = True) -> AnyModel:
    """The model or tokenizer of an artifact folder; with `verify` the digests of its files are checked."""
    from firth.artifact.models import load as load_artifact

    return cast("AnyModel", load_artifact(require_path(folder, "folder", "where a model was saved"), verify=verify))


def score(
    model: Any,
    texts: str | Path | Iterable[Any],
    *,
    context: Context = "line",
    encoding: str | None = None,
    pair: str | None = None,
    settings: Settings = (),
) -> Score:
    """The total score of the lines of a file, or of a list of texts: bits per byte, perplexity, log-probability.

    Each line or text is scored by itself. With the context `document`, the lines of a file are scored after those since
    the last blank line. `model.score(texts)` gives the score of each text. Of a translation model, `texts` are pairs
    of a source and a target or a file of them, `pair` its two columns, and the score is that of the targets. With
    `settings` such as `{"memory.length": 640}` a network with a memory reads more than in training.
    """
    from firth.apply.pairs import score_pair_lines, wants_pairs
    from firth.apply.score import open_texts, require_scores, score_lines
    from firth.apply.settings import with_settings
    from firth.text.parallel import read_parallel

    loaded = with_settings(without_tasks(_loaded(model)), settings)
    if wants_pairs(loaded, texts, pair):
        if isinstance(texts, str | Path):
            corpus = read_parallel(texts, pair=pair, encoding=encoding)
            return total(one for _, one in score_pair_lines(loaded, corpus))
        return total(cast(ScoresPairs, loaded).score_pairs(require_pairs(texts)))
    if pair is not None:
        raise ArgumentError("pair names the columns of parallel text, which this model does not score: leave it out.")
    if isinstance(texts, str | Path):
        return total(one for _, one in score_lines(loaded, open_texts(loaded, [texts], context, encoding=encoding)))
    if context != "line":
        raise ArgumentError("texts of a list are scored by themselves: leave context out, or name a file.")
    return total(require_scores(loaded).score(require_strings(texts, "texts", "score")))


def embed(
    model: Any,
    texts: str | Path | Iterable[str],
    *,
    layer: str | int | None = None,
    pooling: str | None = None,
    unit: bool = False,
    encoding: str | None = None,
) -> npt.NDArray[np.float32]:
    """(texts, dimension): the vectors of the lines of a file, or of a list of texts; `unit` gives them length 1.

    `layer` and `pooling` are for networks: see `NetModel.embed`.
    """
    from firth.apply.embed import text_vectors
    from firth.apply.score import file_lines

    if isinstance(texts, str | Path):
        texts = [line for _, line in file_lines(Path(texts), encoding)]
    given = {"layer": layer, "pooling": pooling}
    options = {name: value for name, value in given.items() if value is not None}
    rows, truncated = text_vectors(
        without_tasks(_loaded(model)), require_strings(texts, "texts", "embed"), unit=unit, **options
    )
    if truncated:
        note(f"{truncated:,} of {len(rows):,} texts are too long for the network and were truncated.")
    return rows


def predict(
    model: Any, items: str | Path | Iterable[Any], *, task: str | None = None, encoding: str | None = None
) -> list[dict[str, Any]]:
    """The predictions of a classifier or a fine-tuned model for the examples of a file, or a list of examples.

    Those of classifiers have the keys `label`, `probability` and `probabilities`; docs/tasks.md describes the others.
    `task` names one of several that the model was fine-tuned for.
    """
    from firth.apply.predict import predict_file, require_task_predictor
    from firth.tasks.predictor import Predictor

    predictor = require_task_predictor(_loaded(model), task)
    if isinstance(items, str | Path):
        return [answer for _, answer in predict_file(predictor, Path(items), encoding=encoding)]
    return cast(Predictor, predictor).predict(items)


def generate(
    model: Any,
    prompt: str = "",
    *,
    count: int = 1,
    length: int = 50,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    beams: int = 1,
    seed: int = 0,
    source: Sequence[str] | None = None,
    settings: Settings = (),
) -> list[str]:
    """`count` continuations of the prompt by a language model, of at most `length` tokens each.

    A temperature of 0 takes the most probable token; several `beams` are for networks. A translation model gives the
    best text for each of the texts in `source`: see its `translate`, which also has scores and a limit of length.
    `settings` are those of `score`.
    """
    from firth.apply.settings import with_settings

    loaded = with_settings(without_tasks(_loaded(model)), settings)
    if source is not None:
        from firth.apply.pairs import translate_lines

        lines = translate_lines(loaded, require_strings(source, "source", "generate"), beams=beams if beams > 1 else 4)
        return [line.made.text for line in lines]
    if isinstance(loaded, Translates):
        raise AbilityError(f"a {type(loaded).__name__} generates a text from another one: give source=[...].")
    if not isinstance(loaded, Generates):
        raise AbilityError(
            f"a {type(loaded).__name__} has no way to generate text: use a language model, such as gpt, lstm or mkn5."
        )
    return loaded.generate(
        prompt, count=count, length=length, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, beams=beams
    )


def fill(model: Any, text: str, top: int = 5) -> list[list[Filling]]:
    """The most probable tokens for each `[MASK]` of a text, with probabilities, by a masked model such as BERT."""
    from firth.apply.fill import require_fills

    return require_fills(without_tasks(_loaded(model))).fill(text, top)


def similar(
    model: Any,
    words: str | Sequence[str],
    minus: str | Sequence[str] = (),
    *,
    count: int = 10,
    context: str | None = None,
    method: str = "add",
) -> list[tuple[str, float]]:
    """The words nearest to a word, or to the sum of several minus others (analogies), with their similarities.

    `context` is a text that tells the sense of the word.
    """
    from firth.apply.similar import find_similar

    plus, less = ([given] if isinstance(given, str) else given for given in (words, minus))
    given = [list(require_strings(some, name, "similar")) for some, name in ((plus, "words"), (less, "minus"))]
    return find_similar(without_tasks(_loaded(model)), *given, count=count, context=context, method=method)


def evaluate(
    model: Any,
    suite: str,
    *files: str | Path,
    method: str = "add",
    restrict: int = 300_000,
    columns: Sequence[str] = (),
    skip_bad: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    force: bool = False,
    task: str | None = None,
    pair: str | None = None,
    beams: int | None = None,
    layer: str | int | None = None,
    pooling: str | None = None,
    floors: Sequence[str | Path | Model] = (),
    shots: int | None = None,
    train: str | Path | None = None,
    template: str | None = None,
    answers: Sequence[str] = (),
) -> dict[str, Any]:
    """The metrics of a model on test files, as `firth evaluate --json` prints them.

    The suites `words`, `analogies`, `context` and `probe` are for vectors, `classify` for classifiers, and `task` for
    fine-tuned models, `translation` for translation models; `retrieval` compares the vectors of translations. `method`
    (add or mul) and `restrict` (to the most frequent words) are for analogies, `columns` (such as `text_a=review`) for
    labelled files, `skip_bad`, `seed` and `out` for tasks: the error analysis is written to `out`, an HTML file that is
    replaced only with `force`. `task` names one of several that the model was fine-tuned for; `pair` (the columns),
    `beams` and `seed` are for translation, `layer` and `pooling` for `retrieval` and `sentences`, which measures
    vectors of texts. The suite `pairs` compares right sentences with wrong ones; `floors` are further models that are
    measured on them. `links` is for triples of a graph, `senses` for words in two contexts (WiC, SCWS).

    With `shots` a language model answers a task without training, after so many examples of the file `train` in its
    prompt; `template` is how an example is written, such as `{text_a} : {label}`, `answers` are
    words for labels, such as `1=good`, and `task` is classify, pair or choice.
    """
    paths = [require_path(file, "files", "a test file") for file in files]
    page = None if out is None else require_path(out, "out", "the HTML file to write")
    given = {"-o": page, "--force": force, _COLUMNS: columns, "--skip-bad": skip_bad, "--task": task}
    _check_evaluation(suite, paths, method, restrict, given)
    if suite != "translation" and (pair or beams):
        raise ArgumentError(f"--pair and --beams belong to the suite translation, not to {suite}: leave them out.")
    if page is not None:
        require_new_file(page, force, [*paths, *([model] if isinstance(model, str | Path) else [])])
    chosen = {"layer": layer, "pooling": pooling}
    pooled: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    if pooled and suite not in ("retrieval", "sentences") and (suite, *pooled) != ("senses", "layer"):
        raise ArgumentError(
            f"--{next(iter(pooled))} belongs to the suites retrieval and sentences, not to {suite}: leave it out."
        )
    if floors and suite != "pairs":
        raise ArgumentError(f"--floor belongs to the suite pairs, not to {suite}: leave it out.")
    reading = {"task": task, "columns": columns, "skip_bad": skip_bad, "seed": seed}
    prompting: dict[str, Any] = {"shots": shots, "train": train, "template": template, "answers": answers or None}
    if any(value is not None for value in prompting.values()):
        if suite != "task":
            raise ArgumentError(
                f"--shots, --train, --template and --answer belong to the suite task, not to {suite}: leave them out."
            )
        if page is not None:
            raise ArgumentError("-o writes the error analysis of a fine-tuned model: leave it out with --shots.")
        return _evaluate_shots(model, paths[0], prompting, reading)
    if suite == "task":
        return _evaluate_task(model, paths[0], page, reading)
    from firth.report import classify, links, minimal_pairs, retrieval, senses, sentences, suites
    from firth.report.translation import evaluate_translation

    suite_of: dict[str, Callable[[Any, Sequence[Path]], dict[str, Any]]] = {
        "words": suites.evaluate_words,
        "analogies": lambda loaded, paths: suites.evaluate_analogies(loaded, paths, method, restrict),
        "context": suites.evaluate_contexts,
        "probe": suites.evaluate_probe,
        "senses": lambda loaded, paths: senses.evaluate_senses(loaded, paths, **pooled),
        "classify": lambda loaded, paths: classify.evaluate_labels(loaded, paths, columns),
        "translation": lambda loaded, paths: evaluate_translation(loaded, paths, pair, beams=beams or 4, seed=seed),
        "retrieval": lambda loaded, paths: retrieval.evaluate_retrieval(loaded, paths, **pooled),
        "sentences": lambda loaded, paths: sentences.evaluate_sentences(loaded, paths, **pooled),
        "links": links.evaluate_links,
        "pairs": lambda loaded, paths: minimal_pairs.evaluate_pairs(loaded, paths, _named(floors)),
    }
    return suite_of[suite](_loaded(model) if suite == "classify" else without_tasks(_loaded(model)), paths)


def _check_evaluation(suite: str, paths: Sequence[Path], method: str, restrict: int, given: dict[str, Any]) -> None:
    """Raise `ArgumentError` unless the options, by their names on the command line, belong to the suite."""
    from firth.apply.similar import require_method
    from firth.tasks.readers.columns import parse_columns

    if suite not in SUITES:
        raise ArgumentError(f"there is no suite {suite!r:.80}: {near_miss(str(suite), SUITES)}")
    require_method(method)
    if restrict < 1:
        raise ArgumentError(f"--restrict is {restrict}: give the number of the most frequent words, 1 or more.")
    parse_columns(require_list(given[_COLUMNS], "columns"))
    if not paths:
        raise ArgumentError(f"{suite} is evaluated on files: name them.")
    if suite == "task" and len(paths) > 1:
        raise ArgumentError("a task is evaluated on one file of labelled examples: name one.")
    for option, value in given.items():
        if value and suite != "task" and (option, suite) != (_COLUMNS, "classify"):
            raise ArgumentError(f"{option} belongs to the suite task, not to {suite}: leave it out.")


def _evaluate_shots(model: Any, file: Path, prompting: dict[str, Any], reading: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a language model that answers after examples in its prompt."""
    from firth.apply.few_shot import evaluate_shots

    given = {name: value for name, value in prompting.items() if value is not None}
    if "train" in given:
        given["train"] = require_path(given["train"], "train", "a file of labelled examples")
    return evaluate_shots(without_tasks(_loaded(model)), file, **given, **reading)


def _evaluate_task(model: Any, file: Path, page: Path | None, reading: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a fine-tuned model, whose error analysis is written to a page if one is named."""
    from firth.apply.predict import evaluate_task
    from firth.report.task_report import write_task_report

    if page is None:
        return evaluate_task(_loaded(model), file, **reading)
    name = Path(model).resolve().name if isinstance(model, str | Path) else type(model).__name__
    return write_task_report(_loaded(model), file, page, name=name, **reading)


def export(
    model: Any,
    format: str,
    path: str | Path,
    *,
    task: str | None = None,
    pooling: str | None = None,
    unit: bool = False,
) -> dict[str, Any]:
    """Write a model in another program's format: arpa, brown, huggingface, onnx, sentence-transformers, ...

    `task` names one of several that the model was fine-tuned for; `pooling` (whole, first or max) and `unit` are those
    of sentence-transformers. Returns what was written.
    """
    from firth.artifact.formats import export_model

    target = require_path(path, "path", "the file or folder to write")
    chosen = require_string(format, "format", "export")
    return export_model(for_task(_loaded(model), task), chosen, target, pooling=pooling, unit=unit)


def import_(format: str, path: str | Path, out: str | Path, *, task: str | None = None) -> AnyModel:
    """The model of a file or folder in a format of another program, saved as an artifact in the folder `out`.

    `task` is that of a fine-tuned Hugging Face model whose class serves several.
    """
    from firth.artifact.formats import import_model

    source, folder = require_path(path, "path", "the file to read"), require_path(out, "out", "the folder to write")
    import_model(require_string(format, "format", "import_"), source, folder, task)
    return load(folder, verify=False)


def verify(path: str | Path) -> dict[str, Any]:
    """The manifest of an artifact of which every byte was checked, or the checks of an ARPA file."""
    from firth.artifact.folder import verify_artifact

    folder = require_path(path, "path", "the folder of an artifact, or an ARPA file")
    if folder.is_file():
        from firth.artifact.formats.arpa import verify_arpa

        return verify_arpa(folder)
    return verify_artifact(folder)


def _named(models: Sequence[str | Path | Model]) -> dict[str, Any]:
    """Loaded models by the names of their folders, or by number."""
    names = [Path(one).resolve().name if isinstance(one, str | Path) else "" for one in models]
    is_single = len(set(names)) == len(names)
    return {
        name if name and is_single else f"{name or 'model'} {number}": _loaded(model)
        for number, (name, model) in enumerate(zip(names, models, strict=True), 1)
    }


def _loaded(model: Any) -> Any:
    """The model, or the one that is saved in the folder of that name."""
    if isinstance(model, str | Path):
        return load(model)
    if isinstance(model, Model):
        return model
    raise ArgumentError(f"a model is a loaded one or the folder of a saved one, not a {type(model).__name__}.")
