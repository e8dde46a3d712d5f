"""An LSTM language model against a plain loop over `torch.nn.LSTM` with a full softmax: the same passes over a text.

    python bench/lstm.py [--epochs 2] [--threads 2]

The text is the Penn Treebank if it lies beside the repository, and builtin:pydoc otherwise. Both have one layer of the
same width, the same dropout, the same optimiser and rate, streams of 64 tokens that carry their state on, and see every
token as often; Firth predicts through an adaptive softmax. Each runs in a process of its own. Perplexity is that of the
test text as one stream, ends of sentences counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import outputs

WIDTH, LENGTH, ROWS, RATE, DROPOUT = 300, 64, 32, 3e-3, 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--child", choices=list(CHILDREN), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(CHILDREN[options.child](options)))
        return
    print(f"{'':<16}{'seconds':>9}{'tokens/s':>10}{'perplexity':>12}{'MB':>8}")
    found = {}
    for who in CHILDREN:
        command = [sys.executable, "-W", "ignore", __file__, "--child", who]
        command += ["--epochs", str(options.epochs), "--threads", str(options.threads)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        one = found[who] = json.loads(done.stdout.splitlines()[-1])
        speed = one["tokens"] / one["seconds"]
        print(f"{who:<16}{one['seconds']:>9.1f}{speed:>10,.0f}{one['perplexity']:>12.1f}{one['megabytes']:>8,.0f}")
    ratio = found["torch.nn.LSTM"]["seconds"] / found["firth"]["seconds"]
    print(f"{ratio:.2f} times as fast for the same {options.epochs} passes")


def ours(options: argparse.Namespace) -> dict[str, float]:
    """Trains by Firth."""
    import firth
    from firth.abilities import total

    text = outputs.read_text()
    with tempfile.TemporaryDirectory() as name:
        words, out = Path(name, "words"), Path(name, "lstm")
        settings = ["split=space", "vocab_size=10_010"]
        firth.train("words", text.train, out=words, layout=text.layout, settings=settings, reload=False)
        model: Any = firth.train(
            "lstm",
            text.train,
            out=out,
            layout=text.layout,
            tokenizer=words,
            threads=options.threads,
            settings=[
                *(f"embedding.width={WIDTH}", f"encoder.width={WIDTH}", f"rows.length={LENGTH}"),
                *(f"embedding.dropout={DROPOUT}", f"encoder.dropout={DROPOUT}", "output.kind=adaptive"),
                *(f"learning.batch={ROWS * LENGTH}", f"learning.rate={RATE}", "learning.warmup=0.05"),
                *("learning.beta2=0.999", "learning.decay=0", f"learning.epochs={options.epochs}"),
            ],
        )
        spent = firth.info(out)["budget"]["spent"]
        reached = total(model.score(text.test, together=True)).perplexity
    return {"seconds": spent["seconds"], "tokens": spent["tokens"], "perplexity": reached, "megabytes": megabytes()}


def theirs(options: argparse.Namespace) -> dict[str, float]:
    """Trains by a plain loop."""
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    train, test, words = tokens_of()
    embedding, lstm, output = (
        nn.Embedding(words, WIDTH),
        nn.LSTM(WIDTH, WIDTH, batch_first=True),
        nn.Linear(WIDTH, words),
    )
    nn.init.uniform_(embedding.weight, -0.1, 0.1)
    drop, parts = nn.Dropout(DROPOUT), nn.ModuleList([embedding, lstm, output])
    optimiser = torch.optim.Adam(parts.parameters(), RATE, fused=True)
    streams = torch.tensor(train[: len(train) // ROWS * ROWS]).view(ROWS, -1)
    steps, number = options.epochs * math.ceil((streams.shape[1] - 1) / LENGTH), 0
    began, state = time.perf_counter(), None
    for _ in range(options.epochs):
        for begin in range(0, streams.shape[1] - 1, LENGTH):
            rate = min(1.0, (number + 1) / (0.05 * steps)) * min(1.0, (steps - number) / (0.95 * steps))
            optimiser.param_groups[0]["lr"] = RATE * rate
            ids, targets = streams[:, begin : begin + LENGTH], streams[:, begin + 1 : begin + LENGTH + 1]
            ids = ids[:, : targets.shape[1]]
            states, state = lstm(drop(embedding(ids)), state)
            state = tuple(one.detach() for one in state)
            loss = cross_entropy(output(drop(states)).flatten(0, 1), targets.flatten())
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parts.parameters(), 1.0)
            optimiser.step()
            number += 1
    seconds = time.perf_counter() - began
    parts.eval()
    with torch.no_grad():
        state, whole, ids = None, 0.0, torch.tensor([test])
        for begin in range(0, ids.shape[1] - 1, 1000):
            targets = ids[0, begin + 1 : begin + 1001]
            states, state = lstm(embedding(ids[:, begin : begin + len(targets)]), state)
            whole += float(cross_entropy(output(states[0]), targets, reduction="sum"))
    perplexity = math.exp(whole / (len(test) - 1))
    return {
        "seconds": seconds,
        "tokens": options.epochs * len(train),
        "perplexity": perplexity,
        "megabytes": megabytes(),
    }


def tokens_of() -> tuple[list[int], list[int], int]:
    """Training text and test text as streams of ids, an end after each sentence, and how many words there are."""
    from firth.text.corpus import read_corpus

    text = outputs.read_text()
    lines = [line for document in read_corpus(text.train, layout=text.layout) for line in document.sentences]
    ids: dict[str, int] = {"</s>": 0, "<unk>": 1}
    train = [ids.setdefault(word, len(ids)) for line in lines for word in [*line.split(), "</s>"]]
    test = [0, *(ids.get(word, 1) for line in text.test for word in [*line.split(), "</s>"])]
    return train, test, len(ids)


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


CHILDREN = {"torch.nn.LSTM": theirs, "firth": ours}


if __name__ == "__main__":
    main()
