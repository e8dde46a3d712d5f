"""The knowledge graph of a fine-tuning run: which facts are inserted, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from firth.arguments import require_path
from firth.errors import ArgumentError
from firth.progress import note
from firth.tasks.knowledge import KnowledgeGraph, read_graph
from firth.tasks.recipe import WITH_KNOWLEDGE, TaskRecipe
from firth.tasks.sequences import InputSequence

Sequences = Sequence[Sequence[InputSequence]]


def open_graph(path: str | Path, task: str) -> KnowledgeGraph:
    """The graph of a file, for a task whose texts facts can be inserted into."""
    if task not in WITH_KNOWLEDGE:
        raise ArgumentError(f"--knowledge is for {', '.join(WITH_KNOWLEDGE)}, not for {task}: leave it out.")
    graph = read_graph(require_path(path, "knowledge", "the file of a knowledge graph"))
    if graph.duplicates:
        note(f"{graph.duplicates:,} triples of {path} are there twice, and are used once")
    return graph


def with_facts(recipe: TaskRecipe, graph: KnowledgeGraph | None, seed: int) -> tuple[TaskRecipe, KnowledgeGraph | None]:
    """The recipe with the digest of the facts that it uses, and these facts."""
    if graph is None or recipe.knowledge is None:
        return recipe, None
    used = (graph.shuffled(seed) if recipe.knowledge.shuffled else graph).first(recipe.knowledge.triples)
    return replace(recipe, knowledge=replace(recipe.knowledge, digest=used.digest)), used


def count_facts(sequences: Sequences) -> dict[str, int]:
    """How many examples have facts, how many facts are inserted, and how many have no room."""
    grown = [one.tree for each in sequences for one in each if one.tree is not None]
    return {
        "examples_with_facts": sum(any(one.tree is not None for one in each) for each in sequences),
        "facts": sum(int(tree.branches.max()) + 1 for tree in grown),
        "dropped_facts": sum(one.dropped for each in sequences for one in each),
    }


def note_facts(counts: dict[str, int], examples: int) -> None:
    """Report what the graph adds to the training examples."""
    if not counts["facts"] and not counts["dropped_facts"]:
        note("no name of the knowledge graph occurs in the training examples: nothing is inserted into them")
        return
    found = f"{counts['facts']:,} facts are inserted into {counts['examples_with_facts']:,} of {examples:,} examples"
    dropped = counts["dropped_facts"]
    note(f"{found}; {dropped:,} more have no room" if dropped else found)


def graph_metrics(graph: KnowledgeGraph | None, sequences: Sequences) -> dict[str, Any]:
    """The size of the graph and what it adds to the training examples; nothing without a graph."""
    if graph is None:
        return {}
    return {"knowledge": {"triples": len(graph.triples), "names": len(graph.facts), **count_facts(sequences)}}
