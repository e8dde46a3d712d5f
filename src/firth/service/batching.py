"""Batches: texts of many requests for the same operation are computed together, in threads, with a bounded queue.

A request is a `Submission` of items. Workers take the oldest item and others for the same operation, as many as fit
into a batch. Items of a request that was given up, because its client has gone or its deadline has passed, are dropped.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from itertools import count
from typing import Any, NamedTuple

from firth.progress import quietly
from firth.service.limits import Limits
from firth.service.metrics import Metrics
from firth.service.models import ServedModel
from firth.service.operations import OPERATIONS, generation
from firth.service.refusals import Refusal, refusal_of

Key = tuple[ServedModel, str, str]
"""The model, the operation and the options: items of the same key can be computed together."""
_RECENT = 0.2  # weight of the last batch in the mean time of a token
Emit = Callable[[dict[str, Any]], None]


class Submission:
    """The items of a request and their answers."""

    def __init__(self, served: ServedModel, operation: str, items: Sequence[Any], options: dict[str, Any]) -> None:
        self.served, self.operation, self.items, self.options = served, operation, items, options
        self.key: Key = (served, operation, repr(sorted(options.items())))
        self.kind = (served.name, operation)
        self.answers: list[Any] = [None] * len(items)
        self.left = len(items)
        self.future: Future[list[Any]] = Future()
        self.is_given_up = False
        self.emit: Emit | None = None
        """Called with each part of the answer that is ready before the rest."""

    def give_up(self) -> None:
        """Drop the items that have not been computed."""
        self.is_given_up = True

    @property
    def is_wanted(self) -> bool:
        return not self.is_given_up and not self.future.done()


class Work(NamedTuple):
    """An item of a submission that waits."""

    number: int
    """Of arrival."""
    submission: Submission
    position: int
    cost: int
    """Estimated tokens."""
    seconds: float
    """Estimated time of its computation."""

    @property
    def item(self) -> Any:
        return self.submission.items[self.position]


def estimated_tokens(item: Any) -> int:
    """About as many tokens as an item has.

    >>> estimated_tokens("a short text"), estimated_tokens(["a", "b"]), estimated_tokens({"question": "why"})
    (5, 4, 2)
    """
    if isinstance(item, str):
        return 2 + len(item.encode(errors="replace")) // 4
    if isinstance(item, dict):
        return sum(map(estimated_tokens, item.values()))
    return sum(map(estimated_tokens, item)) if isinstance(item, list | tuple) else 1


def generated_tokens(options: dict[str, Any]) -> int:
    """As many tokens as a request to generate asks for."""
    return int(options["count"] * (options["length"] or 50) * options["beams"])


class BatchQueue:
    """The items that wait, oldest first, by key; safe for threads."""

    def __init__(self, limits: Limits, threads: int = 1) -> None:
        self.limits, self.threads = limits, threads
        self.tokens = 0
        self.seconds = 0.0
        """Estimated time in which one thread would compute all that waits."""
        self._rates: dict[tuple[str, str], float] = {}  # seconds per token, by model and operation
        self._waiting: dict[Key, deque[Work]] = {}
        self._numbers = count()
        self._changed = threading.Condition()
        self._is_closed = False

    def add(self, submission: Submission) -> None:
        """Queue the items of a request, or refuse it."""
        made = generated_tokens(submission.options) if submission.operation == "generate" else 0
        costs = [estimated_tokens(item) + made for item in submission.items]
        with self._changed:
            if self._is_closed:
                raise Refusal(503, "the server is stopping: try another one, or try again soon.")
            is_full = self.seconds > self.limits.waiting * self.threads
            if is_full or (self.tokens and self.tokens + sum(costs) > self.limits.queued_tokens):
                raise Refusal(429, "the server is too busy: try again soon.")
            rate = self._rates.get(submission.kind, 0.0)
            queue = self._waiting.setdefault(submission.key, deque())
            for position, cost in enumerate(costs):
                queue.append(Work(next(self._numbers), submission, position, cost, cost * rate))
            self.tokens += sum(costs)
            self.seconds += sum(costs) * rate
            self._changed.notify(min(len(costs), 2))

    def take(self) -> list[Work]:
        """The next batch; empty when the queue is closed and nothing waits."""
        with self._changed:
            while True:
                self._drop_unwanted()
                if self._waiting:
                    return self._take()
                if self._is_closed:
                    return []
                self._changed.wait()

    def observe(self, batch: Sequence[Work], seconds: float) -> None:
        """Note how long a batch has taken."""
        kind, cost = batch[0].submission.kind, sum(work.cost for work in batch)
        with self._changed:
            before = self._rates.get(kind, seconds / cost)
            self._rates[kind] = before + _RECENT * (seconds / cost - before)

    def close(self) -> None:
        """Accept nothing more; what waits is still computed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _drop_unwanted(self) -> None:
        for key, queue in list(self._waiting.items()):
            while queue and not queue[0].submission.is_wanted:
                self._pop(queue)
            if not queue:
                del self._waiting[key]
        if not self._waiting:
            self.tokens, self.seconds = 0, 0.0  # without the errors of rounding

    def _pop(self, queue: deque[Work]) -> Work:
        work = queue.popleft()
        self.tokens -= work.cost
        self.seconds -= work.seconds
        return work

    def _take(self) -> list[Work]:
        key = min(self._waiting, key=lambda one: self._waiting[one][0].number)
        queue, batch, size = self._waiting[key], list[Work](), 0
        while queue and (not batch or size + queue[0].cost <= self.limits.batch_tokens):
            work = self._pop(queue)
            if work.submission.is_wanted:
                batch.append(work)
                size += work.cost
        if not queue:
            del self._waiting[key]
        return batch


