"""Families of Hugging Face models: one file each, which alone knows the family's name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from firth.artifact.formats.huggingface_family import ModelType
from firth.artifact.formats.huggingface_registry import MODEL_TYPES, model_type_for, model_type_of, nearest_family
from firth.errors import AbilityError
from firth.nets.recipe import NetRecipe
from firth.recipes.nets import SIZES, resize
from firth.recipes.table import RECIPES

ROOT = Path(__file__).resolve().parents[2] / "src" / "firth"
REGISTRY = "huggingface_registry"
EVERY = pytest.mark.parametrize("name", MODEL_TYPES)
NETS = {name: made for name, entry in RECIPES.items() if isinstance(made := entry.make(), NetRecipe)}


def home(family: ModelType) -> str:
    """The module of a family, without its package."""
    return type(family).__module__.rpartition(".")[2]


def architectures(family: ModelType) -> set[str]:
    own = {family.architecture, family.pair_architecture, *family.pipelines}
    return {*own, *(one.architecture for one in family.head_classes.values())} - {""}


def mentions(tree: ast.AST, family: ModelType) -> Iterator[str]:
    """Where code names a family: its model type or classes as text, its class, an attribute such as `is_xlm`."""
    texts = {family.name, *architectures(family)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in texts:
            yield f"line {node.lineno}: {node.value!r}"
        if isinstance(node, ast.Name) and node.id == type(family).__name__:
            yield f"line {node.lineno}: {node.id}"
        if isinstance(node, ast.Attribute) and node.attr == f"is_{family.name.replace('-', '_')}":
            yield f"line {node.lineno}: {node.attr}"


def foreign_mentions(family: ModelType) -> list[str]:
    """Mentions outside the family's file and the registry; descendants may build on a family's class."""
    found = []
    homes = {home(one) for one in MODEL_TYPES.values()}
    for path in sorted((ROOT / "artifact").rglob("*.py")):
        if path.stem == REGISTRY or path.stem == home(family):
            continue
        named = mentions(ast.parse(path.read_text(encoding="utf-8")), family)
        found += [f"{path.name}: {one}" for one in named if path.stem not in homes or repr(family.name) in one]
    return found


@EVERY
def test_a_family_is_named_in_its_own_file_alone(name: str) -> None:
    assert foreign_mentions(MODEL_TYPES[name]) == []


def test_the_check_finds_a_name() -> None:
    xlm = MODEL_TYPES["xlm"]
    for code in ("if model_type.name == 'xlm': pass", "x.is_xlm", "isinstance(x, Xlm)", "a = ['XLMWithLMHeadModel']"):
        assert list(mentions(ast.parse(code), xlm)), code
    assert not list(mentions(ast.parse("x = 'xlms'; y = xlm()"), xlm))


def test_only_the_registry_and_descendants_import_a_family() -> None:
    homes = {home(family) for family in MODEL_TYPES.values()}
    for path in sorted(ROOT.rglob("*.py")):
        nodes = [
            node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)
        ]
        modules = {(node.module or "").rpartition(".")[2] for node in nodes}
        if path.stem != REGISTRY and path.stem not in homes:
            assert not modules & homes, path


@EVERY
def test_a_family_is_the_model_type_of_its_published_recipe(name: str) -> None:
    family = MODEL_TYPES[name]
    assert (family.name, model_type_of({"model_type": name})) == (name, family)
    published = family.published()
    assert nearest_family(published) is family
    assert model_type_for(published) is family
    assert model_type_for(resize(published, "tiny")) is family


@EVERY
def test_names_of_tensors_are_unique(name: str) -> None:
    table = MODEL_TYPES[name].names
    assert len(set(table.values())) == len(table)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("recipe", NETS)
def test_every_recipe_is_exported_or_refused_with_the_part(recipe: str, size: str) -> None:
    resized = NETS[recipe] if NETS[recipe].output.kind == "direct" else resize(NETS[recipe], size)
    try:
        assert model_type_for(resized).name in MODEL_TYPES
    except AbilityError as error:
        assert "Hugging Face has no such model (" in str(error)  # noqa: PT017
