"""Sessions of onnxruntime over exported folders; texts are read with the `tokenizers` library alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tokenizers


class Session:
    """A graph of a folder."""

    def __init__(self, file: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.file = file
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.inputs = {one.name: one for one in self.session.get_inputs()}
        self.outputs = [one.name for one in self.session.get_outputs()]

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name."""
        feed = {name: np.asarray(one) for name, one in inputs.items()}
        return dict(zip(self.outputs, self.session.run(None, feed), strict=True))

    def read(self, texts: Sequence[str], facts: dict[str, Any]) -> dict[str, Any]:
        """The inputs of texts, padded."""
        tokenizer = tokenizers.Tokenizer.from_file(str(self.file.parent / "tokenizer.json"))
        tokenizer.enable_padding(pad_id=facts["ids"]["pad"])
        found = tokenizer.encode_batch(list(texts))
        every = {
            "input_ids": [one.ids for one in found],
            "attention_mask": [one.attention_mask for one in found],
            "token_type_ids": [one.type_ids for one in found],
        }
        return {name: np.array(rows, dtype=np.int64) for name, rows in every.items() if name in self.inputs}

    def no_past(self, rows: int) -> dict[str, Any]:
        """The states before the first token."""
        sizes = {"batch": rows, "past": 0}
        return {
            name: np.zeros([sizes.get(one, one) for one in given.shape], dtype=np.float32)
            for name, given in self.inputs.items()
            if name.startswith("past.")
        }
