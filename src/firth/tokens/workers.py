"""Workers: the same job on all cores, replies in the order of the blocks.

Work that kernels do is done by threads. Work that Python does is done by processes, which are started as
`python -m firth.tokens.workers` and spoken to through pipes: lengths, JSON and raw bytes. So a script that uses Firth
needs no `__main__` guard, nothing is pickled, and a worker that dies is an end of file.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import re
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import IO, BinaryIO, Protocol

from firth.cores import cores, in_order
from firth.errors import FirthError, WorkerError
from firth.text.layout import Block
from firth.tokens.jobs import JOBS, Job, Reply, Setup

_SMALL = 3  # blocks that are not worth starting workers for
_SAMPLE = 1 << 16  # bytes of a block that tell whether it is Chinese
_HAN_BYTE = re.compile(rb"[\xe3-\xe9]")


def run_job(setup: Setup, blocks: Iterable[Block], threads: int | None = None) -> Iterator[Reply]:
    """The replies to all blocks, in order; each tells the number of the `worker` that gave it."""
    threads = cores(threads)
    blocks = iter(blocks)
    first = list(islice(blocks, _SMALL + 1))
    blocks = chain(first, blocks)
    if threads == 1 or len(first) <= _SMALL:
        job = JOBS[setup.job](setup)
        for block in blocks:
            yield _signed(job.block(block), 0)
        return
    make = Process if _is_slow(setup, first) else LocalWorker
    workers: list[Worker] = [make(setup) for _ in range(threads)]
    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(threads):
        free.put(number)

    def handle(block: Block) -> Reply:
        number = free.get()
        try:
            return _signed(workers[number].handle(block), number)
        finally:
            free.put(number)  # a dead one too: whoever takes it next learns of it instead of waiting

    try:
        yield from in_order(handle, blocks, threads)
    finally:
        for worker in workers:
            worker.stop()


def told(blocks: Iterable[Block], advance: Callable[[float], None]) -> Iterator[Block]:
    """The same blocks; `advance` is told the bytes of each when the next one is asked for."""
    for block in blocks:
        yield block
        advance(len(block.data))


def _is_slow(setup: Setup, blocks: Iterable[Block]) -> bool:
    """Whether Python does the work, so that threads would wait for each other: splitting or segmenting sentences."""
    if setup.layout != "lines" or setup.job == "chunks":
        return True
    if setup.recipe.segmenter == "space" or (setup.job == "cut" and not setup.recipe.separable):
        return False
    samples = [block.data[:_SAMPLE] for block in blocks]
    return 50 * sum(len(_HAN_BYTE.findall(sample)) for sample in samples) > sum(map(len, samples))


def _signed(reply: Reply, worker: int) -> Reply:
    reply.facts["worker"] = worker
    return reply


class Worker(Protocol):
    """Does one job."""

    def handle(self, block: Block) -> Reply: ...

    def stop(self) -> None: ...


class LocalWorker:
    """A worker in this process."""

    def __init__(self, setup: Setup) -> None:
        self._job = JOBS[setup.job](setup)

    def handle(self, block: Block) -> Reply:
        return self._job.block(block)

    def stop(self) -> None:
        pass


class Process:
    """A worker that is a process; the first thing to ask of it is to get ready."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._ready = False
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

    def handle(self, block: Block) -> Reply:
        if not self._ready:
            self.ask(self._setup.to_reply())
            self._ready = True
        return self.ask(Reply({"packed": block.packed}, [block.data]))

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


def _send(stream: IO[bytes], reply: Reply) -> None:
    arrays = [memoryview(array).cast("B") if len(array) else b"" for array in reply.arrays]
    head = json.dumps([reply.facts, [len(array) for array in arrays]]).encode()
    stream.write(struct.pack("<Q", len(head)) + head)
    for array in arrays:
        stream.write(array)
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
        arrays.append(bytes(data[begin : begin + size]))  # copied, and so aligned
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
            else:
                reply = job.block(Block(request.arrays[0], request.facts["packed"]))
        except FirthError as error:
            reply = Reply({"error": str(error)}, [])
        _send(replies, reply)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    gc.disable()  # jobs make millions of small objects and no cycles: looking for some takes a fifth of the time
    _serve(sys.stdin.buffer, sys.stdout.buffer)
