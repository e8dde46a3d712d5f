"""The self-test of a served model: finite numbers, and which answers are the same alone and in a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from firth.abilities import HasLayers, HasTasks, Scores
from firth.errors import ArtifactError
from firth.service.models import ServedModel
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer

_OF_NETWORKS = {"embed", "tokenize"}  # the rows of their other products differ in number with the batch, and so in bits
_OF_OTHERS = {"embed", "score", "tokenize"}
_SENTENCES = (
    "The committee will meet again on Tuesday to discuss the budget for next year.",
    "Rain is expected.",
    "A small dog ran across the field, and nobody knew where it had come from or where it was going to sleep.",
    "我们喜欢学习语言。",
    "Prices rose by 3.5% in March, the largest increase since 2008, according to figures that were published today.",
    "no",
)


def probe_texts(tokenizer: Tokenizer, number: int = 24) -> list[str]:
    """Texts of many lengths, two of each, half of them of words that the model knows."""
    plain = " ".join(_SENTENCES).split()
    ids = range(FIRST_WORD, len(tokenizer), max(1, len(tokenizer) // 100))
    known = [word for word in (tokenizer.decode([one]).strip() for one in ids) if word] or plain
    texts = []
    for one in range(number):
        words = known if one // 2 % 2 else plain
        begin = (7 * one) % len(words)
        texts.append(" ".join([*words[begin:], *words][: 1 + (one // 2 * 5) % 37]))
    return texts


def check_model(served: ServedModel) -> ServedModel:
    """The model after a test of its numbers; what it may compute in batches is noted in it."""
    from firth.service.operations import OPERATIONS

    may_batch = _OF_NETWORKS if isinstance(served.network, HasLayers) else _OF_OTHERS
    for name, items, options in _probes(served):
        run: Callable[..., list[Any]] = OPERATIONS[name].run
        try:
            alone = [run(served, [item], options)[0] for item in items]
            both = [run(served, items, options), run(served, items[::-1], options)[::-1]]
        except ArtifactError:
            raise
        except Exception as error:
            raise ArtifactError(
                f"the model {served.name} failed its self-test of {name} ({type(error).__name__}: {error}): "
                "check it with firth verify."
            ) from error
        _require_finite(served, name, alone)
        if name in may_batch and all(
            _same(one, other) for batch in both for one, other in zip(alone, batch, strict=True)
        ):
            served.batched.add(name)
    return served


def _probes(served: ServedModel) -> list[tuple[str, list[Any], dict[str, Any]]]:
    texts = probe_texts(served.model.tokenizer)
    found: list[tuple[str, list[Any], dict[str, Any]]] = [("tokenize", texts, {})]
    if "score" in served.abilities:
        few: list[Any] = texts[:12]
        if not isinstance(served.network, Scores):
            few = list(zip(few, texts[12:], strict=False))
        found.append(("score", few, {}))
    if "predict" in served.abilities and not isinstance(served.model, HasTasks):
        task = getattr(served.model, "task", "classify")
        found.append(("predict", [_item(task, text) for text in texts[:6]], {"task": None}))
    if "embed" in served.abilities:
        found.append(("embed", texts, dict(served.pooling)))
    return found


def _item(task: str, text: str) -> Any:
    """A text as an item of a task."""
    if task == "pair":
        return [text, _SENTENCES[0]]
    if task == "tag":
        return text.split()
    if task == "span":
        return {"passage": text, "question": _SENTENCES[1]}
    if task == "choice":
        return {"context": text, "question": "", "choices": list(_SENTENCES[:2])}
    return text


def _require_finite(served: ServedModel, name: str, answers: Sequence[Any]) -> None:
    if name == "score":
        values = [one["logprob"] for one in answers]
        if any(value != value or value > 0 for value in values):
            raise ArtifactError(f"the model {served.name} gives no log-probabilities: check it with firth verify.")
    if name == "embed" and not any(one["embedding"].any() for one in answers):
        raise ArtifactError(f"all vectors of the model {served.name} are zero: check it with firth verify.")


def _same(one: Any, other: Any) -> bool:
    """Whether two answers have the same bits."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, np.ndarray):
        return bool(one.tobytes() == other.tobytes())
    is_same: bool = one == other or (one != one and other != other)
    return is_same
