"""Artifact folders: a trained model as a manifest and the files that it lists."""
