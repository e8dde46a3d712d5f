"""N-gram models to ARPA files and back, and a check that the probabilities of a file sum to 1."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from firth.artifact.formats import _arpa_kernels as kernels
from firth.artifact.formats.arpa_reading import SPECIAL_NAMES, UNKNOWN_ALIAS, Arpa, read_arpa
from firth.artifact.formats.words import encode_words, words_tokenizer
from firth.artifact.models import save_imported
from firth.cores import in_order
from firth.counts.estimate import dequantise
from firth.counts.ngram import NgramModel, NgramRecipe, backs_off_to_uniform
from firth.counts.trie import Trie
from firth.errors import AbilityError, ArtifactError, OutputError, reading
from firth.files import new_file
from firth.lm.language_model import UnknownWordModel
from firth.progress import progress
from firth.tokens.tokenizer import MASK, PAD, UNK

__all__ = ["Arpa", "export_arpa", "import_arpa", "read_arpa", "verify_arpa", "write_arpa"]

TOLERANCE = np.array([1e-3, 5e-6])
"""Allowed deviation of the sum from 1, and how much more per unit of the back-off weight.

Seven digits of a logarithm give a probability to about 1e-6; a large back-off weight multiplies the rounding error of a
small difference of large sums.
"""
_BLOCK = 1 << 16  # n-grams written, or histories checked, at once
_COMPRESSION = 1  # of 9: a tenth larger than level 6, and six times as fast
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # no name and no time, so that equal models give equal bytes
_GZIP_LAST_BLOCK = b"\x03\0"

Floats = npt.NDArray[Any]


def export_arpa(model: Any, path: Path) -> dict[str, Any]:
    """Write a back-off n-gram model as an ARPA file."""
    if not isinstance(model, NgramModel):
        raise AbilityError("ARPA holds n-gram models only: export a model such as mkn5.")
    if model.trie.order > 1 and (backs_off_to_uniform(model.recipe) or model.church_gale.bucket_logp.size):
        raise AbilityError(
            f"ARPA cannot hold this {model.recipe.smoothing} model, which does not back off to shorter histories: "
            "train with another smoothing, such as witten-bell."
        )
    logp = dequantise(model.trie, model.logp, model.codebooks) if model.codebooks.size else model.logp
    sizes = write_arpa(path, model.trie, logp, model.bow, model.tokenizer.vocabulary)
    return {"order": len(sizes), "ngrams": sizes, "vocabulary": sizes[0]}


def write_arpa(path: Path, trie: Trie, logp: Floats, bow: Floats, vocabulary: list[str]) -> list[int]:
    """Write a back-off model as an ARPA file, gzip if the name ends with .gz, completely or not at all.

    `logp` has the natural log-probability of every node, `bow` the natural logarithm of the back-off weight of every
    node below the highest order. `<pad>` and `<mask>` are left out. A unigram model gets an empty section of bigrams,
    since KenLM reads no lower order. Returns the number of n-grams of each order.
    """
    _check_model(path, trie, logp, bow)
    words = encode_words(path, [*SPECIAL_NAMES.values(), *vocabulary[len(SPECIAL_NAMES) :]], taken=[UNKNOWN_ALIAS])
    pool, lengths = np.frombuffer(b"".join(words), dtype=np.uint8), [len(word) for word in words]
    bounds = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    sizes = [int(size) for size in np.diff(trie.levels)] + [0] * (trie.order == 1)
    sizes[0] -= 2  # <pad> and <mask>
    is_gzip = path.name.endswith(".gz")

    def format_block(block: tuple[bytes, int, int]) -> tuple[bytes, bytes, int]:
        head, begin, end = block
        text = head
        if begin < end:
            path_nodes = _path_to(trie, begin)
            text += bytes(
                kernels.write_lines(
                    begin, end, path_nodes, trie.words, trie.first, logp, bow, pool, bounds, max(lengths)
                )
            )
        if not is_gzip:
            return text, text, end - begin
        compressor = zlib.compressobj(_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)
        # A piece ends at a byte, so that others can follow.
        return text, compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH), end - begin

    checksum, size = 0, 0
    with new_file(path) as file, progress("writing", sum(sizes), "n-grams") as advance:
        file.write(_GZIP_HEADER if is_gzip else b"")
        for text, data, count in in_order(format_block, _blocks(trie, sizes)):
            file.write(data)
            checksum, size = zlib.crc32(text, checksum), size + len(text)
            advance(count)
        file.write(_GZIP_LAST_BLOCK + struct.pack("<II", checksum, size & 0xFFFFFFFF) if is_gzip else b"")
    return sizes


def _blocks(trie: Trie, sizes: list[int]) -> Iterator[tuple[bytes, int, int]]:
    """The text before each block of n-grams, and the first and last node of the block."""
    head = "\\data\\\n" + "".join(f"ngram {n}={size}\n" for n, size in enumerate(sizes, 1))
    for n in range(1, len(sizes) + 1):
        head += f"\n\\{n}-grams:\n"
        level = trie.level(n) if n <= trie.order else slice(0, 0)
        for begin in range(level.start, level.stop, _BLOCK):
            yield head.encode(), begin, min(begin + _BLOCK, level.stop)
            head = ""
    yield (head + "\n\\end\\\n").encode(), 0, 0


def _path_to(trie: Trie, node: int) -> npt.NDArray[np.int64]:
    """The nodes of all prefixes of an n-gram, the shortest first."""
    path = [node]
    while path[0] >= trie.vocab_size:
        child = trie.first.dtype.type(path[0])  # another type would make searchsorted copy the whole array
        path.insert(0, int(np.searchsorted(trie.first, child, side="right")) - 1)
    return np.array(path, dtype=np.int64)


def _check_model(path: Path, trie: Trie, logp: Floats, bow: Floats) -> None:
    if np.isin(trie.words[trie.vocab_size :], (PAD, MASK)).any():
        raise OutputError(f"cannot write {path}: ARPA has no n-grams of <pad> or <mask>; train the model again.")
    if not logp.max(initial=-np.inf) <= kernels.TOLERANCE or not bow.max(initial=-np.inf) < np.inf:  # NaN is neither
        raise OutputError(f"cannot write {path}: the model has invalid log-probabilities; check it with firth verify.")


def import_arpa(path: Path, out: Path) -> dict[str, Any]:
    """Make an artifact of an ARPA file, for space-separated text."""
    started = time.monotonic()
    arpa = read_arpa(path)
    save_imported(out, ngram_model(arpa), path, started, {"ngrams": arpa.sizes})
    return {"order": arpa.trie.order, "ngrams": arpa.sizes, "vocabulary": arpa.sizes[0]}


def ngram_model(arpa: Arpa) -> NgramModel:
    """The model of an ARPA file, with a tokenizer of its vocabulary."""
    tokenizer = words_tokenizer(arpa.vocabulary)
    recipe = NgramRecipe(
        tokenizer=tokenizer.recipe,
        order=arpa.trie.order,
        smoothing="imported",
        vocabulary="open" if arpa.logp[UNK] > -np.inf else "closed",
        precision="float32",
    )
    unknown_word_model = UnknownWordModel.train(arpa.vocabulary[MASK + 1 :])
    return NgramModel(recipe, tokenizer, "lines", arpa.trie, arpa.logp, arpa.bow, unknown_word_model)


def verify_arpa(path: Path) -> dict[str, Any]:
    """A report on an ARPA file whose structure and sums of probabilities were checked, or an `ArtifactError`.

    The probabilities of all words must sum to 1 after every history in the file.
    """
    with reading(path, "check that it is a complete ARPA file"):
        arpa = read_arpa(path)
        history, total, error = _worst_history(arpa)
    if error > 1.0:
        where = f"after {history!r}" if history else "of single words"
        raise ArtifactError(
            f"{path} is no proper model: the probabilities {where} sum to {total:.6g} instead of 1; get the file "
            "again, or estimate the model with a method that gives probabilities."
        )
    return {
        "ok": True,
        "order": arpa.trie.order,
        "ngrams": arpa.sizes,
        "vocabulary": arpa.sizes[0],
        "largest_deviation": abs(total - 1.0),
        "worst_context": history,
    }


def _worst_history(arpa: Arpa) -> tuple[str, float, float]:
    """The history with the sum of probabilities furthest from 1, that sum, and its error in units of the tolerance."""
    trie, logp, bow = arpa.trie, arpa.logp, arpa.bow
    total = float(np.exp(logp[: trie.vocab_size].astype(np.float64)).sum())
    worst = (-1, total, abs(total - 1.0) / TOLERANCE[0])

    def check(begin: int) -> tuple[int, float, float]:
        end = min(begin + _BLOCK, trie.contexts)
        found: tuple[int, float, float] = kernels.find_worst_sum(
            begin, end, trie.words, trie.first, trie.links, logp, bow, TOLERANCE
        )
        return found

    with progress("checking", trie.contexts, "histories") as advance:
        for found in in_order(check, range(0, trie.contexts, _BLOCK)):
            worst = max(worst, found, key=lambda one: one[2])
            advance(_BLOCK)
    node, total, error = worst
    words = trie.ngram(node) if node >= 0 else []
    return " ".join(arpa.vocabulary[word] for word in words), total, float(error)
