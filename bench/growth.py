"""Training speed by corpus size: the same network and number of tokens on texts of 10 MB to 1 GB.

    python bench/growth.py [--sizes 10 100 1000] [--threads 2]

Texts larger than the real data repeat it. Prints the seconds before training (mostly building the token store), tokens
per second of training, and the peak memory of the training process.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import data
from harness import make_parser, peak_kilobytes, run_child, timed


def main() -> None:
    parser = make_parser(__doc__, threads=True)
    parser.add_argument("--sizes", nargs="+", type=int, default=[10, 100, 1000], help="megabytes")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return train(*options.child)
    print(f"{'text':>8}{'startup':>10}{'training':>10}{'tokens/s':>10}{'MB':>8}")
    with tempfile.TemporaryDirectory() as name:
        os.environ["FIRTH_CACHE"] = str(Path(name, "cache"))
        import firth

        tokenizer = Path(name, "tokens")
        for size in options.sizes:
            text, out = Path(name, f"{size}.txt"), Path(name, f"bert{size}")
            data.write(data.english, text, size * 1_000_000)
            if not tokenizer.exists():
                firth.train("wordpiece", text, out=tokenizer, settings=["vocab_size=8000"], reload=False)
            spent, seconds = timed(lambda: run_child(__file__, text, out, tokenizer, options.threads))  # noqa: B023
            startup, speed = seconds - spent["seconds"], spent["tokens"] / spent["seconds"]
            print(f"{size:>5} MB{startup:>8.1f} s{spent['seconds']:>8.1f} s{speed:>10,.0f}{spent['megabytes']:>8,.0f}")
            text.unlink()
    return None


def train(text: str, out: str, tokenizer: str, threads: str) -> None:
    """The child process: train and print the budget spent and the peak memory."""
    import firth

    firth.train(
        "bert", text, out=out, tokenizer=tokenizer, size="tiny", budget="1Mtok", threads=int(threads), reload=False
    )
    print(json.dumps(firth.info(out)["budget"]["spent"] | {"megabytes": peak_kilobytes() / 1024}))


if __name__ == "__main__":
    main()
