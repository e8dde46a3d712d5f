"""Recipes of knowledge graph embeddings."""

from __future__ import annotations

from dataclasses import replace

from firth.vectors.recipe import GraphRecipe


def transe() -> GraphRecipe:
    """A relation is a translation from its head to its tail."""
    return GraphRecipe()


def distmult() -> GraphRecipe:
    """A relation is a diagonal matrix between its head and its tail."""
    return replace(transe(), scorer="distmult", margin=0.0)


def rotate() -> GraphRecipe:
    """A relation is a rotation from its head to its tail in the complex plane."""
    return replace(transe(), scorer="rotate", margin=9.0)
