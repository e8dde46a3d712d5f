"""Scores of sentences and words for masks, against `transformers` with the same weights and threads.

    python bench/scoring.py [--sentences 10000] [--threads 2]

Networks of four layers of 256 with 16,000 pieces are trained for a moment, exported, and read by both. Sentences come
in the order of the text; `transformers` reads 32 of them at a time, padded, once as they come and once sorted by
length. Pseudo-log-likelihoods hide one token after the other; only every fiftieth sentence takes part.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
import data
import firth
from firth.text.corpus import read_corpus

TOGETHER = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        text = Path(name, "text.txt")
        data.write(data.english, text, 4_000_000)
        every = (line for document in read_corpus(text) for line in document.sentences)
        lines = list(itertools.islice((line for line in every if len(line.split()) > 2), options.sentences))
        for recipe, compare in (("gpt2", causal), ("bert", masked)):
            model, exported = make(recipe, text, Path(name, recipe), options.threads)
            compare(model, exported, lines)


def make(recipe: str, text: Path, out: Path, threads: int) -> tuple[Any, Path]:
    """A network of ours, and the folder for the peer."""
    settings = ["tokenizer.vocab_size=16_000", *(["objectives=mlm"] if recipe == "bert" else [])]
    model = firth.train(recipe, text, out=out, size="mini", budget="8ktok", threads=threads, settings=settings)
    exported = out.with_suffix(".hf")
    firth.export_model(model, "huggingface", exported)
    return model, exported


@torch.inference_mode()
def causal(model: Any, exported: Path, lines: Sequence[str]) -> None:
    """Logarithms of probabilities of sentences."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    peer, tokenizer = AutoModelForCausalLM.from_pretrained(exported), AutoTokenizer.from_pretrained(exported)
    rows = [[tokenizer.bos_token_id, *tokenizer(line, add_special_tokens=False)["input_ids"][:126],
             tokenizer.eos_token_id] for line in lines]  # fmt: skip

    def theirs(rows: Iterable[list[int]]) -> list[float]:
        found: list[float] = []
        for some in batched(rows):
            ids, seen = padded(some)
            logits = peer(input_ids=ids, attention_mask=seen).logits.log_softmax(-1)
            logs = logits[:, :-1].gather(2, ids[:, 1:, None])[..., 0] * seen[:, 1:]
            found += logs.sum(1).tolist()
        return found

    tell("scores by a causal model", lines, lambda: [one.logprob for one in model.score(lines)], theirs, rows)


@torch.inference_mode()
def masked(model: Any, exported: Path, lines: Sequence[str]) -> None:
    """Pseudo-log-likelihoods, then words for masks."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

    peer, tokenizer = AutoModelForMaskedLM.from_pretrained(exported), AutoTokenizer.from_pretrained(exported)
    few = lines[::50]
    rows = [tokenizer(line, truncation=True, max_length=128)["input_ids"] for line in few]

    def theirs(rows: Iterable[list[int]]) -> list[float]:
        found = []
        for row in rows:
            ids, places = torch.tensor(row), torch.arange(1, len(row) - 1)
            hidden = ids.repeat(len(places), 1)
            hidden[torch.arange(len(places)), places] = tokenizer.mask_token_id
            logs = 0.0
            for some, where in zip(hidden.split(TOGETHER), places.split(TOGETHER), strict=True):
                logits = peer(input_ids=some).logits[torch.arange(len(where)), where].log_softmax(-1)
                logs += float(logits.gather(1, ids[where, None]).sum())
            found.append(logs)
        return found

    tell("pseudo-log-likelihoods", few, lambda: [one.logprob for one in model.score(few)], theirs, rows)
    texts = [hide(line, tokenizer.mask_token) for line in lines[::5]]
    filler = pipeline("fill-mask", model=peer, tokenizer=tokenizer, top_k=5, device="cpu")

    def filled(rows: Iterable[str]) -> list[float]:
        given = filler(list(rows), batch_size=TOGETHER, tokenizer_kwargs={"truncation": True, "max_length": 128})
        return [one[0]["score"] for one in given]

    tell("words for masks", texts, lambda: [one[0][0].probability for one in model.fill_many(texts)], filled, texts)


def hide(line: str, mask: str) -> str:
    """The line with its middle word hidden, not longer than a network of this size reads."""
    words = line.split()[:60]
    words[len(words) // 2] = mask
    return " ".join(words)


def tell(
    what: str,
    lines: Sequence[str],
    ours: Callable[[], list[float]],
    theirs: Callable[[Iterable[Any]], list[float]],
    rows: list[Any],
) -> None:
    """Times all and prints a line."""
    ours_value, ours_time = timed(ours)
    theirs_value, theirs_time = timed(lambda: theirs(rows))
    _, sorted_time = timed(lambda: theirs(sorted(rows, key=len)))
    apart = np.median(np.abs(np.array(ours_value) - np.array(theirs_value)) / np.abs(theirs_value))
    print(
        f"{what}, {len(lines):,} texts: firth {ours_time:.1f} s, transformers {theirs_time:.1f} s"
        f" ({theirs_time / ours_time:.2f}x), sorted {sorted_time:.1f} s ({sorted_time / ours_time:.2f}x);"
        f" median relative difference {apart:.1e}",
        flush=True,
    )


def timed(run: Callable[[], list[float]]) -> tuple[list[float], float]:
    began = time.perf_counter()
    return run(), time.perf_counter() - began


def batched(rows: Iterable[list[int]]) -> Iterable[list[list[int]]]:
    rows = iter(rows)
    while some := list(itertools.islice(rows, TOGETHER)):
        yield some


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    tensors = [torch.tensor(row) for row in rows]
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(tensors, True, 0), pad([torch.ones_like(one) for one in tensors], True, 0)


if __name__ == "__main__":
    main()
