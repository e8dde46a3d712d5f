"""Write a requirements file that pins every dependency with the SHA-256 of its archive.

    python tools/lock.py --output requirements.lock
    pip install --require-hashes -r requirements.lock && pip install --no-deps .

pip resolves the dependencies within constraints.txt without installing them; the hashes are those of the archives that
it would take on this platform.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def resolve(extras: str) -> list[dict[str, Any]]:
    """The report of pip for each archive that an installation of Firth would need."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--report", str(report), "-c", str(ROOT / "constraints.txt"), f"{ROOT}{extras}"]
        subprocess.run(command, check=True)
        archives: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
    return archives


def requirement(archive: dict[str, Any]) -> str:
    """`name==version --hash=sha256:...` of one archive."""
    name, version = archive["metadata"]["name"], archive["metadata"]["version"]
    digest = archive["download_info"]["archive_info"]["hashes"]["sha256"]
    return f"{name.lower()}=={version} --hash=sha256:{digest}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("requirements.lock"))
    parser.add_argument("--extras", default="", help="such as [test]")
    options = parser.parse_args()
    archives = [archive for archive in resolve(options.extras) if archive["metadata"]["name"].lower() != "firth"]
    options.output.write_text("\n".join(sorted(map(requirement, archives))) + "\n", encoding="utf-8")
    print(f"{options.output}: {len(archives)} archives")


if __name__ == "__main__":
    main()
