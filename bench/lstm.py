"""An LSTM language model against a plain loop over `torch.nn.LSTM` with a full softmax: the same epochs over a text.

    python bench/lstm.py [--epochs 2] [--threads 2]

The text is the Penn Treebank if it is beside the repository, and builtin:pydoc otherwise. Both have one layer of the
same width and the same dropout, optimiser, learning rate and number of epochs, and carry the state over between
segments of 64 tokens; Firth predicts through an adaptive softmax. Each runs in a process of its own. Perplexity is that
of the test text as one stream, including ends of sentences.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import outputs
from harness import make_parser, peak_kilobytes, run_child

WIDTH, LENGTH, BATCH_SIZE, LR, DROPOUT = 300, 64, 32, 3e-3, 0.2


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        who, *numbers = options.child
        print(json.dumps(TRAINERS[who](*map(int, numbers)) | {"megabytes": peak_kilobytes() / 1024}))
        return
    print(f"{'':<16}{'seconds':>9}{'tokens/s':>10}{'perplexity':>12}{'MB':>8}")
    found = {}
    for who in TRAINERS:
        one = found[who] = run_child(__file__, who, options.epochs, options.threads)
        speed = one["tokens"] / one["seconds"]
        print(f"{who:<16}{one['seconds']:>9.1f}{speed:>10,.0f}{one['perplexity']:>12.1f}{one['megabytes']:>8,.0f}")
    ratio = found["torch.nn.LSTM"]["seconds"] / found["firth"]["seconds"]
    print(f"{ratio:.2f} times as fast for the same {options.epochs} epochs")


def train_firth(epochs: int, threads: int) -> dict[str, float]:
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
            threads=threads,
            settings=[
                *(f"embedding.width={WIDTH}", f"encoder.width={WIDTH}", f"sequence.length={LENGTH}"),
                *(f"embedding.dropout={DROPOUT}", f"encoder.dropout={DROPOUT}", "output.kind=adaptive"),
                *(f"learning.batch={BATCH_SIZE * LENGTH}", f"learning.lr={LR}", "learning.warmup=0.05"),
                *("learning.beta2=0.999", "learning.weight_decay=0", f"learning.epochs={epochs}"),
            ],
        )
        spent = firth.info(out)["budget"]["spent"]
        perplexity = total(model.score(text.test, as_document=True)).perplexity
    return {"seconds": spent["seconds"], "tokens": spent["tokens"], "perplexity": perplexity}


def train_torch(epochs: int, threads: int) -> dict[str, float]:
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    train, test, words = encode_text()
    embedding, lstm, output = (
        nn.Embedding(words, WIDTH),
        nn.LSTM(WIDTH, WIDTH, batch_first=True),
        nn.Linear(WIDTH, words),
    )
    nn.init.uniform_(embedding.weight, -0.1, 0.1)
    dropout, model = nn.Dropout(DROPOUT), nn.ModuleList([embedding, lstm, output])
    optimiser = torch.optim.Adam(model.parameters(), LR, fused=True)
    streams = torch.tensor(train[: len(train) // BATCH_SIZE * BATCH_SIZE]).view(BATCH_SIZE, -1)
    steps, step = epochs * math.ceil((streams.shape[1] - 1) / LENGTH), 0
    started, state = time.perf_counter(), None
    for _ in range(epochs):
        for begin in range(0, streams.shape[1] - 1, LENGTH):
            factor = min(1.0, (step + 1) / (0.05 * steps)) * min(1.0, (steps - step) / (0.95 * steps))
            optimiser.param_groups[0]["lr"] = LR * factor
            ids, targets = streams[:, begin : begin + LENGTH], streams[:, begin + 1 : begin + LENGTH + 1]
            ids = ids[:, : targets.shape[1]]
            hidden, state = lstm(dropout(embedding(ids)), state)
            state = tuple(one.detach() for one in state)
            loss = cross_entropy(output(dropout(hidden)).flatten(0, 1), targets.flatten())
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            step += 1
    seconds = time.perf_counter() - started
    model.eval()
    with torch.no_grad():
        state, nll, ids = None, 0.0, torch.tensor([test])
        for begin in range(0, ids.shape[1] - 1, 1000):
            targets = ids[0, begin + 1 : begin + 1001]
            hidden, state = lstm(embedding(ids[:, begin : begin + len(targets)]), state)
            nll += float(cross_entropy(output(hidden[0]), targets, reduction="sum"))
    return {"seconds": seconds, "tokens": epochs * len(train), "perplexity": math.exp(nll / (len(test) - 1))}


def encode_text() -> tuple[list[int], list[int], int]:
    """Ids of the training text and of the test text, with an end after each sentence, and the vocabulary size."""
    from firth.text.corpus import read_corpus

    text = outputs.read_text()
    lines = [line for document in read_corpus(text.train, layout=text.layout) for line in document.sentences]
    ids: dict[str, int] = {"</s>": 0, "<unk>": 1}
    train = [ids.setdefault(word, len(ids)) for line in lines for word in [*line.split(), "</s>"]]
    test = [0, *(ids.get(word, 1) for line in text.test for word in [*line.split(), "</s>"])]
    return train, test, len(ids)


TRAINERS = {"torch.nn.LSTM": train_torch, "firth": train_firth}


if __name__ == "__main__":
    main()
