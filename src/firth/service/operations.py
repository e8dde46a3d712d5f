"""What a server does with a model: an operation takes items, such as texts, and gives an answer for each of them.

The answer for an item is the library's for this item alone. Operations whose bits do not depend on the other items of a
batch are found by a test when a model is loaded; items of other operations are computed one by one.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from firth.abilities import HasLayers, Scores, ScoresPairs, ScoresTokens, TaskPredictor, Translates
from firth.apply.embed import text_vectors
from firth.apply.fill import fill_text
from firth.apply.languages import has_languages
from firth.apply.predict import require_task_predictor
from firth.apply.score import next_tokens, require_scores
from firth.apply.similar import find_similar, nearest_occurrences
from firth.errors import AbilityError, ArgumentError
from firth.service.models import ServedModel
from firth.service.pieces import ReadText, read_texts, token_pieces, tokenized
from firth.service.refusals import Refusal

_FEW = 8  # tokens of texts that a network reads alone
Answer = dict[str, Any]
Options = dict[str, Any]


class Operation(NamedTuple):
    """An operation of the server."""

    name: str
    run: Callable[[ServedModel, Sequence[Any], Options], list[Any]]
    """The answers for items, of which each is the same as alone if the model's `batched` has the name."""


def score(served: ServedModel, items: Sequence[Any], options: Options) -> list[Answer]:
    """The scores of texts, or of targets given their sources."""
    network = in_language(served.network, options.get("language"))
    is_pair = isinstance(network, ScoresPairs) and not (isinstance(network, Scores) and isinstance(items[0], str))
    if is_pair:
        if any(isinstance(item, str) for item in items):
            raise AbilityError("this model scores a target given its source: give texts as [source, target].")
        found = list(network.score_pairs([(one, two) for one, two in items]))
        targets = [target for _, target in items]
    else:
        if any(not isinstance(item, str) for item in items):
            raise AbilityError("this model scores texts by themselves, not pairs: give texts as strings.")
        found, targets = _scores(network, items, options), list(items)
    read = read_texts(served, targets)
    answers = [_score_answer(served, *pair) for pair in zip(found, read, strict=True)]
    if options.get("tokens"):
        if is_pair or not isinstance(network, ScoresTokens):
            raise AbilityError("this model has no log-probabilities of single tokens: leave tokens out.")
        for answer, text in zip(answers, targets, strict=True):
            answer["pieces"] = token_pieces(network, text)
    return answers


def _scores(network: Any, texts: Sequence[str], options: Options) -> list[Any]:
    scorer: Any = require_scores(network)
    if not options.get("whole_words"):
        return list(scorer.score(texts))
    if scorer.score_kind != "pseudo":
        raise AbilityError("whole words are masked by masked models, such as bert: leave --whole-words out.")
    return list(scorer.score(texts, whole_words=True))


def _score_answer(served: ServedModel, score: Any, read: ReadText) -> Answer:
    ratios = {"bits_per_byte": score.bits_per_byte, "perplexity": score.perplexity}
    return {**read.facts(served.max_tokens), **score._asdict(), **ratios}  # its tokens are predictions


def next_(served: ServedModel, items: Sequence[str], options: Options) -> list[Answer]:
    """The most probable tokens after texts."""
    network = in_language(served.network, options.get("language"))
    answers = []
    for history, read in zip(items, read_texts(served, items), strict=True):
        found = next_tokens(network, history, options["top"])
        rows = [{"token": token, "probability": probability} for token, probability in found]
        answers.append({"next": rows} | read.clipped(served.max_tokens))
    return answers


def fill(served: ServedModel, items: Sequence[str], options: Options) -> list[Answer]:
    """The most probable tokens for the masks of texts."""
    network = in_language(served.network, options.get("language"))
    masks = [fill_text(network, text, options["top"]) for text in items]
    read = read_texts(served, items, keep_masks=True)
    return [{"masks": one} | text.clipped(served.max_tokens) for one, text in zip(masks, read, strict=True)]


def similar(served: ServedModel, items: Sequence[str], options: Options) -> list[Answer]:
    """The nearest words of words."""
    return [_similar(served, word, options) for word in items]


def _similar(served: ServedModel, word: str, options: Options) -> Answer:
    network = in_language(served.network, options.get("language"))
    count, context, sentences = options["count"], options.get("context"), options.get("sentences") or ()
    if context is not None and isinstance(network, HasLayers) and not options["plus"] and not options["minus"]:
        layer = options.get("layer")
        near = nearest_occurrences(network, word, context, sentences, count, "last" if layer is None else layer)
        return {"neighbours": near, "unknown": False}
    if sentences or options.get("layer") is not None:
        raise AbilityError("sentences and layer are for a network and a word in its context: leave them out.")
    found = find_similar(
        network, [word, *options["plus"]], options["minus"], count=count, context=context, method=options["method"]
    )
    answer: Answer = {"neighbours": [{"word": near, "score": score} for near, score in found]}
    answer["unknown"] = not knows_word(network, word)
    if options.get("vectors"):
        if not hasattr(network, "vector"):
            raise AbilityError("this model has no dense vectors: leave vectors out.")
        answer["vector"] = np.asarray(network.vector(word)).tolist()
        for row in answer["neighbours"]:
            row["vector"] = np.asarray(network.vector(row["word"])).tolist()
    return answer


