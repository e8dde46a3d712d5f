"""Tests of exported ONNX folders: their files, the example of the documentation, refusals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import firth
from firth.artifact.formats import export_model, import_model
from firth.artifact.formats.onnx_graph import OPSET, WEIGHTS
from firth.errors import AbilityError, OutputError
from tests.nets.small_nets import small_net

ROOT = Path(__file__).resolve().parents[3]


def test_the_example_of_the_documentation_gives_the_vectors_of_firth(tmp_path: Path) -> None:
    model = small_net("bert", length=24)
    export_model(model, "onnx", tmp_path / "bert-onnx")
    page = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    wanted = model.embed(["the cat sat", "a dog"])
    np.testing.assert_allclose(np.array(json.loads(done.stdout)), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["bert", "gpt2", "elmo", "transformer"])
def test_graphs_are_valid_with_a_pinned_opset_and_dynamic_axes(name: str, tmp_path: Path) -> None:
    report = export_model(small_net(name), "onnx", tmp_path / "m")
    files = sorted(tmp_path.glob("m/*.onnx"))
    assert report["files"] == [file.name for file in files]
    for file in files:
        onnx.checker.check_model(str(file), full_check=True)
        graph = onnx.load(str(file), load_external_data=False)
        assert [(one.domain, one.version) for one in graph.opset_import] == [("", OPSET)]
        for one in graph.graph.input:
            axes = one.type.tensor_type.shape.dim
            assert axes[0].dim_param in ("batch", "positions")
            if one.name == "input_ids":
                assert axes[1].dim_param == "length"


def test_parameters_are_stored_once(tmp_path: Path) -> None:
    """Also a table that is tied to the output layer and is in two graphs."""
    model = small_net("bert")
    export_model(model, "onnx", tmp_path / "m")
    stored = (tmp_path / "m" / WEIGHTS).stat().st_size
    table = model.network.embedding.table.numel() * 4
    assert table < stored < sum(one.numel() for one in model.network.parameters()) * 4 + 64 * 100


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    for number in range(2):
        export_model(small_net("gpt2"), "onnx", tmp_path / str(number))
    for file in (tmp_path / "0").iterdir():
        assert file.read_bytes() == (tmp_path / "1" / file.name).read_bytes()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError):
        export_model(small_net("bert"), "onnx", tmp_path / "m")
    assert [file.name for file in tmp_path.rglob("*")] == ["m", "notes.txt"]


def test_a_count_model_is_refused(tmp_path: Path) -> None:
    firth.train("unigram", [["the cat sat", "the dog ran"]], out=tmp_path / "uni")
    with pytest.raises(AbilityError, match="neural networks"):
        firth.export(tmp_path / "uni", "onnx", tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(AbilityError, match=r'pip install "firth\[onnx\]"'):
        export_model(small_net("bert"), "onnx", tmp_path / "m")


def test_folders_are_not_imported(tmp_path: Path) -> None:
    with pytest.raises(AbilityError, match="only written"):
        import_model("onnx", tmp_path / "m", tmp_path / "out")
