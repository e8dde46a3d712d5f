"""quantise: numbers in fewer bits, and fewer n-grams.

Each type of model has its function, registered with `quantise`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, ClassVar, Literal

from firth.abilities import without_tasks
from firth.artifact.models import load
from firth.counts.ngram import NgramModel
from firth.counts.train import compress_ngram
from firth.errors import RecipeError
from firth.fit.compress.method import Compressed, CompressionJob, Method
from firth.fit.compress.quantise_network import quantise_network
from firth.nets.model import NetModel
from firth.recipes.values import recipe_to_json
from firth.tasks.many import ManyModel
from firth.tasks.task import TaskModel
from firth.vectors.model import VectorModel
from firth.vectors.quantised import QuantisedModel, quantise_linear, quantise_product
from firth.vectors.recipe import QuantisedRecipe


@dataclass(frozen=True, kw_only=True)
class FewBitsOptions:
    """The options of quantise."""

    vectors: Literal["8bit", "product"] = "8bit"
    """Word vectors: 8 bits for each number, or product quantisation."""
    parts: int = 0
    """product: parts of a vector with a code of 8 bits each; 0: one for each four dimensions, if that is possible."""
    prune: float = 0.0
    """N-grams: drop those whose removal raises perplexity by less than this fraction, such as 1e-8."""
    embeddings: bool = True
    """Networks: the tables of tokens and positions have 8 bits, too; they are most of a small model."""

    def __post_init__(self) -> None:
        if not 0 <= self.prune < 1:
            raise RecipeError(f"prune={self.prune} must be 0 or a small fraction such as 1e-8.")
        if self.parts < 0:
            raise RecipeError(f"parts={self.parts} must be 0 or more.")


class FewBits(Method):
    """Fewer bits."""

    name = "quantise"
    options: ClassVar[type] = FewBitsOptions
    keeps_ngrams: ClassVar[bool] = True

    def refusal(self, job: CompressionJob) -> str:
        if quantise.dispatch(type(job.model)) is quantise.dispatch(object):
            return f"quantise has no way for a {type(job.model).__name__}: choose --method distil or static."
        return refuse(job.model)

    def run(self, job: CompressionJob, options: FewBitsOptions) -> Compressed:
        return quantise(job.model, job, options)


@singledispatch
def quantise(model: Any, job: CompressionJob, options: FewBitsOptions) -> Compressed:
    """The model in fewer bits."""
    raise TypeError(f"{type(model).__name__} is not quantised")


@singledispatch
def refuse(model: Any) -> str:
    """Why a model of a type that can be quantised cannot be; empty if it can."""
    return ""


@quantise.register
def _(model: NgramModel, job: CompressionJob, options: FewBitsOptions) -> Compressed:
    small = compress_ngram(model, options.prune, "8bit", job.threads)
    kept, all_ngrams = small.trie.words.size, model.trie.words.size
    said = f"log-probabilities have 8 bits; {kept:,} of {all_ngrams:,} n-grams are kept"
    return Compressed(model=small, notes=[said])


@refuse.register
def _(model: NgramModel) -> str:
    if model.recipe.smoothing == "church-gale":
        return "church-gale models cannot be pruned or quantised: train another smoothing."
    return ""


@quantise.register
def _(model: VectorModel, job: CompressionJob, options: FewBitsOptions) -> Compressed:
    dimension = model.vectors.shape[1]
    parts, books = 0, None
    if options.vectors == "product":
        parts = options.parts or next((dimension // size for size in (4, 5, 3, 2) if dimension % size == 0), dimension)
        codes, scales, books = quantise_product(model.vectors, parts, job.seed)
        said = f"a vector has {parts} codes of 8 bits instead of {dimension} numbers of 32"
    else:
        codes, scales = quantise_linear(model.vectors)  # type: ignore[assignment]
        said = "the numbers of vectors have 8 bits instead of 32"
    recipe = QuantisedRecipe(
        tokenizer=model.tokenizer.recipe,
        phrases=getattr(model.recipe, "phrases", 0),
        source=str(recipe_to_json(model.recipe)["type"]),
        parts=parts,
    )
    arguments = (recipe, model.tokenizer, model.layout)
    others: dict[str, Any] = {"counts": model.counts, "words": model.words, "phrases": model.phrases}
    small = QuantisedModel(*arguments, codes=codes, scales=scales, codebooks=books, **others)
    return Compressed(model=small, notes=[said, "on disk only: in memory, vectors are numbers of 32 bits"])


@quantise.register
def _(model: NetModel | TaskModel | ManyModel, job: CompressionJob, options: FewBitsOptions) -> Compressed:
    small = load(job.artifact.folder, verify=False)  # the original stays as it is
    return Compressed(model=small, notes=quantise_network(without_tasks(small).network, options.embeddings))


@refuse.register
def _(model: VectorModel) -> str:
    if type(model) is not VectorModel:
        return (
            f"quantise is for plain word vectors and n-gram models, and a {type(model).__name__} has more than those: "
            "export its vectors with firth export word2vec and import them."
        )
    return ""
