"""Firth: training of every kind of language model, from n-grams to BERT, on English and Chinese text.

>>> import firth
>>> sorted(firth.__all__)[:3]
['Corpus', 'FirthError', 'adapt']
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firth.artifact.folder import artifact_info
    from firth.artifact.formats import export_model as export_model
    from firth.artifact.formats import import_model as import_model
    from firth.artifact.models import load as load
    from firth.errors import FirthError as FirthError
    from firth.fit.adapt import adapt as adapt
    from firth.fit.finetune import finetune as finetune
    from firth.fit.mixing import mix as mix
    from firth.fit.train import train as train
    from firth.recipes.table import find_recipe as find_recipe
    from firth.text.check import check_corpus as check_corpus
    from firth.text.corpus import Corpus as Corpus
    from firth.text.corpus import read_corpus as read_corpus
    from firth.tokens.build import open_store as open_store

    info = artifact_info

__version__ = "0.1.0"

# Threads of PyTorch that wait for each other spin for milliseconds, while the one they wait for may need their core: on
# a busy machine training is four times as fast if they soon sleep. The library reads this when PyTorch loads it.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
# Matrix products that give the same bits with any number of threads; it costs nothing that can be measured.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

# Names are imported when they are first used, so that `firth --help` stays fast.
_MODULES = {
    "Corpus": "firth.text.corpus",
    "FirthError": "firth.errors",
    "adapt": "firth.fit.adapt",
    "check_corpus": "firth.text.check",
    "export_model": "firth.artifact.formats",
    "find_recipe": "firth.recipes.table",
    "finetune": "firth.fit.finetune",
    "import_model": "firth.artifact.formats",
    "info": "firth.artifact.folder",
    "load": "firth.artifact.models",
    "mix": "firth.fit.mixing",
    "open_store": "firth.tokens.build",
    "read_corpus": "firth.text.corpus",
    "train": "firth.fit.train",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'firth' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), "artifact_info" if name == "info" else name)
