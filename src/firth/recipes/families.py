"""The types of recipes and their names in manifests."""

from __future__ import annotations

from firth.counts.recipe import CacheRecipe, ClassRecipe, MaxentRecipe, MixtureRecipe, NgramRecipe
from firth.nets.recipe import NetRecipe
from firth.recipes.ensemble import EnsembleRecipe
from firth.tasks.recipe import LinearRecipe, ManyRecipe, TaskRecipe
from firth.tokens.recipe import TokenizerRecipe
from firth.vectors.recipe import (
    BagRecipe,
    BrownRecipe,
    ClassifierRecipe,
    GloveRecipe,
    GraphRecipe,
    ImportedRecipe,
    ParagraphRecipe,
    QuantisedRecipe,
    SenseRecipe,
    SifRecipe,
    StaticRecipe,
    SvdRecipe,
    VectorRecipe,
    Word2vecRecipe,
)

Recipe = (
    TokenizerRecipe
    | NgramRecipe
    | CacheRecipe
    | MixtureRecipe
    | ClassRecipe
    | MaxentRecipe
    | VectorRecipe
    | NetRecipe
    | EnsembleRecipe
    | TaskRecipe
    | ManyRecipe
    | LinearRecipe
)

FAMILIES: dict[str, type[Recipe]] = {
    "tokenizer": TokenizerRecipe,
    "ngram": NgramRecipe,
    "cache": CacheRecipe,
    "mixture": MixtureRecipe,
    "classes": ClassRecipe,
    "maxent": MaxentRecipe,
    "bag": BagRecipe,
    "svd": SvdRecipe,
    "brown": BrownRecipe,
    "word2vec": Word2vecRecipe,
    "glove": GloveRecipe,
    "graph": GraphRecipe,
    "senses": SenseRecipe,
    "sif": SifRecipe,
    "static": StaticRecipe,
    "paragraph": ParagraphRecipe,
    "classifier": ClassifierRecipe,
    "imported-vectors": ImportedRecipe,
    "quantised-vectors": QuantisedRecipe,
    "nets": NetRecipe,
    "ensemble": EnsembleRecipe,
    "task": TaskRecipe,
    "many": ManyRecipe,
    "linear": LinearRecipe,
}
