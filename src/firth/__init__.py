"""Firth: raw text, English and Chinese first, into every kind of language model of the lineage.

>>> import firth
>>> sorted(firth.__all__)[:3]
['Corpus', 'FirthError', 'adapt']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firth.artifact.folder import artifact_info as info
    from firth.artifact.formats import export_model, import_model
    from firth.artifact.models import load
    from firth.errors import FirthError
    from firth.fit.adapt import adapt
    from firth.fit.finetune import finetune
    from firth.fit.mixing import mix
    from firth.fit.train import train
    from firth.recipes.table import find_recipe
    from firth.text.check import check_corpus
    from firth.text.corpus import Corpus, read_corpus
    from firth.tokens.build import open_store

__version__ = "0.1.0"

# Names are imported when they are first used, so that `firth --help` waits for none of them.
_HOMES = {
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
_NAMES = {"info": "artifact_info"}
__all__ = [
    "Corpus",
    "FirthError",
    "adapt",
    "check_corpus",
    "export_model",
    "find_recipe",
    "finetune",
    "import_model",
    "info",
    "load",
    "mix",
    "open_store",
    "read_corpus",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'firth' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), _NAMES.get(name, name))
