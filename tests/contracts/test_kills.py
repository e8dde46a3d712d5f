"""Trainers of networks, killed in the middle (kill -9) and resumed, end with the bits of an uninterrupted run.

One for each kind of rows and of state: pairs of segments, spans, a generator, memories, parallel text, languages,
recurrent states and decoders, reused rows, ways of reading, restored text, several tasks, stages. Commands run in forks
of one process that has imported everything. `bench/kill.py --all` kills every trainer and writer many times, at random
moments, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from firth.recipes.table import FINETUNED, RECIPES

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from kill_kinds import all_kinds, write_texts  # noqa: E402

KINDS = all_kinds()
NETS = (
    *("lstm", "transformer", "bert", "transformer-xl", "spanbert", "electra", "xlm", "xlnet", "unilm", "t5", "ulmfit"),
    *("context2vec", "cove", "ernie2", "ernie-thu", "use-dan", "firth"),
)
KILLED = [*(f"train {name}" for name in NETS), "finetune many", "finetune knowledge"]
SERVER = """
import json, sys
from dataclasses import asdict
from pathlib import Path
import forks
forks.prepare()
print("ready", flush=True)
for line in sys.stdin:
    arguments, folder, change = json.loads(line)
    print(json.dumps(asdict(forks.Fork(arguments, Path(folder), change=change).wait())), flush=True)
"""
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a command to its end, or until it kills itself before the change of a file of that number."""
    environment = os.environ | {
        "FIRTH_CHECKPOINT": "0",  # after every step
        "FIRTH_CACHE": str(tmp_path_factory.mktemp("cache")),
        "PYTHONPATH": os.pathsep.join([str(BENCH), *sys.path]),
    }
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        def ask(arguments: list[str], folder: Path, change: int | None = None) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([arguments, str(folder), change]) + "\n")
            process.stdin.flush()
            ended: dict[str, Any] = json.loads(process.stdout.readline())
            assert ended["code"] in (0, -signal.SIGKILL), ended["error"]
            return ended

        yield ask
        process.stdin.close()


@pytest.fixture(scope="module")
def inputs(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts, examples, and the models that are fine-tuned."""
    folder = tmp_path_factory.mktemp("inputs")
    write_texts(folder)
    for name in ("bert", "ulmfit", "transe"):
        run(KINDS[f"train {name}"].arguments(folder, folder / name), folder)
    return folder


def test_every_network_is_killed_by_the_script() -> None:
    assert {f"train {name}" for name, entry in RECIPES.items() if entry.family == "nets"} <= set(KINDS)
    options = {next(part for part in entry.command.split() if part.startswith("--")) for entry in FINETUNED.values()}
    assert all(any(option in kind.command for kind in KINDS.values()) for option in options)
    assert not {f"train {name}" for name in FINETUNED} & set(KINDS), "these are not trained on text"


@pytest.mark.parametrize("name", KILLED)
def test_killed_and_resumed(name: str, run: Run, inputs: Path, tmp_path: Path) -> None:
    kind = KINDS[name]
    whole, out = tmp_path / "whole", tmp_path / "out"
    changes = run(kind.arguments(inputs, whole), tmp_path)["changes"]
    assert run(kind.arguments(inputs, out), tmp_path, change=changes // 2)["code"] == -signal.SIGKILL
    assert not (out / "model.safetensors").exists(), "it was done before it was killed"
    assert _steps(out) > 2
    assert run(kind.repeated(inputs, out), tmp_path)["code"] == 0
    assert _digest(out) == _digest(whole)


@pytest.mark.parametrize("part", [0.25, 0.8], ids=["language model", "classifier"])
def test_a_pipeline_killed_in_one_of_its_stages(part: float, run: Run, inputs: Path, tmp_path: Path) -> None:
    kind = KINDS["finetune ulmfit"]
    whole, out = tmp_path / "whole", tmp_path / "out"
    changes = run(kind.arguments(inputs, whole), tmp_path)["changes"]
    assert run(kind.arguments(inputs, out), tmp_path, change=int(part * changes))["code"] == -signal.SIGKILL
    stage = tmp_path / "out.stages" / "1-task"
    assert (stage / "manifest.json").exists() is (part > 0.5), "it was killed in the other stage"
    assert _steps(out if part > 0.5 else stage) > 2
    assert run(kind.repeated(inputs, out), tmp_path)["code"] == 0
    assert _digest(out) == _digest(whole)
    assert not stage.parent.exists()


def _steps(out: Path) -> int:
    """The number of steps of the checkpoint in a folder."""
    manifest = json.loads((out / "checkpoint" / "manifest.json").read_bytes())
    return int(manifest["state"]["state"]["step"])


def _digest(out: Path) -> str:
    return hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
