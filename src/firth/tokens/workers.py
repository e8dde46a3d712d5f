"""Worker pool: the same job on all cores, results in the order of the blocks.

Jobs that run in kernels use threads. Jobs that run in Python use processes, started as `python -m firth.tokens.workers`
and connected by pipes (lengths, JSON and raw bytes). So a script that uses Firth needs no `__main__` guard, nothing is
pickled, and a worker that dies is an end of file.
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
from contextlib import suppress
from dataclasses import asdict
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from firth.cores import cores, in_order
from firth.errors import FirthError, WorkerError
from firth.text.layout import Layout, TextBlock
from firth.text.segment import make_segmenter
from firth.tokens.encoder import Chunker, TextEncoder
from firth.tokens.lines import Lines, read_block
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import id_dtype
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.word_counts import WordCounter

_MIN_BLOCKS = 4  # fewer are not worth starting workers for
_SAMPLE = 1 << 16  # bytes of a block from which Chinese is detected
_HAN_BYTE = re.compile(rb"[\xe3-\xe9]")
_MAX_CHUNK_BYTES = 1 << 26  # of distinct chunks in a job; then it numbers them anew


class Message(NamedTuple):
    """A JSON object and arrays, as sent through a pipe in both directions."""

    facts: dict[str, Any]
    arrays: list[Any]  # contiguous; received ones are bytes


class JobConfig(NamedTuple):
    job: str
    recipe: TokenizerRecipe
    layout: Layout
    tokenizer: bytes = b""
    dictionary: Path | None = None
    loaded: Tokenizer | None = None  # the tokenizer itself, for workers in this process
    capitals: bool = False  # whether to tell capital letters

    @classmethod
    def of(cls, job: str, tokenizer: Tokenizer, layout: Layout = "lines") -> JobConfig:
        return cls(job, tokenizer.recipe, layout, tokenizer.data, tokenizer.dictionary, tokenizer)

    def to_message(self) -> Message:
        dictionary = str(self.dictionary) if self.dictionary else None
        facts = {"job": self.job, "recipe": asdict(self.recipe), "layout": self.layout, "dictionary": dictionary}
        return Message(facts | {"capitals": self.capitals}, [self.tokenizer])

    @classmethod
    def from_message(cls, message: Message) -> JobConfig:
        facts = message.facts
        dictionary = Path(facts["dictionary"]) if facts["dictionary"] else None
        recipe = TokenizerRecipe(**facts["recipe"])
        return cls(facts["job"], recipe, facts["layout"], message.arrays[0], dictionary, capitals=facts["capitals"])

    def load_tokenizer(self) -> Tokenizer:
        return self.loaded or Tokenizer(self.tokenizer, self.recipe, self.dictionary)


Worker = Callable[[TextBlock], Message]


def chunk_job(config: JobConfig) -> Worker:
    """Splits blocks into chunks; returns sentences, this worker's chunk numbers, and new chunks from `first` on.

    Among the facts is the number of words, which does not depend on the tokenizer.
    """
    # Where a word break must not separate chunks, the text is left unsegmented.
    name = config.recipe.segmenter if config.recipe.separable else "space"
    segmenter = make_segmenter(name, config.dictionary)
    chunker = Chunker(config.recipe, segmenter)
    table = chunker.table
    counter = WordCounter(chunker, segmenter)

    def process(block: TextBlock) -> Message:
        nonlocal counter
        if table.size > _MAX_CHUNK_BYTES:
            table.clear()
            counter = WordCounter(chunker, segmenter)
        first = len(table)
        lines = read_block(block, config.layout, chunker.flags_double_space)
        chunks = chunker.split(lines)
        facts = {"first": first, "words": int(counter.count(lines, chunks).sum())}
        return _sentences_message(lines, facts, [chunks, table.lines(first).copy()])

    return process


def encode_job(config: JobConfig) -> Worker:
    """Encodes blocks; returns sentences, their ids, word starts and lengths; the facts have the number of words."""
    tokenizer = config.load_tokenizer()
    encoder = TextEncoder(tokenizer, config.capitals)
    dtype = id_dtype(len(tokenizer))

    def process(block: TextBlock) -> Message:
        lines = read_block(block, config.layout, encoder.chunker.flags_double_space)
        encoded, counts = encoder.encode_lines_counted(lines)
        arrays: list[Any] = [encoded.ids.astype(dtype), encoded.word_starts, encoded.lengths]
        if config.capitals:
            arrays.append(encoded.capitals)
        return _sentences_message(lines, {"words": int(counts.words.sum())}, arrays)

    return process


def encode_chunks_job(config: JobConfig) -> Worker:
    """Encodes blocks of one chunk per line; returns lengths, ids and word starts."""
    encode = TextEncoder(config.load_tokenizer()).encode_chunks
    return lambda block: Message({}, [*encode(block.data.decode().split("\n")[:-1])])


JOBS: dict[str, Callable[[JobConfig], Worker]] = {"cut": chunk_job, "encode": encode_job, "chunks": encode_chunks_job}


def _sentences_message(lines: Lines, facts: dict[str, Any], arrays: list[Any]) -> Message:
    return Message({"ends_document": lines.ends_document, **facts}, [lines.text, lines.starts_document, *arrays])


def run_job(config: JobConfig, blocks: Iterable[TextBlock], threads: int | None = None) -> Iterator[Message]:
    """The results for all blocks, in order; each has the number of its `worker`."""
    threads = cores(threads)
    blocks = iter(blocks)
    first = list(islice(blocks, _MIN_BLOCKS))
    if len(first) < _MIN_BLOCKS:
        threads = 1
    in_processes = threads > 1 and _needs_processes(config, first)
    make: Callable[[JobConfig], Worker] = WorkerProcess if in_processes else JOBS[config.job]
    workers = [make(config) for _ in range(threads)]
    free = queue.SimpleQueue[int]()
    for number in range(threads):
        free.put(number)

    def process(block: TextBlock) -> Message:
        number = free.get()
        try:
            result = workers[number](block)
        finally:
            free.put(number)  # even a dead worker, so that the next caller gets an error instead of waiting
        result.facts["worker"] = number
        return result

    blocks = chain(first, blocks)
    try:
        yield from map(process, blocks) if threads == 1 else in_order(process, blocks, threads)
    finally:
        for worker in workers:
            if isinstance(worker, WorkerProcess):
                worker.stop()


def with_progress(blocks: Iterable[TextBlock], advance: Callable[[float], None]) -> Iterator[TextBlock]:
    """The same blocks; `advance` is called with the bytes of each when the next one is requested."""
    for block in blocks:
        yield block
        advance(len(block.data))


def _needs_processes(config: JobConfig, blocks: Iterable[TextBlock]) -> bool:
    """Whether the job holds the interpreter lock: splitting or segmenting sentences in Python.

    Chinese is segmented even where the tokenizer does not ask for it, to count its words.
    """
    if config.layout != "lines" or config.job == "chunks":
        return True
    samples = [block.data[:_SAMPLE] for block in blocks]
    return 50 * sum(len(_HAN_BYTE.findall(sample)) for sample in samples) > sum(map(len, samples))


class WorkerProcess:
    """A worker in a process of its own; it receives its configuration with the first block."""

    def __init__(self, config: JobConfig) -> None:
        self._config = config
        self._is_ready = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        # There is a worker for each core: threads inside them would compete.
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "NUMBA_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "firth.tokens.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
        )

    def __call__(self, block: TextBlock) -> Message:
        if not self._is_ready:
            self.request(self._config.to_message())
            self._is_ready = True
        return self.request(Message({"packed": block.packed}, [block.data]))

    def request(self, message: Message) -> Message:
        """The worker's response; raises `WorkerError` with the reason if there is none."""
        assert self._process.stdin
        assert self._process.stdout
        try:
            _send(self._process.stdin, message)
            response = _receive(self._process.stdout)
        except (OSError, ValueError):
            response = None
        if response is None:
            raise WorkerError(self._cause_of_death())
        if "error" in response.facts:
            raise WorkerError(response.facts["error"])
        return response

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()

    def _cause_of_death(self) -> str:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return "a worker process closed its pipe without a word: run again with --threads 1 to see why."
        if code == -signal.SIGKILL:
            return "a worker process was killed, most likely for want of memory: run again with fewer --threads."
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"exit code {code}"
        return f"a worker process died ({reason}): run again with --threads 1 to see more."


def _send(stream: IO[bytes], message: Message) -> None:
    arrays = [memoryview(array).cast("B") if len(array) else b"" for array in message.arrays]
    head = json.dumps([message.facts, [len(array) for array in arrays]]).encode()
    stream.write(struct.pack("<Q", len(head)) + head)
    for array in arrays:
        stream.write(array)
    stream.flush()


def _receive(stream: IO[bytes]) -> Message | None:
    """The next message, or None if the other side has closed the pipe."""
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
    return Message(facts, arrays)


def _serve(requests: IO[bytes], responses: IO[bytes]) -> None:
    worker: Worker | None = None
    while (request := _receive(requests)) is not None:
        try:
            if worker is None:
                config = JobConfig.from_message(request)
                worker = JOBS[config.job](config)
                response = Message({}, [])
            else:
                response = worker(TextBlock(request.arrays[0], request.facts["packed"]))
        except FirthError as error:
            response = Message({"error": error.message}, [])
        _send(responses, response)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    gc.disable()  # jobs make millions of small objects and no cycles: collection would take a fifth of the time
    _serve(sys.stdin.buffer, sys.stdout.buffer)
