"""The folder that holds a trained model: a manifest and the files that it lists, whole or refused."""

from firth.artifact.folder import Artifact, artifact_info, open_artifact, save_artifact, verify_artifact
from firth.artifact.manifest import FORMAT, FileEntry, Manifest

__all__ = [
    "FORMAT",
    "Artifact",
    "FileEntry",
    "Manifest",
    "artifact_info",
    "open_artifact",
    "save_artifact",
    "verify_artifact",
]
