"""A small artifact of every kind, and everything that can be done with the model in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch

from firth.abilities import Embeds, Explains, Fills, Generates, HasSenses, HasVectors, PredictsNext, Scores, Translates
from firth.artifact.ensemble import EnsembleModel
from firth.artifact.models import save
from firth.fit.mixing import mix
from firth.fit.train import train
from firth.lm.language_model import UnknownWordModel
from firth.nets.model import NetModel
from firth.nets.network import Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.nets.restore import make_model
from firth.objectives.heads.build import make_heads
from firth.recipes.table import find_recipe
from firth.recipes.values import override
from firth.tasks.examples import TagExample, TextExample
from firth.tasks.knowledge import KnowledgeGraph
from firth.tasks.linear_classifier import LinearClassifier, NgramFeatures
from firth.tasks.linear_tagger import LinearTagger
from firth.tasks.many import ManyModel
from firth.tasks.predictor import Predictor
from firth.tasks.recipe import HeadRecipe, KnowledgeRecipe, LinearRecipe, ManyRecipe, NamedTask, TaskRecipe
from firth.tasks.registry import make_task
from firth.tasks.tag_features import FeatureExtractor
from firth.tasks.task import TaskModel
from firth.text.corpus import read_corpus
from firth.text.triples import Triple
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.tokenizer import FIRST_WORD, Tokenizer
from firth.tokens.train import train_tokenizer
from firth.vectors.classifier_model import ClassifierModel
from firth.vectors.clusters import SenseInventory
from firth.vectors.graph_model import GraphModel
from firth.vectors.model import VectorModel
from firth.vectors.paragraph import ParagraphModel
from firth.vectors.phrases import Phrases
from firth.vectors.recipe import SenseRecipe, Word2vecRecipe
from firth.vectors.senses import SenseModel
from firth.vectors.text import bounds_of

NAMES, THINGS, COLOURS = ("anna", "bert", "carl"), ("ball", "book", "lamp"), ("red", "blue", "new york")
TEXT = [[f"{name} has a {colour} {thing} ." for thing in THINGS for colour in COLOURS] for name in NAMES] * 3
FACTS = [(name, "has", thing) for name in NAMES for thing in THINGS[:2]]
FACTS += [(thing, "is", colour) for thing, colour in zip(THINGS, COLOURS, strict=True)]
GRAPHS = ("transe", "rotate")
QUERIES = ["anna has a red ball .", "bert has no cat ?", "", "york york york lamp a a a . . ."]
WORDS = ["tokenizer.min_count=1"]
COUNTS = {
    "mkn3": (),
    "quantised": ("precision=8bit",),
    "church-gale": (),
    "additive": ("order=3",),
    "katz3": (),
    "cache": ("weight=0.1", "decay=0.01", "base.order=3"),
    "class-ngram": ("base.order=3",),
    "mixture": ("base.order=2",),
    "maxent": ("triggers=50", "iterations=3", "prior=2"),
}
VECTORS = {
    "onehot": (),
    "tfidf": (),
    "lsa": ("dimension=3",),
    "ppmi-svd": ("dimension=3",),
    "brown": ("clusters=5",),
    "skipgram": ("dimension=8", "epochs=1"),
    "fasttext": ("dimension=8", "epochs=1", "buckets=50"),
    "glove": ("dimension=8", "epochs=2"),
    "sif": ("base.dimension=8", "base.epochs=1"),
    "transe": ("dimension=8", "epochs=2"),
    "rotate": ("dimension=8", "epochs=2"),
    "pv-dbow": ("dimension=8", "epochs=2", "subsample=0"),
    "pv-dm": ("dimension=8", "epochs=2", "subsample=0"),
    "pv-dm-concat": ("dimension=8", "epochs=1", "subsample=0", "window=2"),
}
OUTPUTS = ("full", "classes", "huffman", "tree", "nce", "adaptive")
NETS = {"bert": (), "gpt": (), "lstm": (), "elmo": ("embedding.characters=true",), "ffnn": (), "senna": ()}
TASKS = ("classify", "pair", "tag", "span", "choice", "generate")
LABELS = {"classify": ("good", "bad"), "pair": ("same", "other"), "tag": ("O", "B-X", "I-X")}
ITEMS: dict[str, Sequence[Any]] = {
    "classify": QUERIES,
    "pair": [(one, "carl has it .") for one in QUERIES],
    "tag": [one.split() for one in QUERIES if one],
    "span": [{"passage": one, "question": "who has it ?"} for one in QUERIES if one],
    "choice": [{"context": one, "question": "is it", "choices": ["red", "blue"]} for one in QUERIES],
    "generate": QUERIES,
}


@cache
def words(sentinels: int = 0) -> Tokenizer:
    return train_tokenizer(TokenizerRecipe(model="words", min_count=1, sentinels=sentinels), read_corpus(TEXT))


def put(model: Any, folder: Path) -> None:
    facts: dict[str, Any] = {"budget": {"asked": None, "spent": {}}, "corpus": {"layout": "lines"}}
    save(folder, model, name="small", recipe=model.recipe, seed=0, metrics={}, **facts)


def trained(recipe: str, settings: Sequence[str], folder: Path) -> None:
    if recipe in GRAPHS:
        train(recipe, FACTS, out=folder, settings=settings, threads=1, reload=False)
        return
    train(recipe, TEXT, out=folder, valid=TEXT[:1], settings=[*WORDS, *settings], threads=1, reload=False)


def counted(recipe: str, settings: Sequence[str], folder: Path) -> None:
    prefix = "base." if recipe in ("cache", "class-ngram", "mixture") else ""
    name = "mkn3" if recipe == "quantised" else recipe
    settings = [f"{prefix}{one}" for one in WORDS] + list(settings)
    inputs = (TEXT[:4], TEXT[4:]) if recipe == "mixture" else (TEXT,)
    train(name, *inputs, out=folder, valid=TEXT[:1], settings=settings, threads=1, reload=False)


def put_phrases(folder: Path) -> None:
    """Word vectors with phrases of two and three words."""
    new, york, ball = (words().id(word) for word in ("new", "york", "ball"))
    size = len(words())
    phrases = Phrases(np.array([[new, york, 0], [size, ball, 1]], dtype=np.int32), size)
    vectors = np.random.default_rng(0).standard_normal((size + 2, 4), dtype=np.float32)
    recipe = Word2vecRecipe(tokenizer=words().recipe, dimension=4, phrases=2)
    put(VectorModel(recipe, words(), "lines", vectors, counts=np.arange(size + 2), phrases=phrases), folder)


def put_senses(folder: Path) -> None:
    """Sense vectors; every third word has two senses."""
    rng, size = np.random.default_rng(0), len(words())
    counts = np.where((np.arange(size) % 3 == 0) & (np.arange(size) >= FIRST_WORD), 2, 1)
    starts, ambiguous = bounds_of(counts), int(counts[counts > 1].sum())
    rows = int(starts[-1])

    def floats(*shape: int) -> Any:
        return rng.random(shape, dtype=np.float32) + np.float32(0.1)

    inventory = (floats(ambiguous, 4), floats(ambiguous), floats(ambiguous), floats(size, 4), floats(size))
    senses = SenseInventory(starts, *inventory, 5)
    recipe = SenseRecipe(tokenizer=words().recipe)
    others = {"counts": np.arange(rows), "outputs": floats(rows, 4), "words": senses.names(words().vocabulary)}
    put(SenseModel(recipe, words(), "lines", floats(rows, 4), senses=senses, **others), folder)


def classified(loss: str, folder: Path) -> None:
    lines = [f"__label__{name} {name} has a {thing}" for name in NAMES for thing in THINGS]
    labelled = folder.with_suffix(".txt")
    labelled.write_text("\n".join(lines) + "\n")
    settings = [*WORDS, f"loss={loss}", "dimension=4", "epochs=1", "buckets=50", "word_ngrams=2", "min_n=2", "max_n=3"]
    train("fasttext-classifier", labelled, out=folder, settings=settings, threads=1, reload=False)
    labelled.unlink()


def net(recipe: str, settings: Sequence[str] = ()) -> NetModel:
    """A network with random parameters."""
    small = ["embedding.width=8", "encoder.width=8", "encoder.heads=2", "encoder.layers=1", "sequence.length=16"]
    found = find_recipe(recipe)
    assert isinstance(found, NetRecipe)
    wide = ["encoder.ffn_width=8"] if found.encoder.ffn_width else []
    tokenizer = words(found.tokenizer.sentinels)
    made = override(found.with_tokenizer(tokenizer.recipe), [*small, *wide, *settings])
    assert isinstance(made, NetRecipe)
    vocabulary = Vocabulary(tokenizer.vocabulary, np.arange(len(tokenizer), dtype=np.int64))
    network = build_network(made, vocabulary, 1)
    objectives = make_heads(made, network)
    heads = {
        f"heads.{name}.{part}": parameter.detach()
        for name, objective in objectives.items()
        for part, parameter in objective.named_parameters()
    }
    return make_model(made, network, tokenizer, "lines", UnknownWordModel.train(["abc"]), heads)


def put_net(recipe: str, settings: Sequence[str], folder: Path) -> None:
    put(net(recipe, settings), folder)


def put_task(task: Any, folder: Path) -> None:
    base = net("bert")
    recipe = TaskRecipe(
        task=task, network=base.recipe, head=HeadRecipe(crf=task == "tag"), labels=LABELS.get(task, ()), max_length=4
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        put(TaskModel(recipe, base, make_task(recipe, base.network.vocabulary)), folder)


def put_facts(folder: Path) -> None:
    """A classifier with a knowledge graph, of which names occur in the queries."""
    base = net("bert")
    graph = KnowledgeGraph(tuple(Triple(name, "is", "b") for query in QUERIES for name in query.split()[:1]))
    knowledge = KnowledgeRecipe(digest=graph.digest)
    recipe = TaskRecipe(network=base.recipe, labels=LABELS["classify"], knowledge=knowledge)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        put(TaskModel(recipe, base, make_task(recipe, base.network.vocabulary), graph), folder)


def put_many(folder: Path) -> None:
    base = net("bert")
    heads = {"classify": HeadRecipe(), "pair": HeadRecipe(answer="san", turns=2), "tag": HeadRecipe(crf=True)}
    recipes = {
        task: TaskRecipe(task=cast(Any, task), network=base.recipe, head=head, labels=LABELS[task])
        for task, head in heads.items()
    }
    named = tuple(NamedTask(name=f"{task}-1", recipe=recipe) for task, recipe in recipes.items())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        models = {
            one.name: TaskModel(one.recipe, base, make_task(one.recipe, base.network.vocabulary)) for one in named
        }
    put(ManyModel(ManyRecipe(network=base.recipe, tasks=named), base, models), folder)


def put_linear(task: Any, folder: Path) -> None:
    rng = np.random.default_rng(0)
    recipe = LinearRecipe(task=task, tokenizer=words().recipe, labels=LABELS[task], features="tokens", min_count=1)
    if task == "tag":
        extractor = FeatureExtractor(recipe)
        extractor.fit([TagExample(tuple(one.split())) for one in QUERIES], 1)
        weights = rng.random((extractor.keys.size, 3), dtype=np.float32)
        put(LinearTagger(recipe, words(), extractor, weights, rng.random((4, 4))), folder)
        return
    features = NgramFeatures(recipe, words())
    features.fit([TextExample(one, "a book" if task == "pair" else None) for one in QUERIES])
    put(LinearClassifier(features, rng.random((2, features.columns), dtype=np.float32), rng.random(2)), folder)


def put_ensemble(folder: Path) -> None:
    with TemporaryDirectory() as parent:
        for name in ("mkn3", "katz3"):
            train(name, TEXT, out=Path(parent, name), settings=WORDS, threads=1, reload=False)
        mix([Path(parent, "mkn3"), Path(parent, "katz3")], TEXT[:1], out=folder)


KINDS: dict[str, Callable[[Path], None]] = {
    **{name: partial(counted, name, settings) for name, settings in COUNTS.items()},
    "ensemble": put_ensemble,
    **{name: partial(trained, name, settings) for name, settings in VECTORS.items()},
    "phrases": put_phrases,
    "senses": put_senses,
    **{f"classifier-{loss}": partial(classified, loss) for loss in ("softmax", "hierarchical")},
    **{name: partial(put_net, name, settings) for name, settings in NETS.items()},
    **{f"output-{kind}": partial(put_net, "lstm", (f"output.kind={kind}",)) for kind in OUTPUTS},
    **{f"task-{task}": partial(put_task, task) for task in TASKS},
    "task-facts": put_facts,
    "many": put_many,
    **{f"linear-{task}": partial(put_linear, task) for task in LABELS},
}
"""Kind of artifact -> what writes a small one to a folder."""


def use(model: Any) -> None:
    """Do whatever the model can."""
    torch.set_num_threads(1)
    with np.errstate(all="ignore"):
        if isinstance(model, Predictor):
            model.predict(ITEMS[model.task])
            return
        if isinstance(model, ManyModel):
            for name, one in model.tasks.items():
                model.predict(ITEMS[one.task], task=name)
            return
        if isinstance(model, ClassifierModel):
            model.predict(QUERIES)
        _use_probabilities(model)
        _use_vectors(model)


def _use_probabilities(model: Any) -> None:
    if isinstance(model, Scores):
        model.score(QUERIES * 10)
    if isinstance(model, PredictsNext):
        model.next("anna has a", 3)
    if isinstance(model, Generates):
        model.generate("anna has", count=2, length=5)
        if not isinstance(model, EnsembleModel):
            model.generate(length=3, top_k=3, temperature=0.5)
    if isinstance(model, Translates):
        model.translate(QUERIES, beams=2, length=5)
    if isinstance(model, Explains):
        model.explain(QUERIES[0])
    if isinstance(model, Fills):
        model.fill(f"anna has a {model.tokenizer.vocabulary[4]} .")


def _use_vectors(model: Any) -> None:
    if isinstance(model, Embeds):
        model.embed(QUERIES)
    if isinstance(model, HasVectors):
        model.similar("red", 3)
        model.similarity("red", "blue")
    if isinstance(model, HasSenses):
        model.similar("york", 3, context=QUERIES[-1])
    if isinstance(model, VectorModel):
        model.similar("red", 3, approximate=True)
        model.analogy(["red", "ball"], ["blue"], 2, "mul")
    if isinstance(model, GraphModel):
        model.rank(model.number_triples(FACTS)[0], threads=1)
        model.complete("anna", "has", None, 3)
    if isinstance(model, ParagraphModel):
        model.similar_documents(QUERIES[0], 2)
