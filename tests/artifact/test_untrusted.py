"""Whatever a forged artifact, checkpoint or foreign model contains is refused with one sentence."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firth.artifact.folder import artifact_info, open_artifact
from firth.artifact.formats import import_model
from firth.artifact.models import load, verify_model
from firth.artifact.restore import check_numbers
from firth.artifact.tensors import map_tensors, write_tensors
from firth.errors import ArtifactError, FirthError
from tests.command import assert_refused, firth
from tests.fuzz.artifact_readers import reseal
from tests.fuzz.small_artifacts import KINDS, counted, net


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forged") / "mkn3"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIRTH_CACHE", str(folder.parent / "cache"))
        counted("mkn3", (), folder)
    return folder


@pytest.fixture
def forged(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "forged"))


def change_manifest(folder: Path, **changes: Any) -> None:
    reseal(folder, json.loads((folder / "manifest.json").read_bytes()) | changes)


def change_tensors(folder: Path, change: Callable[[dict[str, np.ndarray[Any, Any]]], Any]) -> None:
    arrays = {name: np.array(array) for name, array in map_tensors(folder / "model.safetensors").items()}
    change(arrays)
    write_tensors(folder / "model.safetensors", arrays)
    reseal(folder)


def test_resealed_artifacts_are_valid(forged: Path) -> None:
    reseal(forged)
    assert verify_model(forged)["ok"]


def test_a_damaged_link_is_refused_by_every_verb(forged: Path) -> None:
    change_tensors(forged, lambda arrays: arrays["links"].__setitem__(-1, 4_000_000_000))
    text = forged.parent / "text.txt"
    text.write_text("anna has a red ball .\n")
    for arguments in (["verify", forged], ["score", forged, text], ["generate", forged]):
        assert_refused(firth(*arguments), "contradict each other")


@pytest.mark.parametrize("value", [[], {}, 3, None, "\x1b[31m", "x" * 1000])
def test_a_recipe_of_another_type_is_refused(forged: Path, value: Any) -> None:
    recipe = json.loads((forged / "manifest.json").read_bytes())["recipe"]
    change_manifest(forged, recipe=recipe | {"type": value})
    with pytest.raises(ArtifactError, match="unknown type") as caught:
        load(forged)
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["order", "smoothing", "tokenizer", "precision"])
@pytest.mark.parametrize("value", [[], {"a": 1}, -1, 10**40, 1e300, "x", None])
def test_recipes_with_other_values_are_refused(forged: Path, name: str, value: Any) -> None:
    recipe = json.loads((forged / "manifest.json").read_bytes())["recipe"]
    change_manifest(forged, recipe=recipe | {name: value})
    with pytest.raises(FirthError):
        load(forged)


def test_parameters_that_are_not_text_are_refused(forged: Path) -> None:
    change_tensors(forged, lambda arrays: arrays.update(parameters=np.array([255, 0, 1], dtype=np.uint8)))
    with pytest.raises(ArtifactError, match="'parameters' holds no JSON object"):
        load(forged)


@pytest.mark.parametrize("layout", [[], {}, 3, "x" * 1000])
def test_a_layout_of_another_type_is_refused(forged: Path, layout: Any) -> None:
    change_manifest(forged, corpus={"layout": layout})
    with pytest.raises(ArtifactError):
        load(forged)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(forged: Path, value: float) -> None:
    change_tensors(forged, lambda arrays: arrays["logp"].__setitem__(-1, value))
    if value == -np.inf:  # the logarithm of 0
        load(forged)
        return
    with pytest.raises(ArtifactError, match="'logp' holds NaN or infinity"):
        load(forged)


def test_booleans_are_0_or_1() -> None:
    check_numbers({"left": np.array([True, False])})
    with pytest.raises(ArtifactError, match="'left' holds no true or false"):
        check_numbers({"left": np.array([0, 2], dtype=np.uint8).view(np.bool_)})


@pytest.mark.parametrize("kind", ["output-huffman", "output-tree", "output-classes", "output-adaptive", "elmo"])
def test_tables_of_networks_fit_the_vocabulary(kind: str, tmp_path: Path) -> None:
    KINDS[kind](tmp_path / "net")
    names = {"output.parent", "output.left", "output.row", "output.bounds", "output.order", "output.member"}
    names.add("embedding.tokens.codes")
    found = names & map_tensors(tmp_path / "net" / "model.safetensors").keys()
    assert found
    for name in sorted(found):
        folder = Path(shutil.copytree(tmp_path / "net", tmp_path / name))
        change_tensors(folder, lambda arrays, name=name: exchange(arrays[name].reshape(-1)))  # type: ignore[misc]
        with pytest.raises(ArtifactError, match="do not fit its vocabulary"):
            load(folder)


def exchange(flat: np.ndarray[Any, Any]) -> None:
    """Replace the last item that differs from the first by it."""
    flat[np.flatnonzero(flat != flat[0])[-1]] = flat[0]


def test_only_checkpoint_files_may_be_left_in_a_finished_artifact(forged: Path) -> None:
    checkpoint = forged / "checkpoint"
    checkpoint.mkdir()
    for name in ("manifest.json", "state-12.safetensors", ".firth-host-12.a_1x.tmp"):
        (checkpoint / name).write_bytes(b"x")
    load(forged)
    for name in ("evil.py", "state-x.safetensors", "manifest.json.py"):
        (checkpoint / name).write_bytes(b"x")
        with pytest.raises(ArtifactError, match=f"holds 'checkpoint/{name}', which its manifest does not list"):
            load(forged)
        (checkpoint / name).unlink()
    (checkpoint / "manifest.json").unlink()
    (checkpoint / "manifest.json").symlink_to("/etc/passwd")
    with pytest.raises(ArtifactError, match="symbolic link"):
        load(forged)


@pytest.mark.parametrize("format", ["arpa", "brown", "fasttext", "glove", "word2vec"])
def test_pipes_and_devices_are_not_read(format: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ArtifactError, match="is a device, pipe or socket"):
            import_model(format, path, tmp_path / "out")


def exported(folder: Path) -> Path:
    from firth.artifact.formats import export_model

    export_model(net("bert"), "huggingface", folder)
    return folder


def test_a_pipe_in_a_hugging_face_folder_is_not_read(tmp_path: Path) -> None:
    folder = exported(tmp_path / "hf")
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(ArtifactError, match="is a device, pipe or socket"):
        import_model("huggingface", folder, tmp_path / "out")


@pytest.mark.parametrize("stem", ["a\0", "../a", "/a", "", "é"])
def test_shards_have_plain_names(stem: str, tmp_path: Path) -> None:
    folder = exported(tmp_path / "hf")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": f"{stem}.safetensors"}}))
    with pytest.raises(ArtifactError, match="names files that are no shards"):
        import_model("huggingface", folder, tmp_path / "out")


def test_a_stored_recipe_of_another_form_is_ignored_or_refused(tmp_path: Path) -> None:
    folder = exported(tmp_path / "hf")
    config = json.loads((folder / "config.json").read_text())
    for number, value in enumerate([1, [], {"type": []}, {"encoder": {"source": 1}}, {"encoder.source": 1}]):
        (folder / "config.json").write_text(json.dumps(config | {"firth": value, "encoder": {"source": 1}}))
        import_model("huggingface", folder, tmp_path / str(number))


def test_what_nobody_thought_of_is_an_error_with_its_cause(forged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def surprise(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("firth.artifact.models.restore", surprise)
    with pytest.raises(ArtifactError, match=r"cannot be read \(KeyError: 'surprise'\)") as caught:
        load(forged)
    assert isinstance(caught.value.__cause__, KeyError)
    quiet, loud = firth("verify", forged), firth("--debug", "verify", forged)
    assert_refused(quiet, "surprise")
    assert loud.code == 1
    assert "Traceback" in loud.err
    assert "surprise" in loud.err
    assert loud.err.endswith(quiet.err)


def test_the_manifest_alone_is_read_by_info(forged: Path) -> None:
    change_tensors(forged, lambda arrays: arrays["links"].__setitem__(-1, 4_000_000_000))
    assert artifact_info(forged)["bytes"]
    assert open_artifact(forged).manifest.name == "mkn3"