class BatchWorkers:
    """Threads that compute batches."""

    def __init__(self, threads: int, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics
        self.queue = BatchQueue(limits, threads)
        context = copy_context()
        self._threads = [
            threading.Thread(target=context.copy().run, args=(self._work,), name=f"firth-{one}", daemon=True)
            for one in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, submission: Submission) -> list[Any]:
        """The answers of a request, before its deadline; if the caller is cancelled, it is given up."""
        self.queue.add(submission)
        try:
            async with asyncio.timeout(self.limits.deadline):
                return await asyncio.wrap_future(submission.future)
        except TimeoutError:
            raise Refusal(
                429, f"there was no answer within {self.limits.deadline:g} seconds: send less, or try again later."
            ) from None
        except Exception as error:
            raise refusal_of(error) from error
        finally:
            submission.give_up()

    def stop(self) -> None:
        """Finish what waits, and end the threads."""
        self.queue.close()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        with quietly():
            while batch := self.queue.take():
                begun = time.perf_counter()
                self._compute(batch)
                seconds = time.perf_counter() - begun
                self.queue.observe(batch, seconds)
                self.metrics.batch(batch[0].submission, len(batch), seconds)

    def _compute(self, batch: Sequence[Work]) -> None:
        first = batch[0].submission
        if len(batch) > 1 and first.operation in first.served.batched:
            try:
                answers = _run(first, [work.item for work in batch])
            except BaseException:  # one of them, which is found when they are computed alone
                answers = None
            if answers is not None:
                for work, answer in zip(batch, answers, strict=True):
                    _deliver(work, answer)
                return
        for work in batch:
            if not work.submission.is_wanted:
                continue
            try:
                _deliver(work, _run_alone(work.submission, work.item))
            except BaseException as error:
                self.metrics.failed(error)
                _fail(work.submission, error)


def _run(submission: Submission, items: Sequence[Any]) -> list[Any]:
    return OPERATIONS[submission.operation].run(submission.served, items, submission.options)


def _run_alone(submission: Submission, item: Any) -> Any:
    if submission.operation != "generate":
        return _run(submission, [item])[0]
    answer: dict[str, Any] = {}
    for answer in generation(submission.served, item, submission.options):
        if not submission.is_wanted:
            raise Refusal(429, "the request was given up.")
        if submission.emit is not None and "texts" not in answer:
            submission.emit(answer)
    return answer


def _deliver(work: Work, answer: Any) -> None:
    submission = work.submission
    with _DELIVERY:
        submission.answers[work.position] = answer
        submission.left -= 1
        is_complete = not submission.left
    if is_complete and submission.future.set_running_or_notify_cancel():
        submission.future.set_result(submission.answers)


def _fail(submission: Submission, error: BaseException) -> None:
    with _DELIVERY:
        is_first = not submission.future.done() and submission.left > 0
        submission.left = -1
    if is_first and submission.future.set_running_or_notify_cancel():
        submission.future.set_exception(error)


_DELIVERY = threading.Lock()
