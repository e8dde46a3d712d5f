"""Knowledge graphs of sentence trees: reading, the order of facts, names in texts, shuffling, and the saved form."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from firth.errors import ArtifactError, CorpusError
from firth.tasks.knowledge import KnowledgeGraph, branch_text, graph_array, graph_from_array, read_graph
from firth.text.triples import Triple


def graph_of(*names: str) -> KnowledgeGraph:
    return KnowledgeGraph(tuple(Triple(name, "is", f"{name}!") for name in names))


def found(graph: KnowledgeGraph, text: str) -> list[str]:
    return [text[begin:end] for begin, end in graph.find(text)]


def test_facts_are_in_the_order_of_the_file_and_there_once(tmp_path: Path) -> None:
    path = tmp_path / "graph.spo"
    path.write_text("b\tis\tz\na\tis\tc\nb\tis\ty\n\nb\tis\tz\nb\t has \tx\na  b\tis\td\n", encoding="utf-8")
    graph = read_graph(path)
    assert graph.duplicates == 1
    assert [fact.tail for fact in graph.facts["b"]] == ["z", "y", "x"]
    assert [fact.tail for fact in graph.first(2).facts["b"]] == ["z", "y"]
    assert list(graph.facts) == ["b", "a", "a b"]


@pytest.mark.parametrize(
    ("text", "words"), [("a\tis\n", "2 of the three names"), ("a\t\tb\n", "2 of the three"), ("a b c\n", "1 of")]
)
def test_a_triple_without_all_its_names(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.spo"
    path.write_text(f"x\tis\ty\n{text}")
    with pytest.raises(CorpusError, match=words):
        read_graph(path)


def test_the_longest_name_from_the_left_is_found() -> None:
    graph = graph_of("New York", "York", "New York City Ballet", "City", "York City")
    assert found(graph, "in New York City, York") == ["New York", "City", "York"]
    assert found(graph, "New York City Ballet") == ["New York City Ballet"]


def test_names_of_spaced_scripts_are_whole_words() -> None:
    graph = graph_of("art", "Art", "8", "é", "on")
    assert found(graph, "party art-house ARt start. art") == ["art", "art"]
    assert found(graph, "48 8 café é") == ["8", "é"]


def test_names_in_unspaced_text() -> None:
    graph = graph_of("胃炎", "慢性胃炎", "炎", "T恤", "OK")
    assert found(graph, "患慢性胃炎和肺炎") == ["慢性胃炎", "炎"]
    assert found(graph, "穿T恤去卡拉OK，OKs") == ["T恤", "OK"]
    assert found(graph, "") == []


def test_longest_match_equals_a_search_over_all_names() -> None:
    rng = np.random.default_rng(0)
    names = {"".join(rng.choice(list("甲乙丙丁"), size=rng.integers(1, 5))) for _ in range(30)}
    graph = graph_of(*sorted(names))
    for _ in range(50):
        text = "".join(rng.choice(list("甲乙丙丁戊"), size=40))
        expected, position = [], 0
        while position < len(text):
            best = max((name for name in names if text.startswith(name, position)), key=len, default="")
            expected += [best] if best else []
            position += len(best) or 1
        assert found(graph, text) == expected


def test_a_million_names_are_looked_up_by_their_beginnings() -> None:
    graph = graph_of(*(f"{number:06d}甲" for number in range(100_000)))
    began = time.process_time()
    assert found(graph, "，".join(f"{number:06d}甲" for number in range(0, 100_000, 1000)))[1] == "001000甲"
    assert time.process_time() - began < 10


def test_shuffling_permutes_objects_by_the_seed() -> None:
    graph = KnowledgeGraph(tuple(Triple(f"n{number}", f"r{number}", f"o{number % 7}") for number in range(50)))
    one = graph.shuffled(1)
    assert one == graph.shuffled(1)
    assert one != graph.shuffled(2)
    assert one != graph
    assert [fact[:2] for fact in one.triples] == [fact[:2] for fact in graph.triples]
    assert Counter(fact.tail for fact in one.triples) == Counter(fact.tail for fact in graph.triples)


@pytest.mark.parametrize(
    ("fact", "both", "alone"),
    [
        (Triple("x", "CEO", "Apple"), " CEO Apple", " Apple"),
        (Triple("x", "类别", "疾病"), "类别疾病", "疾病"),
        (Triple("x", "类别", "B cell"), "类别B cell", " B cell"),
    ],
)
def test_branches_are_spaced_as_their_script_is(fact: Triple, both: str, alone: str) -> None:
    assert (branch_text(fact, True), branch_text(fact, False)) == (both, alone)


def test_a_saved_graph_is_restored() -> None:
    graph = KnowledgeGraph((Triple("胃 炎", "类别", "疾病"), Triple("a", "b", "c")))
    assert graph_from_array(graph_array(graph), graph.digest) == graph
    assert graph_from_array(graph_array(KnowledgeGraph()), KnowledgeGraph().digest) == KnowledgeGraph()


@pytest.mark.parametrize("data", [b"a\tb\n", b"a\tb\tc\td\n", b"\xff\tb\tc\n", b"a\t\tc\n"])
def test_a_damaged_graph_is_refused(data: bytes) -> None:
    from firth.files import digest_bytes

    array = np.frombuffer(data, dtype=np.uint8)
    with pytest.raises(ArtifactError, match="damaged"):
        graph_from_array(array, digest_bytes(data))
    with pytest.raises(ArtifactError, match="not that of its recipe"):
        graph_from_array(array, "0" * 64)
    with pytest.raises(ArtifactError, match="not a text"):
        graph_from_array(array.astype(np.int64), digest_bytes(data))