def knows_word(network: Any, word: str) -> bool:
    """Whether a word has a vector of its own, not one of its parts."""
    return word in getattr(network, "rows", {word: 0})


def embed(served: ServedModel, items: Sequence[str], options: Options) -> list[Answer]:
    """The vectors of texts, with what was read of them."""
    network = in_language(served.network, options.get("language"))
    read = read_texts(served, items)
    rows = _vectors(network, items, [one.tokens < _FEW for one in read], options)
    if not np.isfinite(rows).all():
        raise Refusal(500, "the model gave a vector with infinite numbers: check it with firth verify.")
    is_cut = options.get("pooling") in ("whole", "first")
    answers = []
    for row, one in zip(rows, read, strict=True):
        facts = one.clipped(served.max_tokens) | {"windowed": False} if is_cut else one.facts(served.max_tokens)
        answers.append({"embedding": row} | facts | {"empty": not row.any()})
    return answers


def _vectors(network: Any, texts: Sequence[str], is_short: Sequence[bool], options: Options) -> Any:
    """(texts, dimension): the vectors of texts, of which networks read short ones alone.

    Products of matrices of very few rows are computed in another way than of many, which gives other bits.
    """
    chosen = {name: options[name] for name in ("layer", "pooling") if options.get(name) is not None}
    unit = bool(options.get("unit"))
    apart = [[one] for one, short in enumerate(is_short) if short and isinstance(network, HasLayers)]
    alone = {one for (one,) in apart}
    groups = [*apart, [one for one in range(len(texts)) if one not in alone]]
    rows: dict[int, Any] = {}
    for group in filter(None, groups):
        found, _ = text_vectors(network, [texts[one] for one in group], unit=unit, **chosen)
        rows |= dict(zip(group, found, strict=True))
    return np.stack([rows[one] for one in range(len(texts))])


def written_vector(row: Any, encoding: str) -> Any:
    """A vector as JSON: its numbers, or its float32 bytes in base64."""
    if encoding == "base64":
        return base64.b64encode(np.ascontiguousarray(row, dtype="<f4").tobytes()).decode()
    return row.tolist()


def predict(served: ServedModel, items: Sequence[Any], options: Options) -> list[Answer]:
    """The predictions of a classifier or of a task."""
    predictor: Any = task_predictor(served, options.get("task"))
    found = predictor.predict(list(items))
    return [{**one, "truncated": bool(one.get("truncated"))} for one in found]


def task_predictor(served: ServedModel, task: str | None) -> TaskPredictor:
    """The predictor of a task; one that is not there raises `FirthError`."""
    predictor: Any = require_task_predictor(served.model, task)
    return predictor  # type: ignore[no-any-return]


def tokenize(served: ServedModel, items: Sequence[str], options: Options) -> list[Answer]:
    """The tokens of texts."""
    return tokenized(served.model.tokenizer, items)


def generate(served: ServedModel, items: Sequence[str], options: Options) -> list[Answer]:
    """Continuations of prompts, or translations of sources."""
    last: list[Answer] = []
    for prompt in items:
        *_, answer = generation(served, prompt, options)
        last.append(answer)
    return last


def generation(served: ServedModel, prompt: str, options: Options) -> Iterator[Answer]:
    """Texts so far as `{"text"}` where the model gives them, and at last the answer."""
    network = in_language(served.network, options.get("language"))
    (read,) = read_texts(served, [prompt])
    if isinstance(network, Translates):
        yield _translated(network, prompt, options) | read.clipped(None)
        return
    if not hasattr(network, "generate"):
        raise AbilityError("this model generates no text: use a language model, such as gpt, lstm or mkn5.")
    sampling = {name: options[name] for name in ("temperature", "top_k", "top_p", "seed")}
    facts = read.clipped(served.max_tokens)
    if options["count"] == 1 and options["beams"] == 1 and hasattr(network, "generate_stepwise"):
        text = prompt
        for text in network.generate_stepwise(prompt, length=options["length"] or 50, **sampling):
            yield {"text": text}
        yield {"texts": [text]} | facts
        return
    sampling |= {name: options[name] for name in ("count", "beams")}
    texts = network.generate(prompt, length=options["length"] or 50, **sampling)
    yield {"texts": texts} | facts


def _translated(network: Translates, source: str, options: Options) -> Answer:
    if options["count"] > 1 or options["temperature"] != 1 or options["top_k"] or options["top_p"] is not None:
        raise ArgumentError("one text is generated from a source, by beam search: set beams and length only.")
    beams = options["beams"] if options["beams"] > 1 else 4
    (made,) = network.translate([source], beams=beams, length=options["length"])
    return {"texts": [made.text], "logprob": made.logprob, "finished": made.finished}


def in_language(network: Any, language: str | None) -> Any:
    """The model for texts in a language; without one, that of each text's script."""
    if language is None:
        return network
    if not has_languages(network):
        raise AbilityError("a model without language embeddings reads all languages alike: leave language out.")
    return network.in_language(language)


OPERATIONS = {
    one.name: one
    for one in (
        Operation("score", score),
        Operation("next", next_),
        Operation("fill", fill),
        Operation("similar", similar),
        Operation("embed", embed),
        Operation("predict", predict),
        Operation("tokenize", tokenize),
        Operation("generate", generate),
    )
}
