"""Writing the folder of a Hugging Face model, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from firth.artifact.formats.huggingface_weights import Tensors
from firth.files import new_folder


def write_files(path: Path, files: Mapping[str, Any], tensors: Tensors) -> dict[str, int]:
    """Writes JSON files and the weights; returns how many parameters and bytes there are."""
    with new_folder(path) as draft:
        for name, content in files.items():
            (draft / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(whole, draft / "model.safetensors", metadata={"format": "pt"})
    parameters = sum(tensor.numel() for tensor in tensors.values())
    return {"parameters": parameters, "bytes": sum(file.stat().st_size for file in path.iterdir())}
