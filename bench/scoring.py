"""Scoring sentences and filling masks: Firth against `transformers` with the same weights and threads.

    python bench/scoring.py [--sentences 10000] [--threads 2]

Networks of four layers of width 256 with 16,000 subwords are trained briefly and exported. Sentences come in the order
of the text; `transformers` runs padded batches of 32, once in that order and once sorted by length.
Pseudo-log-likelihoods mask one token at a time and are computed for every fiftieth sentence.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

import data
import firth
from firth.text.corpus import read_corpus
from harness import make_parser, timed

BATCH_SIZE = 32


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("--sentences", type=int, default=10_000)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        text = Path(name, "text.txt")
        data.write(data.english, text, 4_000_000)
        every = (line for document in read_corpus(text) for line in document.sentences)
        lines = list(itertools.islice((line for line in every if len(line.split()) > 2), options.sentences))
        for recipe, compare in (("gpt2", compare_causal), ("bert", compare_masked)):
            model, exported = train(recipe, text, Path(name, recipe), options.threads)
            compare(model, exported, lines)


def train(recipe: str, text: Path, out: Path, threads: int) -> tuple[Any, Path]:
    """The trained model and the folder of its export."""
    settings = ["tokenizer.vocab_size=16_000", *(["objectives=mlm"] if recipe == "bert" else [])]
    model = firth.train(recipe, text, out=out, size="mini", budget="8ktok", threads=threads, settings=settings)
    exported = out.with_suffix(".hf")
    firth.export_model(model, "huggingface", exported)
    return model, exported


@torch.inference_mode()
def compare_causal(model: Any, exported: Path, lines: Sequence[str]) -> None:
    """Log-probabilities of sentences."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    peer, tokenizer = AutoModelForCausalLM.from_pretrained(exported), AutoTokenizer.from_pretrained(exported)
    sequences = [[tokenizer.bos_token_id, *tokenizer(line, add_special_tokens=False)["input_ids"][:126],
                  tokenizer.eos_token_id] for line in lines]  # fmt: skip

    def score(sequences: Iterable[list[int]]) -> list[float]:
        scores: list[float] = []
        remaining = iter(sequences)
        while batch := [torch.tensor(ids) for ids in itertools.islice(remaining, BATCH_SIZE)]:
            ids = pad_sequence(batch, True, 0)
            attention_mask = pad_sequence([torch.ones_like(one) for one in batch], True, 0)
            log_probs = peer(input_ids=ids, attention_mask=attention_mask).logits.log_softmax(-1)
            token_log_probs = log_probs[:, :-1].gather(2, ids[:, 1:, None])[..., 0] * attention_mask[:, 1:]
            scores += token_log_probs.sum(1).tolist()
        return scores

    compare("log-probabilities", lambda: [one.logprob for one in model.score(lines)], score, sequences)


@torch.inference_mode()
def compare_masked(model: Any, exported: Path, lines: Sequence[str]) -> None:
    """Pseudo-log-likelihoods of sentences, then fillers of masks."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

    peer, tokenizer = AutoModelForMaskedLM.from_pretrained(exported), AutoTokenizer.from_pretrained(exported)
    few = lines[::50]
    sequences = [tokenizer(line, truncation=True, max_length=128)["input_ids"] for line in few]

    def score(sequences: Iterable[list[int]]) -> list[float]:
        scores = []
        for sequence in sequences:
            ids, positions = torch.tensor(sequence), torch.arange(1, len(sequence) - 1)
            masked = ids.repeat(len(positions), 1)
            masked[torch.arange(len(positions)), positions] = tokenizer.mask_token_id
            total = 0.0
            for batch, where in zip(masked.split(BATCH_SIZE), positions.split(BATCH_SIZE), strict=True):
                log_probs = peer(input_ids=batch).logits[torch.arange(len(where)), where].log_softmax(-1)
                total += float(log_probs.gather(1, ids[where, None]).sum())
            scores.append(total)
        return scores

    compare("pseudo-log-likelihoods", lambda: [one.logprob for one in model.score(few)], score, sequences)
    texts = [mask_middle_word(line, tokenizer.mask_token) for line in lines[::5]]
    fill_mask = pipeline("fill-mask", model=peer, tokenizer=tokenizer, top_k=5, device="cpu")

    def fill(texts: Iterable[str]) -> list[float]:
        truncation = {"truncation": True, "max_length": 128}
        filled = fill_mask(list(texts), batch_size=BATCH_SIZE, tokenizer_kwargs=truncation)
        return [one[0]["score"] for one in filled]

    compare("filled masks", lambda: [one[0][0].probability for one in model.fill_many(texts)], fill, texts)


def mask_middle_word(line: str, mask: str) -> str:
    """At most 60 words of the line, with the middle one masked."""
    words = line.split()[:60]
    words[len(words) // 2] = mask
    return " ".join(words)


def compare(
    what: str, ours: Callable[[], list[float]], theirs: Callable[[Iterable[Any]], list[float]], inputs: list[Any]
) -> None:
    """Time both, the peer also on inputs sorted by length, and print the ratios."""
    our_values, our_seconds = timed(ours)
    their_values, their_seconds = timed(lambda: theirs(inputs))
    _, sorted_seconds = timed(lambda: theirs(sorted(inputs, key=len)))
    difference = np.median(np.abs(np.array(our_values) - np.array(their_values)) / np.abs(their_values))
    print(
        f"{what}, {len(inputs):,} texts: firth {our_seconds:.1f} s, transformers {their_seconds:.1f} s"
        f" ({their_seconds / our_seconds:.2f}x), sorted {sorted_seconds:.1f} s ({sorted_seconds / our_seconds:.2f}x);"
        f" median relative difference {difference:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    main()
