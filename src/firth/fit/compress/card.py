"""The card of a compression: size, speed, memory and quality before and after, and whether the result is kept."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from firth.cores import cores
from firth.errors import FirthError
from firth.fit.compress.quality import Comparison, EvaluationSet, Side, TaskSet, compare
from firth.fit.compress.speed import folder_mb, measure_speeds, peak_memory
from firth.tasks.examples import ChoiceExample, Example, GenerateExample, SpanExample, TagExample, TextExample

SLOWER = 0.9
"""The throughput, as a fraction of the original's, below which a result is slower: smaller differences are noise."""
_MEMORY_ITEMS = 256  # texts given to a process whose memory is measured


class CompressionError(FirthError):
    """The result is slower or worse than allowed, so it is not written."""


def measure_both(
    before: Side, after: Side, folders: Sequence[Path], sets: Sequence[EvaluationSet], word_order: bool = False
) -> dict[str, Any]:
    """The card as JSON values: `before` and `after` with size, speed, memory and quality, and the loss.

    `folders` are those of the saved models. The quality is the mean over the sets. With `word_order` the card has the
    quality of the original when it reads the words of each text in a random order.
    """
    first = sets[0]
    sides = (before, after)
    uses = [lambda items, side=side: first.use(side, items) for side in sides]
    speeds = measure_speeds(uses, first.items, first.texts(first.items))
    found = [compare(one, before, after) for one in sets]
    card: dict[str, Any] = {}
    for number, name in enumerate(("before", "after")):
        verb, items = _memory_inputs(first)
        card[name] = {
            "mb": folder_mb(folders[number]),
            **speeds[number]._asdict(),
            "peak_mb": peak_memory(folders[number], verb, items),
            **_quality(found, name),
        }
    speedup = card["after"]["texts_per_second"] / card["before"]["texts_per_second"]
    card |= {
        "smaller": card["before"]["mb"] / card["after"]["mb"],
        "faster": speedup,
        "loss": _mean([one.loss for one in found]),
        "loss_interval": _mean_interval([one.loss_interval for one in found]),
        "metric": found[0].metric if len({one.metric for one in found}) == 1 else "mean",
        "sets": {one.name: one._asdict() for one in found},
        "machine": {"processor": platform.machine(), "cores": cores()},
    }
    if word_order and (shuffled := [other for one in sets if (other := one.shuffled()) is not None]):
        values = [one.value(one.answers(before), np.arange(len(one.items))) for one in shuffled]
        card["words_shuffled"] = _mean(values)
    return card


def _quality(found: Sequence[Comparison], side: str) -> dict[str, Any]:
    return {
        "quality": _mean([getattr(one, side) for one in found]),
        "quality_interval": _mean_interval([getattr(one, f"{side}_interval") for one in found]),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_interval(intervals: Sequence[Sequence[float]]) -> list[float]:
    """The means of the bounds: exact for one set, cautious for several."""
    return [_mean([one[side] for one in intervals]) for side in (0, 1)]


def refusal(
    card: Mapping[str, Any],
    at_most_loss: float | None,
    *,
    allow_slower: bool = False,
    max_mb: float | None = None,
    max_ms: float | None = None,
) -> str:
    """Why a result must not be written, in one sentence with the numbers; empty if it may.

    >>> sides = {"before": {"quality": 0.9, "texts_per_second": 10}, "after": {"quality": 0.8, "texts_per_second": 20}}
    >>> refusal({**sides, "loss": 0.1, "metric": "accuracy", "faster": 2.0}, 0.05)
    'accuracy falls from 0.9 to 0.8, by 0.1, which is more than --at-most-loss 0.05: allow more, or choose another \
--method'
    """
    before, after = card["before"], card["after"]
    if at_most_loss is not None and card["loss"] > at_most_loss:
        verb = "falls" if after["quality"] < before["quality"] else "rises"
        return (
            f"{card['metric']} {verb} from {before['quality']:.4g} to {after['quality']:.4g}, by {card['loss']:.4g}, "
            f"which is more than --at-most-loss {at_most_loss:g}: allow more, or choose another --method"
        )
    if max_mb is not None and after["mb"] > max_mb:
        return f"the result has {after['mb']:.4g} MB, more than --max-mb {max_mb:g}: allow more, or try --method auto"
    if max_ms is not None and after["ms"] > max_ms:
        return f"a text takes {after['ms']:.4g} ms, more than --max-ms {max_ms:g}: allow more, or try --method auto"
    if card["faster"] < SLOWER and not allow_slower:
        return (
            f"the result is slower: {after['texts_per_second']:,.0f} texts per second instead of "
            f"{before['texts_per_second']:,.0f}: choose another --method, or keep it with --allow-slower"
        )
    return ""


def card_rows(card: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """The lines of the card: a name, before, after, and the change."""
    before, after = card["before"], card["after"]
    rows = [
        ("size on disk, MB", *_both(before, after, "mb"), f"{card['smaller']:.3g} x smaller"),
        ("one text, ms", *_both(before, after, "ms"), f"{before['ms'] / max(after['ms'], 1e-9):.3g} x faster"),
        ("texts per second", *_both(before, after, "texts_per_second"), f"{card['faster']:.3g} x faster"),
        ("peak memory, MB", *_both(before, after, "peak_mb"), ""),
    ]
    for name, one in card["sets"].items():
        low, high = one["loss_interval"]
        change = f"loss {one['loss']:+.4f} [{low:+.4f} to {high:+.4f}]"
        before_shown, after_shown = _with_interval(one, "before"), _with_interval(one, "after")
        rows.append((f"{one['metric']}, {name}", before_shown, after_shown, change))
    if "words_shuffled" in card:
        shown = f"{card['words_shuffled']:.4f}"
        cost = f"word order is worth {before['quality'] - card['words_shuffled']:+.4f}"
        rows.append(("the same, words shuffled", shown, "", cost))
    return rows


def _both(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> tuple[str, str]:
    return _shown(before[name]), _shown(after[name])


def _shown(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _with_interval(one: Mapping[str, Any], side: str) -> str:
    low, high = one[f"{side}_interval"]
    return f"{one[side]:.4f} [{low:.4f} to {high:.4f}]"


def _memory_inputs(one: EvaluationSet) -> tuple[str, list[Any]]:
    """The method of a model that an evaluation set measures, and inputs of it that can be written as JSON."""
    if isinstance(one, TaskSet):
        return "predict", [_plain(item) for item in one.items[:_MEMORY_ITEMS]]
    flat = [text for item in one.items[:_MEMORY_ITEMS] for text in ([item] if isinstance(item, str) else item)]
    return "score" if one.metric == "bits_per_byte" else "embed", flat


def _plain(example: Example) -> Any:
    """An example as `predict` takes it."""
    match example:
        case TextExample():
            return example.text if example.other is None else [example.text, example.other]
        case TagExample():
            return list(example.words)
        case GenerateExample():
            return example.source
        case SpanExample():
            return {"passage": example.passage, "question": example.question}
        case ChoiceExample():
            return {"context": example.context, "question": example.question, "choices": list(example.choices)}


def options_json(options: Any) -> dict[str, Any]:
    """The options of a method as JSON values."""
    return dict(asdict(options))
