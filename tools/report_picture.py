"""Take the picture of a demo report that README.md shows.

    make demo && python tools/report_picture.py demo-report/report.html -o docs/images/report.png

Needs Chromium. The picture is the top of the page, in 128 colours.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

WIDTH, HEIGHT = 1200, 1290
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def take_picture(page: Path, out: Path, height: int) -> None:
    """Write the top of a page as a PNG file."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("install Chromium first: it draws the page")
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        own = (f"--user-data-dir={folder}/profile", f"--window-size={WIDTH},{height}", f"--screenshot={shot}")
        subprocess.run([browser, *OPTIONS, *own, page.resolve().as_uri()], check=True, capture_output=True, timeout=120)
        Image.open(shot).convert("RGB").quantize(128).save(out, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--height", type=int, default=HEIGHT, help="in pixels")
    options = parser.parse_args()
    take_picture(options.page, options.output, options.height)
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
