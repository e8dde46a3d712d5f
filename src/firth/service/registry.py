"""The models of a server: loaded from folders, tested, and replaced without a pause."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from firth.artifact.folder import open_artifact
from firth.errors import ArgumentError, near_miss
from firth.service.models import ServedModel, load_served
from firth.service.probes import check_model
from firth.service.refusals import Refusal


def model_names(folders: Sequence[Path]) -> dict[str, Path]:
    """Folders by the names of their models; equal names raise `ArgumentError`."""
    found: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if name in found:
            raise ArgumentError(
                f"{found[name]} and {folder} are both named {name!r}: rename a folder, or serve one of them."
            )
        found[name] = folder
    if not found:
        raise ArgumentError("nothing to serve was given: name the folders of models.")
    return found


class ModelRegistry:
    """The models of a server by name; a reload replaces them all at once."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = model_names(folders)
        self._models: dict[str, ServedModel] = {}
        self._loading = threading.Lock()

    @property
    def is_ready(self) -> bool:
        """Whether all models are loaded and tested."""
        return len(self._models) == len(self.folders)

    def load(self) -> list[str]:
        """Load the models whose folders have changed, test them, and serve them from now on; their names.

        If one of them cannot be loaded, an error is raised and all models stay as they are.
        """
        with self._loading:
            found: dict[str, ServedModel] = {}
            for name, folder in self.folders.items():
                before = self._models.get(name)
                manifest = open_artifact(folder, verify=False).manifest
                if before is not None and before.manifest == manifest:
                    found[name] = before
                    continue
                found[name] = check_model(load_served(folder, name))
            changed = [name for name, one in found.items() if self._models.get(name) is not one]
            self._models = found
            return changed

    def get(self, name: str) -> ServedModel:
        """The model of a name; an unknown one is refused with the nearest."""
        models = self._models
        if name not in models:
            raise Refusal(
                404, f"there is no model {name!r:.80}: {near_miss(name, models)}", param="model", kind="unknown_model"
            )
        return models[name]

    def all(self) -> list[ServedModel]:
        """All models, in the order in which they were given."""
        return list(self._models.values())
