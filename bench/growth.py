"""Cost of a token as the text grows: the same network for the same tokens of texts from 10 MB to 1 GB.

    python bench/growth.py [--sizes 10 100 1000] [--threads 2]

Texts longer than the real data repeat it. What is printed: the time for the tokenizer and the token store, tokens a
second in training, and the peak memory of the process that trains.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import data

CHILD = """
import json, resource, sys
import firth
firth.train("bert", sys.argv[1], out=sys.argv[2], tokenizer=sys.argv[3], size="tiny", budget="1Mtok",
            threads=int(sys.argv[4]), reload=False)
spent = firth.info(sys.argv[2])["budget"]["spent"]
print(json.dumps(spent | {"megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[10, 100, 1000], help="megabytes")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    print(f"{'text':>8}{'to start':>10}{'training':>10}{'tokens/s':>10}{'MB':>8}")
    with tempfile.TemporaryDirectory() as name:
        os.environ["FIRTH_CACHE"] = str(Path(name, "cache"))
        import firth

        for size in options.sizes:
            text, out = Path(name, f"{size}.txt"), Path(name, f"bert{size}")
            data.write(data.english, text, size * 1_000_000)
            if not Path(name, "tokens").exists():
                firth.train("wordpiece", text, out=Path(name, "tokens"), settings=["vocab_size=8000"], reload=False)
            began = time.perf_counter()
            command = [sys.executable, "-W", "ignore", "-c", CHILD]
            command += [str(text), str(out), str(Path(name, "tokens")), str(options.threads)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            spent = json.loads(done.stdout.splitlines()[-1])
            start = time.perf_counter() - began - spent["seconds"]
            speed = spent["tokens"] / spent["seconds"]
            print(f"{size:>5} MB{start:>8.1f} s{spent['seconds']:>8.1f} s{speed:>10,.0f}{spent['megabytes']:>8,.0f}")
            text.unlink()


if __name__ == "__main__":
    main()
