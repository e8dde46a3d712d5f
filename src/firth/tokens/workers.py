"""Worker processes: the same job on all cores, replies in the order of the blocks.

Workers are started as `python -m firth.tokens.workers` and spoken to through pipes: lengths, JSON and raw bytes. So a
script that uses Firth needs no `__main__` guard, nothing is pickled, and a worker that dies is an end of file.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import signal
import struct
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import IO, BinaryIO

from firth.errors import FirthError, WorkerError
from firth.text.document import RawDocument
from firth.tokens.jobs import JOBS, Job, Reply, Setup

_SMALL = 3  # blocks that are not worth starting processes for


def run_job(setup: Setup, blocks: Iterable[list[RawDocument]], threads: int | None = None) -> Iterator[Reply]:
    """The replies to all blocks, in order, then what the workers had held back."""
    threads = threads or os.cpu_count() or 1
    blocks = iter(blocks)
    first = list(islice(blocks, _SMALL + 1))
    if threads == 1 or len(first) <= _SMALL:
        yield from _run_here(JOBS[setup.job](setup), chain(first, blocks))
    else:
        yield from _run_in_workers(setup, chain(first, blocks), threads)


def told(blocks: Iterable[list[RawDocument]], advance: Callable[[float], None]) -> Iterator[list[RawDocument]]:
    """The same blocks; `advance` is told the bytes of each when the next one is asked for."""
    for block in blocks:
        yield block
        advance(sum(len(document.text.encode()) for document in block))


def _run_here(job: Job, blocks: Iterable[list[RawDocument]]) -> Iterator[Reply]:
    for block in blocks:
        yield job.block(block)
    if (rest := job.finish()) is not None:
        yield rest


def _run_in_workers(setup: Setup, blocks: Iterable[list[RawDocument]], threads: int) -> Iterator[Reply]:
    workers = [Worker() for _ in range(threads)]
    free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    for worker in workers:
        free.put(worker)

    def handle(block: list[RawDocument]) -> Reply:
        worker = free.get()
        try:
            if not worker.ready:
                worker.ask(setup.to_reply())
                worker.ready = True
            return worker.ask(_pack(block))
        finally:
            free.put(worker)  # a dead one too: whoever takes it next learns of it instead of waiting

    # One thread for each worker, which only waits on its pipes.
    with ThreadPoolExecutor(threads) as executor:
        try:
            pending: deque[Future[Reply]] = deque()
            for block in blocks:
                pending.append(executor.submit(handle, block))
                if len(pending) > 2 * threads:
                    yield pending.popleft().result()
            for future in pending:
                yield future.result()
            for worker in filter(lambda worker: worker.ready, workers):
                rest = worker.ask(Reply({"finish": True}, []))
                if rest.arrays:
                    yield rest
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.stop()


class Worker:
    """A process that does one job; the first thing to ask of it is to get ready."""

    def __init__(self) -> None:
        self.ready = False
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        # Both cores have a worker each: threads inside them would only get in each other's way.
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "NUMBA_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "firth.tokens.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=environment,
        )

    def ask(self, request: Reply) -> Reply:
        """The worker's answer; raises `WorkerError` with the reason if it cannot give one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _send(self._process.stdin, request)
            reply = _receive(self._process.stdout)
        except (OSError, ValueError):
            reply = None
        if reply is None:
            raise WorkerError(self._cause_of_death())
        if "error" in reply.facts:
            raise WorkerError(reply.facts["error"])
        return reply

    def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._complaints):
            try:
                if stream is not None:
                    stream.close()
            except BrokenPipeError:
                pass

    def _cause_of_death(self) -> str:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "a worker process closed its pipe without a word: run again with --threads 1 to see why."
        if code == -signal.SIGKILL:
            return "a worker process was killed, most likely for want of memory: run again with fewer --threads."
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace").strip().splitlines()
        reason = said[-1] if said else f"exit code {code}"
        return f"a worker process died ({reason}): run again with --threads 1 to see more."


def _pack(block: Sequence[RawDocument]) -> Reply:
    facts = {"sources": [document.source for document in block], "continues": [d.continues for d in block]}
    return Reply(facts, [document.text.encode() for document in block])


def _unpack(request: Reply) -> list[RawDocument]:
    texts = (text.decode() for text in request.arrays)
    return list(map(RawDocument, texts, request.facts["sources"], request.facts["continues"]))


def _send(stream: IO[bytes], reply: Reply) -> None:
    head = json.dumps([reply.facts, [len(array) for array in reply.arrays]]).encode()
    stream.write(struct.pack("<Q", len(head)) + head)
    stream.write(b"".join(reply.arrays))
    stream.flush()


def _receive(stream: IO[bytes]) -> Reply | None:
    """The next message, or None where the other side has closed the pipe."""
    length = stream.read(8)
    if len(length) < 8:
        return None
    facts, sizes = json.loads(stream.read(struct.unpack("<Q", length)[0]))
    data = memoryview(stream.read(sum(sizes)))
    if len(data) < sum(sizes):
        return None
    arrays, begin = [], 0
    for size in sizes:
        arrays.append(bytes(data[begin : begin + size]))
        begin += size
    return Reply(facts, arrays)


def _serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Does what the parent asks until it closes the pipe."""
    job: Job | None = None
    while (request := _receive(requests)) is not None:
        try:
            if job is None:
                setup = Setup.from_reply(request)
                job = JOBS[setup.job](setup)
                reply = Reply({}, [])
            elif "finish" in request.facts:
                reply = job.finish() or Reply({}, [])
            else:
                reply = job.block(_unpack(request))
        except FirthError as error:
            reply = Reply({"error": str(error)}, [])
        _send(replies, reply)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    gc.disable()  # jobs make millions of small objects and no cycles: looking for some takes a fifth of the time
    _serve(sys.stdin.buffer, sys.stdout.buffer)
