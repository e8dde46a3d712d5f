"""The Transformer against MarianMTModel of the transformers library: training on pairs, and translation.

    python bench/seq2seq.py [--steps 30] [--size tiny] [--sources 64] [--beams 4] [--threads 2]

The pairs are Multi30k's if they are beside the repository, and pairs of builtin:oracle sentences otherwise. Both train
the same weights with Adam on the same pairs, as many target tokens a step: Marian on padded batches of pairs sorted by
length, as is usual, Firth on packed rows. Tokens per second are those of both sides without padding. Then Marian gets
Firth's trained weights, and both translate the same sources with the same beams, length penalty and limit; the
number of equal outputs is printed. Each part runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from harness import make_parser, peak_kilobytes, run_child

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the weights of Marian in tests.parity
_DATA = ROOT.parent / "shared" / "data" / "generate" / "multi30k_en_de.train.tsv.gz"
_BATCH, _LR, _LIMIT, _PENALTY = 2048, 1e-3, 40, 1.0


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--sources", type=int, default=64)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--child", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        who, size, *numbers = options.child
        warnings.simplefilter("ignore")
        print(json.dumps(PARTS[who](size, *map(int, numbers)) | {"megabytes": peak_kilobytes() / 1024}))
        return
    given = (options.size, options.steps, options.sources, options.beams, options.threads)
    training = {who: run_child(__file__, who, *given) for who in ("firth", "marian")}
    for who, one in training.items():
        speed = one["tokens"] / one["seconds"]
        print(f"{who:<8} {speed:>9,.0f} tokens/s  loss {one['loss']:.3f}  {one['megabytes']:,.0f} MB")
    speeds = [one["tokens"] / one["seconds"] for one in training.values()]
    print(f"training: {speeds[0] / speeds[1]:.2f} times as fast")
    found = run_child(__file__, "generation", *given)
    print(f"firth    {found['firth']:>9.2f} s for {options.sources} sources with {options.beams} beams")
    print(f"marian   {found['marian']:>9.2f} s")
    print(
        f"generation: {found['marian'] / found['firth']:.2f} times as fast, {found['equal']} of {options.sources} equal"
    )


def prepare(size: str) -> tuple[Any, Any, Any]:
    """The recipe, tokenizer and token store of the pairs."""
    from dataclasses import replace

    from firth.recipes.nets import resize, transformer
    from firth.text.corpus import read_corpus
    from firth.text.parallel import read_parallel
    from firth.tokens.build import open_tokens

    recipe = resize(transformer(), size)
    if _DATA.exists():
        corpus: Any = read_parallel(_DATA)
    else:
        lines = list(read_corpus("builtin:oracle").sentences())
        corpus = read_corpus([[one, " ".join(one.split()[::-1])] for one in lines], layout="lines")
    tokenizer, store = open_tokens(replace(recipe.tokenizer, vocab_size=8000), corpus)
    part = replace(recipe.encoder, eps=1e-5)
    learning = replace(recipe.learning, batch=_BATCH, lr=_LR)
    recipe = replace(recipe.with_tokenizer(tokenizer.recipe), encoder=part, decoder=part, learning=learning)
    return recipe, tokenizer, store


def train_firth(size: str, steps: int, sources: int, beams: int, threads: int) -> dict[str, float]:
    import torch

    from firth.fit.batches import Cursor, vocabulary_of
    from firth.fit.loop import make_training_module, optimizer_step
    from firth.fit.optimisers import make_optimiser
    from firth.fit.parallel import make_batches

    torch.set_num_threads(threads)
    recipe, tokenizer, store = prepare(size)
    module = make_training_module(recipe, vocabulary_of(tokenizer, store), 0)
    module.train()
    batches, optimiser = make_batches(recipe, store, module.objectives, 0), make_optimiser(recipe.learning, module, 0.0)
    cursor, tokens, loss, began = Cursor(), 0, 0.0, 0.0
    for step in range(steps + 1):  # the first one is not timed
        if step == 1:
            began = time.perf_counter()
        parts, cursor = batches.step(cursor)
        losses, _ = optimizer_step(module, optimiser, parts, 0.0, _LR, 0, step)
        (loss, count), tokens = losses["seq2seq"], tokens + (step > 0) * sum(part.tokens for part in parts)
        loss /= count
    return {"tokens": tokens, "seconds": time.perf_counter() - began, "loss": loss}


def train_marian(size: str, steps: int, sources: int, beams: int, threads: int) -> dict[str, float]:
    """Padded batches of pairs of similar length, in a plain loop."""
    import numpy as np
    import torch

    from firth.fit.batches import vocabulary_of
    from firth.nets.network import build_network
    from firth.tokens.tokenizer import BOS, EOS, PAD
    from tests.parity.marian_weights import marian

    torch.set_num_threads(threads)
    recipe, tokenizer, store = prepare(size)
    model = marian(build_network(recipe, vocabulary_of(tokenizer, store), 0)).train()
    model.config.dropout = 0.1
    for module in model.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.1
            if hasattr(module, "head_dim"):
                module.dropout = 0.0  # none of attention
    pairs = [[one.tolist() for one in store.document(number)] for number in range(min(store.info.documents, 20_000))]
    limit = recipe.sequence.length
    pairs = [pair for pair in pairs if len(pair) == 2 and len(pair[0]) <= limit - 2 and len(pair[1]) <= limit - 1]
    pairs.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
    groups: list[list[Any]] = [[]]
    for pair in pairs:
        if sum(len(one[1]) + 1 for one in groups[-1]) + len(pair[1]) + 1 > _BATCH:
            groups.append([])
        groups[-1].append(pair)
    order = np.random.default_rng(0).permutation(len(groups))
    optimiser = torch.optim.Adam(model.parameters(), lr=_LR, betas=(0.9, 0.98))

    def pad(texts: list[list[int]], value: int) -> Any:
        longest = max(map(len, texts))
        return torch.tensor([text + [value] * (longest - len(text)) for text in texts])

    tokens, loss, began = 0, 0.0, 0.0
    for step in range(steps + 1):
        if step == 1:
            began = time.perf_counter()
        group = groups[order[step % len(groups)]]
        source = pad([[BOS, *one, EOS] for one, _ in group], PAD)
        labels = pad([[*two, EOS] for _, two in group], -100)
        logits = model(input_ids=source, attention_mask=(source != PAD).long(), labels=labels).logits
        made = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1)
        optimiser.zero_grad(set_to_none=True)
        made.backward()
        optimiser.step()
        loss, tokens = made.item(), tokens + (step > 0) * sum(len(one) + len(two) for one, two in group)
    return {"tokens": tokens, "seconds": time.perf_counter() - began, "loss": loss}


def generate(size: str, steps: int, sources: int, beams: int, threads: int) -> dict[str, float]:
    """Translation by a model of 20 times as many steps of training."""
    import torch

    import firth
    from firth.decoding.generate import BeamSearch
    from firth.nets.seq2seq import SourceDecoderState
    from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK
    from tests.parity.marian_weights import marian

    torch.set_num_threads(threads)
    recipe, tokenizer, store = prepare(size)
    texts = [next(iter(store.document(number))).tolist() for number in range(sources)]
    texts.sort(key=len)
    with tempfile.TemporaryDirectory() as folder:
        pairs = [[tokenizer.decode(one.tolist()) for one in store.document(number)] for number in range(5000)]
        budget = f"{20 * steps * 2 * _BATCH}tok"  # enough for texts that end
        out = Path(folder, "m")
        model: Any = firth.train(recipe, pairs, tokenizer=tokenizer, out=out, budget=budget, threads=threads)
    network = model.network
    theirs = marian(network)
    theirs.final_logits_bias[0, [PAD, BOS, MASK]] = -1e9
    longest = max(map(len, texts)) + 2
    source = torch.tensor([[BOS, *one, EOS, *[PAD] * (longest - len(one) - 2)] for one in texts])

    def ours() -> list[list[int]]:
        import numpy as np

        with torch.inference_mode():
            states = model.encode_sources([np.array(one, dtype=np.int64) for one in texts])
            search = BeamSearch(len(texts), beams, _LIMIT, length_penalty=_PENALTY, early_stopping=True)
            return [list(found[0].tokens) for found in search.run(SourceDecoderState(network, states))]

    def generated() -> list[list[int]]:
        found = theirs.generate(
            input_ids=source,
            attention_mask=(source != PAD).long(),
            num_beams=beams,
            length_penalty=_PENALTY,
            early_stopping=True,
            max_new_tokens=_LIMIT,
            suppress_tokens=[UNK],
            do_sample=False,
            **{"eos_token_id": EOS, "pad_token_id": PAD, "decoder_start_token_id": EOS},
        ).tolist()
        return [row[1 : row.index(EOS, 1) + 1] if EOS in row[1:] else row[1:] for row in found]

    results, seconds = [], []
    for function in (ours, generated):
        function()  # to warm up
        began = time.perf_counter()
        results.append(function())
        seconds.append(time.perf_counter() - began)
    equal = sum(one == two for one, two in zip(*results, strict=True))
    return {"firth": seconds[0], "marian": seconds[1], "equal": equal}


PARTS = {"firth": train_firth, "marian": train_marian, "generation": generate}

if __name__ == "__main__":
    main()
