"""Check that a built site loads nothing from the network.

python tools/check_site.py site
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# What a browser loads by itself when it shows a page; links to click on are allowed.
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|audio|video|embed)\b[^>]*\bsrc=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*rel=["']?(?:canonical|next|prev|alternate))[^>]*\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
)
IMPORTED = re.compile(r"""(?:@import\s+|url\()["']?((?:https?:)?//[^"')\s]+)""")


def network_addresses(site: Path) -> list[str]:
    """What the pages and style sheets of a site would load from the network."""
    found = []
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        pattern = LOADED if path.suffix == ".html" else IMPORTED
        for match in pattern.finditer(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)}: {next(filter(None, match.groups()))}")
    return found


def main() -> None:
    site = Path(sys.argv[1])
    pages = len(list(site.rglob("*.html")))
    found = network_addresses(site)
    if found or not pages:
        sys.exit("\n".join(found) or f"{site} has no pages")
    print(f"{site}: {pages} pages, nothing is loaded from the network")


if __name__ == "__main__":
    main()
