"""Run the commands of console blocks and write the outputs that they show.

    python tools/outputs.py README.md README.zh.md

In a block that is fenced as ```console a line that starts with `$ ` is a command, and the lines below it are its
standard output. There `...` stands for any characters, also for several lines. Fractions may differ by a hundredth,
because the outputs of networks differ a little between processors, and those of `firth fill` by more. Outputs that
match what a command prints are left as they are. All commands of a page run in one folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
_PROMPT = "$ "
_FRACTION = re.compile(r"-?\d+\.\d+")
_TOLERANCE = 0.01
_CANDIDATE = re.compile(r"(0\.\d{4})  (\S+)")  # as `firth fill` prints it
_NET_TOLERANCE, _NET_FRACTION = 0.05, 0.2  # of probabilities of trained networks: a difference and a fraction of them


def console_commands(text: str) -> list[tuple[str, str]]:
    """The commands of all console blocks of a page, each with the output shown for it.

    >>> console_commands("```console\\n$ echo a\\na\\n$ true\\n```\\n")
    [('echo a', 'a\\n'), ('true', '')]
    """
    return [pair for block in _BLOCK.findall(text) for pair in _split(block)]


def matches(shown: str, printed: str) -> bool:
    """Whether an output is what a page shows; of `firth fill`, see `fills_match`.

    >>> matches("done in ... s\\n", "done in 2.5 s\\n"), matches("one\\n", "two\\n")
    (True, False)
    >>> matches("0.123 a\\n", "0.125 a\\n"), matches("0.123 a\\n", "0.225 a\\n")
    (True, False)
    """
    pieces = [
        ".*" if piece == "..." else r"(-?\d+\.\d+)" if _FRACTION.fullmatch(piece) else re.escape(piece)
        for piece in re.split(rf"(\.\.\.|{_FRACTION.pattern})", shown)
    ]
    found = re.fullmatch("".join(pieces), printed, re.DOTALL)
    return found is not None and all(
        abs(float(one) - float(other)) <= _TOLERANCE
        for one, other in zip(_FRACTION.findall(shown), found.groups(), strict=True)
    )


def fills_match(shown: str, printed: str) -> bool:
    """Whether the candidates of a masked model are those shown, as far as processors agree on them.

    Training amplifies differences of rounding. So probabilities may differ by 0.05 and a fifth, and candidates may
    change places, or be exchanged for others, with those of a similar probability: half of those shown must be there.

    >>> shown = "0.0655  baker  a baker\\n0.0580  hunter  a hunter\\n"
    >>> fills_match(shown, "0.0712  hunter  a hunter\\n0.0590  sailor  a sailor\\n")
    True
    >>> fills_match(shown, "0.0655  lamp  a lamp\\n0.0580  the  a the\\n"), fills_match(shown, "0.9  baker  a baker\\n")
    (False, False)
    """
    expected, found = ([line for line in text.splitlines() if line] for text in (shown, printed))
    pairs = [[_CANDIDATE.match(line) for line in lines] for lines in (expected, found)]
    if len(expected) != len(found) or not all(all(some) for some in pairs):
        return False
    wanted, given = ({one[2]: float(one[1]) for one in some if one} for some in pairs)
    if len(wanted) != len(given):
        return False
    common = wanted.keys() & given.keys()
    compared = [(wanted[token], given[token]) for token in common]
    compared += zip(sorted(wanted.values()), sorted(given.values()), strict=True)
    return 2 * len(common) >= len(wanted) and all(
        abs(one - other) <= _NET_TOLERANCE + _NET_FRACTION * max(one, other) for one, other in compared
    )


def run_page(text: str, folder: Path, environment: Mapping[str, str]) -> str:
    """The page with the outputs that its commands print in `folder`, where these do not match."""

    def rewrite(block: re.Match[str]) -> str:
        return "".join(_entry(command, shown, folder, environment) for command, shown in _split(block[0]))

    return _BLOCK.sub(rewrite, text)


def _split(block: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for line in block.splitlines(keepends=True):
        if line.startswith(_PROMPT):
            pairs.append((line.removeprefix(_PROMPT).rstrip("\n"), ""))
        elif not pairs:
            raise ValueError(f"a console block starts with a command, not with {line!r}")
        else:
            pairs[-1] = (pairs[-1][0], pairs[-1][1] + line)
    return pairs


def _entry(command: str, shown: str, folder: Path, environment: Mapping[str, str]) -> str:
    """A command with its output, which is run in `folder`."""
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if run.returncode:
        raise RuntimeError(f"{command} failed: {run.stderr}")
    compare = fills_match if command.startswith("firth fill ") else matches
    return f"{_PROMPT}{command}\n{shown if compare(shown, run.stdout) else run.stdout}"


def main() -> None:
    for name in sys.argv[1:]:
        page = Path(name)
        with tempfile.TemporaryDirectory() as folder:
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            text = run_page(page.read_text(encoding="utf-8"), Path(folder), os.environ | {"PATH": path})
        changed = text != page.read_text(encoding="utf-8")
        page.write_text(text, encoding="utf-8")
        print(f"{page}: {'updated' if changed else 'as it was'}")


if __name__ == "__main__":
    main()
