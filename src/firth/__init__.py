"""Firth: training of every kind of language model, from n-grams to BERT, on English and Chinese text.

Train a recipe on text and use the model:

    model = firth.train("mkn3", "news.txt", out="news-model")
    model = firth.load("news-model")
    model.score(["a sentence"]), model.generate("the stock")

The functions are named as the verbs of the command line. docs/python.md shows each with an example.

>>> import firth
>>> sorted(firth.__all__)[:3]
['Client', 'Corpus', 'FirthError']
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firth.api import embed as embed
    from firth.api import evaluate as evaluate
    from firth.api import export as export
    from firth.api import fill as fill
    from firth.api import generate as generate
    from firth.api import import_ as import_
    from firth.api import load as load
    from firth.api import predict as predict
    from firth.api import score as score
    from firth.api import similar as similar
    from firth.api import verify as verify
    from firth.artifact.folder import artifact_info
    from firth.artifact.formats import export_model as export_model
    from firth.artifact.formats import import_model as import_model
    from firth.errors import FirthError as FirthError
    from firth.fit.adapt import adapt as adapt
    from firth.fit.compress.run import compress as compress
    from firth.fit.finetune import finetune as finetune
    from firth.fit.mixing import mix as mix
    from firth.fit.noise import noise as noise
    from firth.fit.train import train as train
    from firth.recipes.table import find_recipe as find_recipe
    from firth.service.client import Client as Client
    from firth.text.check import check_corpus as check_corpus
    from firth.text.corpus import Corpus as Corpus
    from firth.text.corpus import read_corpus as read_corpus
    from firth.tokens.build import open_store as open_store

    info = artifact_info

__version__ = "0.1.0"

# Threads of PyTorch that wait for each other spin for milliseconds, while the one they wait for may need their core: on
# a busy machine training is much faster if they soon sleep. The library reads this when PyTorch loads it.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
# Matrix products that give the same bits with any number of threads.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

# Names are imported when they are first used, so that `import firth` and `firth --help` stay fast.
_MODULES = {
    "Client": "firth.service.client",
    "Corpus": "firth.text.corpus",
    "FirthError": "firth.errors",
    "adapt": "firth.fit.adapt",
    "check_corpus": "firth.text.check",
    "compress": "firth.fit.compress.run",
    "embed": "firth.api",
    "evaluate": "firth.api",
    "export": "firth.api",
    "export_model": "firth.artifact.formats",
    "fill": "firth.api",
    "find_recipe": "firth.recipes.table",
    "finetune": "firth.fit.finetune",
    "generate": "firth.api",
    "import_": "firth.api",
    "import_model": "firth.artifact.formats",
    "info": "firth.artifact.folder",
    "load": "firth.api",
    "mix": "firth.fit.mixing",
    "noise": "firth.fit.noise",
    "open_store": "firth.tokens.build",
    "predict": "firth.api",
    "read_corpus": "firth.text.corpus",
    "score": "firth.api",
    "similar": "firth.api",
    "train": "firth.fit.train",
    "verify": "firth.api",
}
_OTHER_NAMES = {"info": "artifact_info"}  # in their modules
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'firth' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), _OTHER_NAMES.get(name, name))
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
