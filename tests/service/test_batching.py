"""The queue of batches: order, size, what is dropped, and threads that go on whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from firth.errors import AbilityError
from firth.service import batching
from firth.service.batching import BatchQueue, BatchWorkers, Submission
from firth.service.limits import Limits
from firth.service.metrics import Metrics
from firth.service.operations import Operation
from firth.service.refusals import Refusal


class Model:
    """What the queue needs of a model."""

    def __init__(self, name: str = "m", batched: Sequence[str] = ("echo",)) -> None:
        self.name, self.batched = name, set(batched)


def submission(model: Any, items: Sequence[Any], **options: Any) -> Submission:
    return Submission(model, "echo", items, options)


def test_the_oldest_items_of_one_kind_are_taken_up_to_the_limit() -> None:
    queue, one, two = BatchQueue(Limits(batch_tokens=15)), Model("one"), Model("two")
    first, other, third = submission(one, ["aaaa"] * 4), submission(two, ["b"]), submission(one, ["cccc"] * 3)
    for each in (first, other, third):
        queue.add(each)
    taken = [[(work.submission, work.item) for work in queue.take()] for _ in range(3)]
    assert taken[0] == [(first, "aaaa")] * 4 + [(third, "cccc")]  # 3 tokens each
    assert taken[1] == [(other, "b")]
    assert taken[2] == [(third, "cccc")] * 2
    assert queue.tokens == 0


def test_options_keep_items_apart_and_a_large_item_is_taken_alone() -> None:
    queue, model = BatchQueue(Limits(batch_tokens=10)), Model()
    queue.add(submission(model, ["x" * 1000, "a"]))
    queue.add(submission(model, ["b"], unit=True))
    assert [len(queue.take()) for _ in range(3)] == [1, 1, 1]


def test_what_was_given_up_is_dropped() -> None:
    queue, model = BatchQueue(Limits()), Model()
    gone, kept = submission(model, ["a"] * 5), submission(model, ["b"])
    queue.add(gone)
    queue.add(kept)
    gone.give_up()
    assert [work.submission for work in queue.take()] == [kept]
    assert queue.tokens == 0


def test_a_batch_that_is_given_up_while_it_is_taken_does_not_end_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, model = BatchQueue(Limits()), Model()
    gone, kept = submission(model, ["a"], seed=1), submission(model, ["b"], seed=2)
    queue.add(gone)
    queue.add(kept)
    drop = queue._drop_unwanted

    def drop_then_give_up() -> None:
        drop()
        gone.give_up()

    monkeypatch.setattr(queue, "_drop_unwanted", drop_then_give_up)
    assert [work.submission for work in queue.take()] == [kept]


def test_the_queue_is_bounded_by_tokens_and_by_time() -> None:
    queue, model = BatchQueue(Limits(queued_tokens=100, waiting=0.5)), Model()
    queue.add(submission(model, ["x" * 4000]))  # whatever its size, if nothing waits
    with pytest.raises(Refusal, match="too busy"):
        queue.add(submission(model, ["a"]))
    batch = queue.take()
    queue.observe(batch, seconds=batch[0].cost * 1.0)  # a second for each token
    queue.add(submission(model, ["a"]))
    with pytest.raises(Refusal, match="too busy"):
        queue.add(submission(model, ["a"]))
    queue.take()
    queue.add(submission(model, ["a"]))
    queue.close()
    with pytest.raises(Refusal, match="stopping"):
        queue.add(submission(model, ["a"]))
    assert len(queue.take()) == 1, "what was accepted is computed"
    assert queue.take() == []


@contextmanager
def workers(monkeypatch: pytest.MonkeyPatch, run: Any, **limits: Any) -> Iterator[BatchWorkers]:
    monkeypatch.setitem(batching.OPERATIONS, "echo", Operation("echo", run))
    made = BatchWorkers(2, Limits(**limits), Metrics())
    yield made
    made.stop()


def test_an_error_is_that_of_its_own_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a batch that fails, the others are computed alone."""

    def run(model: Any, items: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        if "bad" in items:
            raise AbilityError("this item is bad.")
        return [f"{item}!" for item in items]

    async def ask(made: BatchWorkers) -> list[Any]:
        model = Model()
        asked = [made.run(submission(model, [item, "x"])) for item in ("a", "bad", "b", "c", "bad", "d")]
        return await asyncio.gather(*asked, return_exceptions=True)

    with workers(monkeypatch, run) as made:
        for _ in range(20):
            found = asyncio.run(ask(made))
            good = [one for one in found if not isinstance(one, Refusal)]
            assert good == [["a!", "x!"], ["b!", "x!"], ["c!", "x!"], ["d!", "x!"]]
            assert [(one.status, one.message) for one in found if isinstance(one, Refusal)] == [
                (422, "this item is bad.")
            ] * 2


@pytest.mark.parametrize("batched", [(), ("echo",)])
def test_threads_survive_every_error(
    batched: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Panic(BaseException):
        pass

    errors: list[BaseException] = [Panic("secret text"), ValueError("secret text"), SystemExit(1)]

    def run(model: Any, items: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        raise errors[int(items[0])]

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    async def ask(made: BatchWorkers, number: int) -> Any:
        return await asyncio.gather(made.run(submission(Model(batched=batched), [str(number)])), return_exceptions=True)

    with workers(monkeypatch, run, deadline=10.0) as made:
        for number in (0, 1, 2) * 3:
            (found,) = asyncio.run(ask(made, number))
            assert isinstance(found, Refusal)
            assert found.status == 500
            assert "secret" not in found.message
        monkeypatch.setattr(made.queue, "observe", fail)
        for _ in range(4):
            asyncio.run(ask(made, 1))
        assert all(thread.is_alive() for thread in made._threads)
    assert "secret" not in capsys.readouterr().err


def test_a_deadline_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    release = threading.Event()

    def run(model: Any, items: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        release.wait(10)
        return list(items)

    with workers(monkeypatch, run, deadline=0.2) as made:
        late = submission(Model(), ["a"])
        with pytest.raises(Refusal, match=r"no answer within 0\.2 seconds"):
            asyncio.run(made.run(late))
        assert not late.is_wanted
        release.set()
