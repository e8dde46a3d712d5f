"""Time and memory of a gazetteer of a million names: encoding them, and linking a text.

    python bench/gazetteer.py [--names 1000000] [--megabytes 20]

The names are pairs and triples of words of the text, so that many of them occur. Prints the seconds to encode the
names, the peak memory above the beginning, the size of the table, and the tokens of text that are linked in a second.
"""

from __future__ import annotations

import random

import numpy as np

import data
from harness import make_parser, peak_kilobytes, timed


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--megabytes", type=float, default=20, help="of text")
    options = parser.parse_args()
    from firth.text.corpus import read_corpus
    from firth.tokens.build import open_tokens
    from firth.tokens.gazetteer import Gazetteer, WordBounds
    from firth.tokens.recipe import TokenizerRecipe

    lines = first_lines(int(options.megabytes * 1e6))
    tokenizer, store = open_tokens(TokenizerRecipe(model="wordpiece", vocab_size=16_000), read_corpus([lines]))
    words = [word for line in lines for word in line.split()]
    names = make_names(words, options.names)
    gazetteer = Gazetteer(tuple(names), "names", np.arange(1, len(names) + 1, dtype=np.int32))
    before = peak_kilobytes()
    table, seconds = timed(lambda: gazetteer.table(tokenizer))
    grown = (peak_kilobytes() - before) / 1024
    print(f"{len(names):,} names are encoded in {seconds:.1f} s; peak memory grows by {grown:.0f} MB")
    print(f"the table has {table.keys.size:,} forms and {sum(one.nbytes for one in table) / 1e6:.0f} MB")
    ids, sentences = np.asarray(store.ids), store.sentences.view(np.int64)
    alone = np.zeros(len(tokenizer), dtype=np.bool_)
    links = np.zeros(ids.size, dtype=np.int32)

    def link() -> None:
        table.mark(ids, WordBounds(tokenizer.vocabulary).starts(ids), sentences, alone, links=links)

    link()  # compiles
    _, seconds = timed(link)
    print(
        f"{ids.size / seconds:,.0f} tokens/s; {1000 * np.count_nonzero(links) / ids.size:.1f} mentions in 1,000 tokens"
    )


def make_names(words: list[str], count: int) -> list[str]:
    """Distinct runs of two or three words; made-up ones where the text has too few."""
    rng, found = random.Random(0), dict[str, None]()
    for begin in rng.sample(range(len(words) - 3), min(count, len(words) - 3)):
        found[" ".join(words[begin : begin + rng.choice((2, 3))])] = None
    while len(found) < count:
        found[" ".join(rng.choices(words, k=3))] = None
    return list(found)[:count]


def first_lines(size: int) -> list[str]:
    """The first lines of the text, of that many characters."""
    found = []
    for line in data.english():
        if size <= 0:
            break
        found.append(line.rstrip("\n"))
        size -= len(line)
    return [line for line in found if line]


if __name__ == "__main__":
    main()
