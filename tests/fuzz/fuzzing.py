"""What a fuzz target is, and how one of its inputs is made and read.

A reader to fuzz is one entry in the `READERS` of a file `*_readers.py` in this folder. Its input number `index` is a
function of the seed, the reader's name and the index, so every finding can be made again.
"""

from __future__ import annotations

import importlib
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from firth.errors import FirthError
from tests.fuzz.mutators import mutate_path

FOLDER = Path(__file__).parent
CASES = FOLDER / "cases"  # findings of the past: cases/READER/NAME is an input of that reader


@dataclass(frozen=True)
class FuzzReader:
    """A reader, valid inputs of it, and how they are changed."""

    name: str
    samples: Callable[[Path], Sequence[Path]]  # writes valid inputs, files or folders, into an empty folder
    read: Callable[[Path], object]  # reads an input to its end; may raise `FirthError`, nothing else
    mutate: Callable[[Path, random.Random], None] = mutate_path  # changes an input in place
    short: int = 60  # inputs of the run in the tests


def find_readers() -> dict[str, FuzzReader]:
    """All readers by name, from the `READERS` of every file `*_readers.py` here."""
    readers: dict[str, FuzzReader] = {}
    for path in sorted(FOLDER.glob("*_readers.py")):
        for reader in importlib.import_module(f"tests.fuzz.{path.stem}").READERS:
            assert reader.name not in readers, f"two readers are named {reader.name}"
            readers[reader.name] = reader
    return readers


class Inputs:
    """The inputs of a reader, written one after the other into a folder."""

    def __init__(self, reader: FuzzReader, folder: Path, seed: int = 0) -> None:
        (folder / "samples").mkdir(parents=True)
        (folder / "input").mkdir()
        self._reader, self._folder, self._seed = reader, folder, seed
        self._samples = sorted(reader.samples(folder / "samples"))

    def samples(self) -> Iterator[Path]:
        """The valid inputs."""
        return iter(self._samples)

    def make(self, index: int) -> Path:
        """Write the input of that number."""
        rng = random.Random(f"{self._seed} {self._reader.name} {index}")
        path = copy_input(rng.choice(self._samples), self._folder / "input")
        self._reader.mutate(path, rng)
        return path


def copy_input(sample: Path, folder: Path) -> Path:
    """A copy of a file or folder of the same name, the only content of `folder`."""
    for old in folder.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    target = folder / sample.name
    return shutil.copytree(sample, target) if sample.is_dir() else Path(shutil.copyfile(sample, target))


def is_refused(reader: FuzzReader, path: Path) -> bool:
    """Whether the reader refuses an input by one sentence; any other exception is a finding and is raised."""
    try:
        reader.read(path)
    except FirthError as error:
        message = str(error)
        assert message.endswith((".", "?")), f"not a sentence: {message!r}"
        assert len(message) < 2000, f"a message of {len(message)} characters"
        return True
    return False
