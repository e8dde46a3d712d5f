"""Training of networks: from a recipe and a corpus to a trainer and a model."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from firth.cores import cores
from firth.errors import RecipeError
from firth.fit import resolve
from firth.fit.batches import Batches, Cursor, vocabulary_of
from firth.fit.cost import TrainingCosts
from firth.fit.knowledge import KnowledgeArrays, note_links, require_knowledge, with_entities, without_common_words
from firth.fit.languages import language_mixture, with_languages
from firth.fit.layer_rates import pretraining_groups
from firth.fit.layouts import staged_batches, with_material
from firth.fit.loop import BatchSource, TrainingModule, make_training_module, measure_losses, weighted_sum
from firth.fit.mixed_corpus import mixes_sources, with_sources
from firth.fit.mixture import MixtureSource
from firth.fit.ngrams import hold_out, kept_ngrams, train_ngrams, weigh, with_ngrams
from firth.fit.optimisers import make_optimiser
from firth.fit.parallel import make_batches
from firth.fit.preflight import describe, make_plan
from firth.fit.run import TrainingResult, TrainingRun
from firth.fit.source_mixture import SourceMixture, source_mixture
from firth.fit.staged import StagedSource
from firth.fit.trainer import NetTrainer, note_threads, torch_settings
from firth.fit.units import note_units, recipe_columns
from firth.fit.word_classes import learn_word_classes, word_text
from firth.lm.language_model import UnknownWordModel
from firth.memory import memory_available
from firth.nets.batch import Batch
from firth.nets.model import WORD_CLASSES, NetModel
from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.nets.restore import make_model
from firth.nets.with_ngrams import without_ngrams
from firth.objectives.heads.head import ObjectiveHead
from firth.progress import note
from firth.recipes.values import recipe_to_json
from firth.records import MetricsFile, record_files
from firth.text.corpus import Corpus
from firth.text.multilingual import MultilingualCorpus
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import MASK, Tokenizer
from firth.training import TrainingPlan
from firth.vectors.job import VectorJob
from firth.vectors.recipe import Word2vecRecipe
from firth.vectors.text import TrainingText, training_text
from firth.vectors.word2vec import train_word2vec

_VALID_TOKENS = (1_000, 50_000)  # least and most tokens of held-out text per validation
_VALID_FRACTION = 0.01  # of the tokens of a run


def train_net(recipe: NetRecipe, run: TrainingRun, start: NetModel | None = None) -> TrainingResult:
    """The network trained on the corpus within the budget; with `start`, its parameters are trained further."""
    kept = kept_ngrams(start, recipe)
    start = None if start is None else without_ngrams(start)
    recipe = with_languages(recipe, run.corpus, further=start is not None)
    recipe = with_sources(recipe, run.corpus, further=start is not None)
    require_knowledge(recipe, run.knowledge)
    run = _without_common_words(recipe, run)
    held = hold_out(run) if recipe.ngrams.order and kept is None else None
    run = run if held is None else held.run
    if run.tokenizer is None and run.named:
        recipe, reason = resolve.resolve_vocabulary(recipe, run.settings, run.corpus)
        if reason:
            note(f"chosen: {reason}")
    tokenizer, store = run.open_tokens(recipe.tokenizer, recipe_columns(recipe, run.gazetteer, run.knowledge))
    recipe = with_material(recipe, store, run.settings, further=start is not None)
    note_units(recipe.columns, store, run.gazetteer)
    links: dict[str, float] = {}
    entities = None
    if run.knowledge is not None:
        entities = run.knowledge.arrays(tokenizer)
        recipe, links = with_entities(recipe, entities), note_links(store, run.knowledge)
    if run.seed < 0:
        raise RecipeError(f"--seed {run.seed} must be 0 or more.")
    if not recipe.objectives:
        raise RecipeError("the recipe has no objective to train with: set objectives=clm or objectives=mlm, say.")
    if recipe.encoder.cross_width:
        raise RecipeError(
            "a text alone has no encoder states to attend to: leave encoder.cross_width out, and give --decoder to "
            "finetune."
        )
    costs = TrainingCosts(vocabulary_of(tokenizer, store))
    recipe = _resolve(recipe, run, tokenizer, store, costs)
    resolve.require_memory(recipe, costs, memory_available())
    heads, spent = ({}, 0.0) if start is not None else _word_classes(recipe, run, tokenizer, store, costs)
    ngrams = None if held is None else train_ngrams(recipe, held, tokenizer)
    if ngrams is not None:
        recipe, spent = ngrams.recipe, spent + ngrams.seconds
    with torch_settings(run.threads):
        trainer = open_trainer(recipe, run, tokenizer, store, start, costs, entities, spent)
        trainer.train()
        result = _result(trainer, run, tokenizer, store, heads if start is None else dict(start.heads))
        if ngrams is not None:
            weighted = weigh(result.model, ngrams)
            metrics = {**result.metrics, "weights": weighted.shares}
            result = replace(result, model=with_ngrams(result.model, weighted, recipe), metrics=metrics)
        elif kept is not None:
            result = replace(result, model=with_ngrams(result.model, kept, recipe))
        return result if run.knowledge is None else replace(result, metrics={**result.metrics, **links})


def _word_classes(
    recipe: NetRecipe, run: TrainingRun, tokenizer: Tokenizer, store: TokenStore, costs: TrainingCosts
) -> tuple[dict[str, torch.Tensor], float]:
    """The tensors of the classes of words, found in as many words as the run has tokens, and the seconds it took."""
    if not recipe.word_classes:
        return {}, 0.0
    words = round(resolve.tokens_within(recipe, costs, run.budget, store.info.tokens))
    compile_kernels(tokenizer, store, recipe.embedding.width)
    word_text(store, tokenizer, 0)  # which is also compiled
    began = time.monotonic()
    found = learn_word_classes(store, tokenizer, recipe.word_classes, run.seed, run.threads, words)
    if found is None:
        note("the text has no classes of words, for it is mostly Chinese, or too small")
    arrays = {} if found is None else found.arrays()
    heads = {WORD_CLASSES + name: torch.from_numpy(array) for name, array in arrays.items()}
    return heads, time.monotonic() - began


def _without_common_words(recipe: NetRecipe, run: TrainingRun) -> TrainingRun:
    """The run with names that its network can tell from ordinary words; those of a trained network are kept."""
    tokens = recipe.tokenizer if run.tokenizer is None else run.tokenizer.recipe
    if run.knowledge is None or not run.knowledge.source or not tokens.lowercase:
        return run
    knowledge = without_common_words(run.knowledge, run.corpus.sentences())
    return replace(run, knowledge=knowledge, gazetteer=knowledge.gazetteer)


def _resolve(
    recipe: NetRecipe, run: TrainingRun, tokenizer: Tokenizer, store: TokenStore, costs: TrainingCosts
) -> NetRecipe:
    """The recipe with all unset fields filled in; notes what was chosen."""
    recipe = recipe.with_tokenizer(tokenizer.recipe)
    if run.named:
        reasons = []
        recipe, output = resolve.resolve_output(recipe, run.settings, store, costs, run.budget)
        if run.size is None:
            recipe, reason = resolve.resolve_size(recipe, run.settings, store, costs, run.budget)
            reasons.append(reason)
        recipe, reason = resolve.resolve_rest(recipe, run.settings, store, costs, run.budget)
        reasons += [reason, output]
        if any(reasons):
            note("chosen: " + "; ".join(filter(None, reasons)))
    return resolve.fill_in(recipe, len(tokenizer))


def open_trainer(
    recipe: NetRecipe,
    run: TrainingRun,
    tokenizer: Tokenizer,
    store: TokenStore,
    start: NetModel | None,
    costs: TrainingCosts | None = None,
    entities: KnowledgeArrays | None = None,
    spent: float = 0.0,
) -> NetTrainer:
    """A new or resumed run with its plan; the network reads `entities`. `spent` are seconds of its budget."""
    if recipe.learning.patience and run.valid is None:
        raise RecipeError("learning.patience waits for progress on held-out text: give some with --valid.")
    resolve.require_dropout(recipe)
    costs = costs or TrainingCosts(vocabulary_of(tokenizer, store))
    vocabulary, valid = costs.vocabulary, run.open_valid(tokenizer, recipe_columns(recipe, run.gazetteer))
    settings = recipe_to_json(recipe)
    settings["learning"].pop("lr")  # a resumed run may use another one
    knowledge = {} if run.knowledge is None else {"knowledge": run.knowledge.digest}
    held_out_digest = valid.digest if valid else None
    checkpointer = run.checkpointer(settings, store, valid=held_out_digest, start=run.start, **knowledge)
    checkpoint = checkpointer.load() if checkpointer is not None else None
    vectors = None
    if checkpoint is None and start is None and recipe.embedding.init == "vectors":
        tokens = resolve.vector_tokens(recipe, costs, run.budget, store.info.tokens)
        compile_kernels(tokenizer, store, recipe.embedding.width)
        began = time.monotonic()
        vectors = embedding_init(tokenizer, store, recipe.embedding.width, tokens, run.seed, run.threads)
        spent += time.monotonic() - began
    # Output layers depend on token counts: in further training, those of the original text.
    counted = vocabulary if start is None else Vocabulary(tokenizer.vocabulary, start.counts)
    module = make_training_module(recipe, counted, run.seed, vectors)
    if run.auxiliary is not None:
        head = run.auxiliary(module.network, module.objectives)
        module.heads[head.name] = head
    module.network.output.prepare(store)
    if entities is not None and module.network.entities is not None:
        module.network.entities.fill(*entities)
    if start is not None:
        # Entities were filled in: a larger vocabulary changes the tokens of their names.
        given = {name: array for name, array in start.arrays().items() if not name.startswith("entities.")}
        names = {name: name if name.startswith("heads.") else f"network.{name}" for name in given}
        module.restore(module.arrays() | {names[name]: array for name, array in given.items()})
    objectives = module.objectives
    batches = _open_batches(recipe, run, run.corpus, tokenizer, store, objectives)
    began = time.monotonic() - spent
    if batches.split:
        note(f"{batches.split:,} sentences were longer than {recipe.sequence.length} tokens and were split")
    for remark in batches.remarks() if isinstance(batches, Batches | SourceMixture) else ():
        note(remark)
    if checkpoint is None:
        plan = _plan(recipe, run, module, batches, costs, began)
    else:
        plan = TrainingPlan.restored(checkpoint)
    evaluate = None
    if valid is not None:
        least, most = _VALID_TOKENS
        size = min(max(round(_VALID_FRACTION * plan.tokens), least), most)
        held_out = _open_batches(recipe, run, run.valid, tokenizer, valid, objectives)
        evaluate = partial(_evaluate, module, held_out.fixed(size))
    trainer = NetTrainer(
        recipe=recipe,
        seed=run.seed,
        vocabulary=vocabulary,
        module=module,
        optimiser=make_optimiser(
            recipe.learning, module, 0.0, pretraining_groups(module.network, module.heads, recipe.learning)
        ),
        batches=batches,
        plan=plan,
        lr=float(recipe.learning.lr),
        epoch_tokens=batches.tokens,
        checkpointer=checkpointer,
        file=MetricsFile(run.out),
        threads=run.threads,
        began=began,
        evaluate=evaluate,
        patience=recipe.learning.patience,
        restores_best=recipe.learning.patience > 0,
    )
    if checkpoint is not None:
        trainer.restore(*checkpoint)
        return trainer
    if start is not None and evaluate is not None:
        trainer.state.first = evaluate()["valid_loss"]
    if checkpointer is not None:  # before the first step, so that a resumed run has the same plan
        trainer.save()
    return trainer


def _open_batches(
    recipe: NetRecipe,
    run: TrainingRun,
    corpus: Corpus | None,
    tokenizer: Tokenizer,
    store: TokenStore,
    heads: Sequence[ObjectiveHead],
) -> Batches | MixtureSource | StagedSource:
    """The batches of a text, or the mixture of those of several languages; of several stages those of each."""
    if isinstance(corpus, MultilingualCorpus):
        return language_mixture(recipe, corpus, tokenizer, heads, run.seed, run.threads)
    if corpus is not None and mixes_sources(recipe):
        return source_mixture(recipe, corpus, tokenizer, heads, run.seed, run.threads)
    if len(recipe.stages) > 1 or any(one.lays_out for one in recipe.objectives):
        return staged_batches(recipe, store, heads, run.seed)
    return make_batches(recipe, store, heads, run.seed)


def _evaluate(module: TrainingModule, parts: Sequence[Batch]) -> dict[str, Any]:
    losses = measure_losses(module, parts)
    return {"valid_loss": weighted_sum(losses, module.weights()), "valid_losses": losses}


def _plan(
    recipe: NetRecipe,
    run: TrainingRun,
    module: TrainingModule,
    batches: BatchSource,
    costs: TrainingCosts,
    began: float,
) -> TrainingPlan:
    """Measure the speed and plan the run."""
    most = math.inf
    if resolve.is_unset(run.settings, "learning.epochs"):
        most = resolve.tokens_within(recipe, costs, None, batches.tokens)
    spent = time.monotonic() - began
    plan, throughput = make_plan(module, batches, recipe, run.budget, run.seed, most=most, spent=spent)
    note_threads(run.threads)
    note(describe(plan, throughput, module, batches.tokens))
    if run.budget is None and plan.tokens < recipe.learning.epochs * batches.tokens:
        note("that is ten minutes of training on an ordinary machine: give a --budget for more")
    return plan


def _result(
    trainer: NetTrainer, run: TrainingRun, tokenizer: Tokenizer, store: TokenStore, heads: dict[str, torch.Tensor]
) -> TrainingResult:
    """The trained model with its metrics; it keeps the `heads` of the one before."""
    module, state, recipe = trainer.module, trainer.state, trainer.recipe
    heads = heads | module.head_tensors()
    once = np.flatnonzero(trainer.vocabulary.counts == 1)
    unknown_word_model = UnknownWordModel.train(tokenizer.vocabulary[word] for word in once.tolist() if word > MASK)
    model = make_model(recipe, module.network, tokenizer, run.corpus.layout, unknown_word_model, heads)
    last = next((record for record in reversed(state.records) if record["losses"]), state.records[-1])
    valid = next((record for record in reversed(state.records) if "valid_loss" in record), None)
    metrics = {
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "steps": state.step,
        "threads": torch.get_num_threads(),
        "epochs": state.records[-1]["epochs"],
        "loss": last["loss"],
        "losses": last["losses"],
        "split_sentences": trainer.batches.split,
    }
    if isinstance(trainer.batches, Batches):
        metrics |= trainer.batches.metrics()
    if isinstance(trainer.batches, SourceMixture):
        metrics |= trainer.batches.metrics(Cursor(state.epoch, state.row))
    if valid is not None:
        metrics["valid_loss"] = state.best if trainer.best else valid["valid_loss"]
    if state.first is not None:
        metrics["valid_loss_before"] = state.first
    if trainer.plan.changed:
        metrics["plan_changed"] = trainer.plan.changed
    spent = {"seconds": trainer.elapsed, "tokens": state.tokens, "flops": state.flops}
    return TrainingResult(model, store, spent, metrics, record_files(state.records, " + ".join(recipe.names)))


Floats = npt.NDArray[np.float32]


def embedding_init(
    tokenizer: Tokenizer, store: TokenStore, width: int, tokens: int, seed: int, threads: int | None
) -> Floats:
    """(vocabulary, width): directions of CBOW vectors trained on a number of tokens; threads do not matter."""
    note(f"initial embeddings: CBOW reads {tokens:,} tokens")
    text = training_text(store, tokenizer)
    return directions(_cbow(text, tokenizer, width, tokens, seed, threads), text.counts)


def compile_kernels(tokenizer: Tokenizer, store: TokenStore, width: int) -> None:
    """Compile the kernels of CBOW, half a minute after installation, which should not count towards a time budget."""
    _cbow(training_text(store, tokenizer), tokenizer, width, tokens=1, seed=0, threads=1)


def _cbow(
    text: TrainingText, tokenizer: Tokenizer, width: int, tokens: int, seed: int, threads: int | None
) -> npt.NDArray[np.floating]:
    recipe = Word2vecRecipe(tokenizer=tokenizer.recipe, dimension=width, architecture="cbow")
    job = VectorJob(text=text, tokenizer=tokenizer, layout="lines", seed=seed, threads=cores(threads), tokens=tokens)
    return np.asarray(train_word2vec(recipe, job).model.vectors)


def directions(vectors: npt.NDArray[np.floating], counts: npt.NDArray[np.int64]) -> Floats:
    """Unit vectors of the differences to the mean; zeros for tokens that do not occur in the text.

    >>> directions(np.array([[9.0, 9.0], [3.0, 1.0], [1.0, 1.0]]), np.array([0, 5, 5])).tolist()
    [[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]
    """
    occurs = counts[: len(vectors)] > 0
    centred = np.where(occurs[:, None], vectors - vectors[occurs].mean(0), 0.0)
    return np.asarray(centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12), dtype=np.float32)
