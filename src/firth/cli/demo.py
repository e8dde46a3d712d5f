"""firth demo: the main job on a built-in corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from firth.cli.console import JsonFlag, ThreadsOption, show, verb


@verb
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")] = Path("firth-demo"),
    threads: ThreadsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Train and compare recipes on the built-in corpus, and write a report.

    Example: firth demo -o demo-report
    """
    from firth.progress import note
    from firth.report.demo import run_demo

    report = run_demo(out, threads, tell=note)
    show(as_json, report, lambda: _print(report, out))


def _print(report: dict[str, Any], out: Path) -> None:
    print(f"\n{'model':<20} {'bits/byte':>10} {'perplexity':>12} {'vocabulary':>11} {'seconds':>8}")
    for run in sorted(report["runs"], key=lambda run: float(run["bits_per_byte"])):
        print(
            f"{run['name']:<20} {run['bits_per_byte']:>10.4f} {run['perplexity']:>12,.1f} "
            f"{run['vocabulary']:>11,} {run['budget']['spent']['seconds']:>8.1f}"
        )
    print(f"\nLess is better. The whole story: {out / 'report.html'} ({report['seconds']:.0f} s)")
