"""Further training on new text, such as that of a domain."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from firth.abilities import without_tasks
from firth.arguments import check_licence, require_list, require_path
from firth.artifact.any_model import AnyModel
from firth.artifact.folder import Artifact, open_artifact
from firth.artifact.models import load, save
from firth.counts.ngram import NgramModel
from firth.errors import AbilityError, ArgumentError, BudgetError, RecipeError
from firth.files import require_free
from firth.fit.checkpoints import clear_finished, is_finished, require_place, training_place
from firth.fit.count_arithmetic import (
    change_counts,
    describe_change,
    is_model,
    model_counts,
    require_complete,
    text_counts,
)
from firth.fit.counts import count_metrics
from firth.fit.knowledge import ERNIE, knowledge_of, reading_entities
from firth.fit.mixed_corpus import mixes_sources, open_sources
from firth.fit.resolve import is_unset, without_dropout
from firth.fit.run import (
    Budget,
    Text,
    TrainingResult,
    TrainingRun,
    join_licences,
    open_corpus,
    open_languages,
    open_pairs,
    with_licence,
)
from firth.fit.train import open_gazetteer, reads_pairs, require_pairs, token_metrics
from firth.fit.vectors import adapt_vectors
from firth.nets.recipe import NetRecipe
from firth.progress import note
from firth.recipes.values import Settings, override, setting_list
from firth.tasks.recipe import base_name
from firth.text.corpus import Corpus
from firth.tokens.build import open_store
from firth.tokens.coverage import note_poor_coverage
from firth.tokens.recipe import MIN_VOCABULARY, TokenizerRecipe
from firth.tokens.special_tokens import PairFormat
from firth.tokens.tokenizer import Tokenizer
from firth.tokens.train import extend_tokenizer
from firth.vectors.model import VectorModel
from firth.vectors.recipe import Word2vecRecipe

_VECTOR_FIELDS = ("epochs", "lr", "mode", "subsample", "negatives", "window")  # that may be changed
_NET_FIELDS = (
    *("objectives", "sequence.format", "sentence.pooling", "sentence.similarity", "learning", "dropout"),
    "tokenizer.vocab_size",
)
"""Fields of networks that may be changed."""
_FIXED_NET_FIELDS = (
    *("tokenizer", "embedding", "encoder", "decoder", "visibility", "output", "languages", "sentence", "entities"),
    "word_classes",
)
_FINETUNED = ("task", "many")  # types of recipes of models whose network can be trained further
_SAMPLE = 1000  # documents by which a language is guessed
_GROWTH = 1.25  # factor by which a vocabulary grows by default


def adapt(
    model: str | Path,
    *corpora: Text,
    out: str | Path,
    add: Sequence[str | Path] = (),
    remove: Sequence[str | Path] = (),
    valid: Text | None = None,
    settings: Settings = (),
    budget: str | None = None,
    threads: int | None = None,
    resume: bool = False,
    field: str = "text",
    encoding: str | None = None,
    layout: str = "auto",
    licence: str | None = None,
    pair: str | None = None,
    expand: str | Path | None = None,
    entities: str | Path | None = None,
    knowledge: str | Path | None = None,
) -> AnyModel:
    """The model after further training on the corpora, saved in the folder `out`.

    The vocabulary of a tokenizer grows by a quarter or to `vocab_size`; the ids of its tokens stay. An n-gram model
    becomes exactly the one that training on all the text would give: texts and counts of other models are added, and
    with `remove` subtracted. Skip-gram, CBOW and fastText vectors are trained further, with new words. Networks, also
    those of fine-tuned models, are trained further with the same tokens as long as `budget` allows; `resume` continues
    an interrupted run. `licence` is that of the corpora, which is recorded after the licence of the model's own text.
    `pair` names the columns of parallel text, or two files without a corpus. `expand` is the folder of word vectors
    whose words a network of whole words gets, by a linear map; nothing is trained. With `knowledge`, the folder of a
    trained graph, a BERT becomes an ERNIE that reads its entities. `entities` is a file that names them, or without
    `knowledge` one of entities that are masked as a whole, for models such as ernie.
    """
    folder, settings = require_path(out, "out", "the folder to write"), setting_list(settings)
    add, remove = require_list(add, "add"), require_list(remove, "remove")
    check_licence(licence)
    artifact = open_artifact(require_path(model, "model", "the folder of a saved model"))
    is_net = artifact.manifest.kind == "nets" or artifact.manifest.recipe.get("type") in _FINETUNED
    if is_net:
        if is_finished(folder, resume):
            clear_finished(folder)
            return cast(AnyModel, load(folder))
        require_place(folder, resume)
    elif budget is not None or resume:
        raise BudgetError(
            f"{model} ({artifact.manifest.name}) reads its text at once: leave --budget and --resume out."
        )
    else:
        require_free(folder)
    if not (corpora or add or remove or pair or expand):
        raise RecipeError("nothing to adapt to was given: name a corpus, or --add, --remove or --expand.")
    old = without_tasks(load(model))
    if expand is not None:
        return _expand(artifact, old, expand, folder, bool(corpora or add or remove or pair or settings or budget))
    require_pairs(old.recipe, pair)
    if knowledge is not None and not is_net:
        raise ArgumentError("--knowledge is for networks as BERT: leave it out.")
    graph = knowledge_of(old, knowledge, entities) if is_net else None
    masking = override(old.recipe, settings) if is_net else old.recipe
    gazetteer = open_gazetteer(masking, entities) if graph is None else graph.gazetteer
    _require_own_format(old)
    own_licence = artifact.manifest.corpus.get("licence")
    joined = join_licences(own_licence, licence) if corpora or add or pair else own_licence

    def read(texts: Sequence[Text], kind: str) -> Corpus:
        if reads_pairs(old.recipe):
            return open_pairs(texts, pair, encoding)
        recipe = getattr(old, "recipe", None)
        if isinstance(recipe, NetRecipe) and recipe.embedding.languages:
            language = recipe.language or _language_of(old, texts)
            return open_languages(texts, 1.0, language, field=field, encoding=encoding, layout=kind)
        wanted = override(recipe, settings) if isinstance(recipe, NetRecipe) else None
        if isinstance(wanted, NetRecipe) and mixes_sources(wanted):
            return open_sources(wanted, texts, field=field, encoding=encoding, layout=kind)
        return open_corpus(texts, field, encoding, kind)

    if isinstance(old, NgramModel):
        given = [*((one, 1) for one in (*corpora, *add)), *((one, -1) for one in remove)]
        return cast(AnyModel, _adapt_counts(artifact, old, given, folder, read, valid, settings, threads, joined))
    if add or remove:
        raise AbilityError(
            f"{model} ({artifact.manifest.name}) holds no counts to add to: name a corpus without --add."
        )
    is_word2vec = isinstance(old, VectorModel) and isinstance(old.recipe, Word2vecRecipe)
    if not (is_net or is_word2vec or isinstance(old, Tokenizer)):
        raise AbilityError(f"{model} ({artifact.manifest.name}) cannot be trained further: train it on all the text.")
    corpus = read(corpora, layout)
    run = TrainingRun(
        corpus=corpus,
        valid=read((valid,), corpus.layout) if is_net and valid is not None else None,
        tokenizer=old.tokenizer,
        budget=Budget.parse(budget) if budget else None,
        seed=artifact.manifest.seed,
        threads=threads,
        out=folder,
        resume=resume,
        settings=settings,
        licence=joined,
        start=artifact.manifest.files["model.safetensors"].sha256 if is_net else None,
        gazetteer=gazetteer,
        knowledge=graph,
    )
    name = base_name(artifact.manifest.name) if knowledge is None else ERNIE
    adapt_model = _adapt_net if is_net else _adapt_vectors if is_word2vec else _adapt_tokenizer
    with training_place(folder, resume):
        adapt_model(old, run).save(folder, run, name, run.seed, {})
    return cast(AnyModel, load(folder, verify=False))


def _expand(artifact: Artifact, old: Any, vectors: str | Path, out: Path, has_more: bool) -> AnyModel:
    """A network with the words of other vectors."""
    from firth.fit.expansion import adapt_by_expansion

    if has_more:
        raise RecipeError("--expand adds words to a model as it is: leave the text, --set and --budget out.")
    adapt_by_expansion(artifact, old, require_path(vectors, "expand", "the folder of word vectors"), out)
    return cast(AnyModel, load(out, verify=False))


def _require_own_format(old: Any) -> None:
    """Refuse a model that reads pairs between other special tokens than those that training puts there."""
    if reads_pairs(old.recipe) and PairFormat.of(old.tokenizer) != PairFormat():
        raise AbilityError(
            "the imported model reads sources and targets between other special tokens than Firth trains with: use it "
            "with firth generate, or train a new one."
        )


def _adapt_tokenizer(old: Tokenizer, run: TrainingRun) -> TrainingResult:
    """A tokenizer with the tokens of a domain added."""
    wanted = override(old.recipe, run.settings)
    if not isinstance(wanted, TokenizerRecipe) or replace(wanted, vocab_size=old.recipe.vocab_size) != old.recipe:
        raise RecipeError("adapting keeps the kind of tokens: set vocab_size only.")
    size = wanted.vocab_size if run.settings else max(int(len(old) * _GROWTH), MIN_VOCABULARY)
    grown = extend_tokenizer(old, run.corpus, size or 0, run.threads)
    store, before = (open_store(run.corpus, one, run.threads) for one in (grown, old))
    metrics = token_metrics(store, grown) | {
        "added": len(grown) - len(old),
        "bytes_per_token_before": before.info.bytes / before.info.tokens,
        "unknown_share_before": before.info.unknown / before.info.tokens,
    }
    return TrainingResult(grown, store, run.spent(store.info.tokens), metrics)


def _adapt_net(old: Any, run: TrainingRun) -> TrainingResult:
    """A network after further pre-training, with its tokens or a larger vocabulary."""
    from firth.fit.backbones import grow_vocabulary
    from firth.fit.nets import train_net

    if not old.recipe.objectives:
        raise AbilityError("the network was made of word vectors and has no objective: adapt the vectors instead.")
    is_new = run.knowledge is not None and not old.recipe.entities.width
    original = reading_entities(old.recipe, run.knowledge) if run.knowledge and is_new else old.recipe
    recipe = cast(NetRecipe, override(original, run.settings))
    tokens = old.recipe.tokenizer
    if tokens != recipe.tokenizer == replace(tokens, vocab_size=recipe.tokenizer.vocab_size):
        old = grow_vocabulary(old, run.corpus, recipe.tokenizer.vocab_size or 0, run.threads)
        recipe, run = replace(recipe, tokenizer=old.recipe.tokenizer), replace(run, tokenizer=old.tokenizer)
    own = old.recipe.sentence
    similar = replace(recipe.sentence, pooling=own.pooling, similarity=own.similarity)
    wanted = replace(without_dropout(recipe), sentence=similar)
    given = without_dropout(replace(original, tokenizer=old.recipe.tokenizer))
    fixed = [part for part in _FIXED_NET_FIELDS if part != "entities" or not is_new]
    changed = [part for part in fixed if getattr(wanted, part) != getattr(given, part)]
    if changed:
        raise RecipeError(f"adapting keeps the network: set {', '.join(_NET_FIELDS)} only, not {changed[0]}.")
    note_poor_coverage(old.tokenizer, run.corpus.sentences())
    return train_net(recipe, run, old)


def _language_of(model: Any, texts: Sequence[Any]) -> str:
    """The language of texts that are given as lists, by their script; empty for files, which say their language."""
    lists = [one for one in texts if isinstance(one, list | tuple)]
    sentences = [
        one for text in lists for item in text[:_SAMPLE] for one in ([item] if isinstance(item, str) else item)
    ]
    if not sentences:
        return ""
    language = str(model.language_of(" ".join(sentences)))
    note(f"by its script, the text is taken for {language}")
    return language


def _adapt_vectors(old: VectorModel, run: TrainingRun) -> TrainingResult:
    """Vectors after further training, with new words."""
    recipe = cast(Word2vecRecipe, override(old.recipe, run.settings))
    if replace(recipe, **{name: getattr(old.recipe, name) for name in _VECTOR_FIELDS}) != old.recipe:
        raise RecipeError(f"adapting keeps the kind of vectors: set {', '.join(_VECTOR_FIELDS)} only.")
    if is_unset(run.settings, "epochs"):
        recipe = replace(recipe, epochs="auto")  # those of the first text say nothing about this one
    return adapt_vectors(old, recipe, run)


def _adapt_counts(
    artifact: Artifact,
    old: NgramModel,
    given: Sequence[tuple[Any, int]],
    out: Path,
    read: Callable[[Sequence[Text], str], Corpus],
    valid: Text | None,
    settings: Sequence[str],
    threads: int | None,
    licence: str | None,
) -> Any:
    """An n-gram model with the counts of texts and other models added or subtracted."""
    if settings:
        raise RecipeError("adapting keeps an n-gram model's recipe: train again to change it.")
    require_complete(old, str(artifact.folder))
    started = time.monotonic()
    terms = []
    for one, sign in given:
        if isinstance(one, str | Path) and is_model(one):
            terms.append(model_counts(Path(one), old, sign))
        else:
            corpus = read((one,), old.layout)
            note_poor_coverage(old.tokenizer, corpus.sentences())
            terms.append(text_counts(corpus, old, sign, threads))
    heldout = None if valid is None else read((valid,), old.layout)
    changed = change_counts(old, terms, heldout=heldout, seed=artifact.manifest.seed, threads=threads)
    tokens = sum(int(term.info.get("tokens", 0)) for term in terms)
    save(
        out,
        changed,
        name=artifact.manifest.name,
        recipe=changed.recipe,
        budget={"asked": None, "spent": {"seconds": time.monotonic() - started, "tokens": tokens}},
        corpus=with_licence(describe_change(artifact.manifest.corpus, terms), licence),
        seed=artifact.manifest.seed,
        metrics=count_metrics(changed),
    )
    return load(out, verify=False)
