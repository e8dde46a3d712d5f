"""firth cache: where token stores are kept, how large they are, and how to be rid of them."""

from __future__ import annotations

import time
from typing import Annotated, Any

from typer import Option

from firth.cli import options
from firth.cli.console import show, verb
from firth.errors import ArgumentError


@verb
def cache(
    clear: Annotated[bool, Option("--clear", help="Remove everything.")] = False,
    older: Annotated[
        str | None, Option("--older", help="Remove what was not used for so long: 12h, 30d, 4w.", metavar="TIME")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show the cache of token stores and extracted texts, or clear it: what is removed is made again when needed.

    The cache is the folder named by FIRTH_CACHE, or ~/.cache/firth. When token stores exceed FIRTH_CACHE_LIMIT (20GB
    if it is not set), the least recently used ones are removed.

    Example: firth cache --older 30d
    """
    from firth.cache import cache_entries, cache_limit, cache_size, clear_cache, parse_age
    from firth.files import cache_folder

    try:
        age = 0.0 if older is None else parse_age(older)
    except ValueError as error:
        raise ArgumentError(f"--older {error}") from None
    before = cache_size()
    removed = clear_cache(age) if clear or older is not None else []
    entries = cache_entries()
    report = {
        "folder": str(cache_folder()),
        "bytes": cache_size(),
        "limit": cache_limit(),
        "entries": [
            {"kind": entry.kind, "name": entry.path.name, "bytes": entry.bytes, "used": entry.used} for entry in entries
        ],
        "removed": {"entries": len(removed), "bytes": before - cache_size()},
    }
    show(as_json, report, lambda: _print(report, clear or older is not None))


def _print(report: dict[str, Any], removed: bool) -> None:
    if removed:
        print(f"removed {report['removed']['entries']} entries, {_short_size(report['removed']['bytes'])}")
    print(f"{report['folder']}: {_short_size(report['bytes'])}, limit {_short_size(report['limit'])}")
    for entry in report["entries"]:
        days = (time.time() - entry["used"]) / 86400
        print(f"  {entry['kind']:<7} {entry['name'][:16]}  {_short_size(entry['bytes']):>12}  used {days:.1f} days ago")


def _short_size(size: float) -> str:
    """A size for people.

    >>> _short_size(999), _short_size(20e9)
    ('999 bytes', '20.0 GB')
    """
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size:,.0f} bytes"
