"""A disk that fills in the middle of each trainer and writer, for `kill.py --full-disks`.

As root, outputs or the cache are written to a tmpfs of some kilobytes; otherwise the size of files is limited. The
command must fail with one sentence, leave an older output as it was and no temporary files, and then succeed when there
is space again.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import forks
from kill_all import OLD, FaultError, Place, check_visible, remove, require_sentence, require_whole

_PAGE = 4096
_PLENTY = 1 << 28
_MESSAGES = 1024  # bytes for what a command says, which goes to a file


def fill_disk(place: Place, sizes: int, rng: random.Random) -> str:
    """Run a command with several sizes of the disk of its output and of its cache; returns a summary."""
    disk, refused, runs = place.folder / "disk", 0, 0
    disk.mkdir()
    has_cache = (place.folder / "cache" / "stores").is_dir()
    for number in range(sizes):
        for is_cache in (False, True)[: 1 + has_cache]:
            share = rng.random() if number else 0.0
            with _limited(place, disk, share, is_cache) as limit:
                refused += _run_full(place, disk, limit, is_cache)
            runs += 1
    return f"{refused} full disks in {runs} runs, {place.digest[:16]}"


@contextmanager
def _limited(place: Place, disk: Path, share: float, is_cache: bool) -> Iterator[int | None]:
    """A disk with a share of the space that the command needs, or else the limit of the size of files."""
    used = place.folder / ("cache" if is_cache else f"whole{place.kind.suffix}")
    sizes = [path.stat().st_size for path in (used, *used.rglob("*")) if path.is_file()]
    if os.geteuid() != 0:
        yield max(int(share * max(sizes)), _MESSAGES)
        return
    pages = 1 + int(share * max(sum(-(-size // _PAGE) for size in sizes) - 1, 0))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={pages * _PAGE}", "tmpfs", disk], check=True)
    try:
        yield None
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def _require_nothing_left(place: Place, out: Path) -> None:
    """Raise `FaultError` if a failed command has left more than its last checkpoint."""
    left = [path.name for path in place.folder.rglob(".firth-*")]
    if not place.kind.suffix:
        left += [path.name for path in out.glob("*") if path.name not in ("checkpoint", "metrics.jsonl")]
        left += sorted(path.name for path in out.glob("checkpoint/state-*"))[1:]
    if left:
        raise FaultError(f"left over: {', '.join(left)}")


def _run_full(place: Place, disk: Path, limit: int | None, is_cache: bool) -> bool:
    """Run the command, and if it fails as it should, again with enough space; returns whether it has failed."""
    out = (place.folder if is_cache else disk) / f"filled{place.kind.suffix}"
    os.environ["FIRTH_CACHE"] = str(disk / "cache" if is_cache else place.folder / "cache")
    has_old = bool(place.kind.suffix)
    if has_old:
        out.write_bytes(OLD)
    ended = forks.Fork(place.kind.arguments(place.inputs, out), place.folder, file_limit=limit).wait()
    if ended.code:
        require_sentence(ended, "disk is full", "may not be that large")
        check_visible(place, out, has_old)
        _require_nothing_left(place, out)
        if limit is None:
            subprocess.run(["mount", "-o", f"remount,size={_PLENTY}", "tmpfs", disk], check=True)
        forks.run(place.kind.repeated(place.inputs, out), place.folder)
    require_whole(place, out)
    remove(out)
    shutil.rmtree(disk / "cache", ignore_errors=True)
    return ended.code != 0
