"""ServerState: what all requests share, and the checks of their size."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from firth.service.batching import BatchWorkers
from firth.service.limits import Limits
from firth.service.metrics import Metrics
from firth.service.models import ServedModel
from firth.service.pieces import read_texts
from firth.service.refusals import Refusal
from firth.service.registry import ModelRegistry
from firth.service.schemas import GenerateRequest

_TEXT_OPTIONS = ("context", "sentences", "plus", "minus")


class ServerState:
    """The models, the workers, the limits and the counters of a server."""

    def __init__(self, registry: ModelRegistry, limits: Limits, threads: int) -> None:
        self.registry, self.limits = registry, limits
        self.metrics = Metrics()
        self.workers = BatchWorkers(threads, limits, self.metrics)
        self.metrics.gauges = {
            "firth_ready": lambda: float(self.registry.is_ready),
            "firth_queued_seconds": lambda: self.workers.queue.seconds,
            "firth_resident_bytes": resident_bytes,
            "firth_queued_tokens": lambda: float(self.workers.queue.tokens),
            "firth_start_time_seconds": lambda: self.metrics.started,
        }

    def require_ready(self) -> None:
        """Refuse a request before all models are tested."""
        if not self.registry.is_ready:
            raise Refusal(503, "the models are being loaded: try again soon.")

    async def check_size(self, served: ServedModel, items: Sequence[Any], options: dict[str, Any]) -> None:
        """Refuse a request with too many texts or tokens."""
        if len(items) > self.limits.texts:
            raise Refusal(413, f"{len(items):,} texts are too many: send at most {self.limits.texts:,}.", param="texts")
        texts = texts_in([items, [options.get(name) for name in _TEXT_OPTIONS]])
        try:
            size = sum(2 + len(text.encode()) for text in texts)
        except UnicodeEncodeError:
            raise Refusal(422, "a text has half of a surrogate pair, which is no character: send Unicode.") from None
        if size <= self.limits.tokens:  # a token has a byte at least
            return
        tokens = await asyncio.get_running_loop().run_in_executor(None, count_tokens, served, texts)
        if tokens > self.limits.tokens:
            raise Refusal(413, f"{tokens:,} tokens are too many: send at most {self.limits.tokens:,}.")

    def check_generated(self, body: GenerateRequest) -> None:
        """Refuse a request for too much text."""
        asked = body.count * (body.length or 50) * body.beams
        if asked > self.limits.generated:
            most = self.limits.generated
            raise Refusal(413, f"{asked:,} generated tokens are too many: ask for at most {most:,}.", param="length")


def resident_bytes() -> float:
    """The memory of this process in bytes; 0 where it is not known."""
    try:
        with open("/proc/self/statm") as file:
            return float(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return 0.0


def texts_in(value: Any) -> list[str]:
    """All strings in lists and objects.

    >>> texts_in(["a", {"b": ["c", None]}])
    ['a', 'c']
    """
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [text for one in inner for text in texts_in(one)]


def count_tokens(served: ServedModel, texts: Sequence[str]) -> int:
    """The number of tokens of texts."""
    return sum(read.tokens for read in read_texts(served, texts))
