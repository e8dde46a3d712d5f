"""Training nets: from a recipe and a token store to a session of learning, and to a model."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from firth.counts.runs import memory_available
from firth.errors import RecipeError
from firth.fit import settle
from firth.fit.batches import Batches, vocabulary_of
from firth.fit.checkpoints import Checkpoints
from firth.fit.curves import CURVE, METRICS, MetricsFile, draw_curve, to_lines
from firth.fit.first_vectors import first_vectors, warm_up
from firth.fit.loop import Learner, Plan, State, make_learner, measure_losses
from firth.fit.optimisers import make_optimiser
from firth.fit.preflight import describe, make_plan
from firth.fit.session import Session, machine
from firth.fit.train import Run, Trained
from firth.nets.batch import Batch
from firth.nets.model import NetModel, make_model
from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.progress import note
from firth.recipes.values import recipe_to_json
from firth.tokens.build import open_store
from firth.tokens.spelling import Spelling
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import MASK, Tokenizer

_VALID_TOKENS = (1_000, 50_000)  # of held-out text that are looked at each time, at least and at most
_VALID_SHARE = 0.01  # of the tokens of a run that these may be


def train_net(
    recipe: NetRecipe,
    run: Run,
    tokenizer: Tokenizer,
    store: TokenStore,
    start: NetModel | None = None,
) -> Trained:
    """The network that the recipe makes of the store, as far as the budget goes; from `start` on if it is given."""
    if run.seed < 0:
        raise RecipeError(f"--seed {run.seed} must be 0 or more.")
    if recipe.encoder.source:
        raise RecipeError(
            "a text alone has no source to look at: leave encoder.source out, and give --decoder to finetune."
        )
    recipe = _settle(recipe, run, tokenizer, store)
    settle.require_memory(recipe, len(tokenizer), memory_available())
    with machine(run.threads):
        session = open_session(recipe, run, tokenizer, store, start)
        session.learn()
        return _trained(session, run, tokenizer, store, start)


def _settle(recipe: NetRecipe, run: Run, tokenizer: Tokenizer, store: TokenStore) -> NetRecipe:
    """The recipe with all that was left open filled in; tells what was chosen."""
    recipe, known = recipe.with_tokenizer(tokenizer.recipe), len(tokenizer)
    if run.named:
        chosen = []
        if run.size is None:
            recipe, why = settle.settle_size(recipe, run.settings, store, known, run.budget)
            chosen.append(why)
        recipe, why = settle.settle_rest(recipe, run.settings, store, known, run.budget)
        chosen.append(why)
        if any(chosen):
            note("chosen: " + "; ".join(filter(None, chosen)))
    return settle.fill_in(recipe, known)


def open_session(
    recipe: NetRecipe, run: Run, tokenizer: Tokenizer, store: TokenStore, start: NetModel | None
) -> Session:
    """A run with its plan, new or taken up where it was interrupted."""
    if recipe.learning.patience and run.valid is None:
        raise RecipeError("learning.patience waits for progress on held-out text: give some with --valid.")
    # Output layers are built by the counts: those of the first text, where a model is gone on from.
    vocabulary = vocabulary_of(tokenizer, store)
    first = vocabulary if start is None else Vocabulary(tokenizer.vocabulary, start.counts)
    valid = None if run.valid is None else open_store(run.valid, tokenizer, run.threads)
    keeper = _keeper(recipe, run, store, valid)
    kept = keeper.kept() if keeper is not None else None
    vectors, spent = None, 0.0
    if kept is None and start is None and recipe.embedding.start == "vectors":
        tokens = settle.vector_tokens(recipe, len(tokenizer), run.budget, store.facts.tokens)
        warm_up(tokenizer, store, recipe.embedding.width)
        began = time.monotonic()
        vectors = first_vectors(tokenizer, store, recipe.embedding.width, tokens, run.seed, run.threads)
        spent = time.monotonic() - began
    learner = make_learner(recipe, first, run.seed, vectors)
    learner.network.output.prepare(store)
    if start is not None:
        learner.restore(learner.arrays() | {_full_name(name): array for name, array in start.arrays().items()})
    objectives = list(learner.objectives.values())
    batches = Batches(recipe, store, objectives, run.seed)
    session = Session(
        recipe=recipe,
        seed=run.seed,
        vocabulary=vocabulary,
        learner=learner,
        optimiser=make_optimiser(recipe.learning, learner, 0.0),
        batches=batches,
        plan=Plan("tokens", 1.0, 1),
        state=State(),
        keeper=keeper,
        file=MetricsFile(run.out),
        threads=torch.get_num_threads(),
        began=time.monotonic() - spent,
        keep_best=recipe.learning.patience > 0,
    )
    if batches.split:
        note(f"{batches.split:,} sentences were longer than rows of {recipe.rows.length} tokens and were split")
    if kept is not None:
        session.take_up(*kept)
    else:
        _plan(session, run)
    if valid is not None:
        least, most = _VALID_TOKENS
        size = min(max(round(_VALID_SHARE * session.plan.tokens), least), most)
        session.valid = Batches(recipe, valid, objectives, run.seed).fixed(size)
        session.examine = lambda: _examine(learner, session.valid)
    if kept is None:
        if start is not None and session.examine is not None:
            session.state.first = session.examine()["valid_loss"]
        if session.keeper is not None:  # before the first step, so that the plan is the same for whoever goes on
            session.keep()
    return session


def _examine(learner: Learner, parts: Sequence[Batch]) -> dict[str, Any]:
    """The losses on held-out text."""
    losses = measure_losses(learner, parts)
    return {"valid_loss": sum(losses.values()), "valid_losses": losses}


def _plan(session: Session, run: Run) -> None:
    """Measures and plans."""
    recipe, batches, most = session.recipe, session.batches, math.inf
    if settle.is_free(run.settings, "learning.epochs"):
        most = settle.tokens_within(recipe, len(session.vocabulary), None, batches.tokens)
    session.plan, pace = make_plan(
        session.learner, batches, recipe, run.budget, run.seed, most=most, spent=session.elapsed
    )
    note(describe(session.plan, pace, session.learner, batches.tokens))
    if run.budget is None and session.plan.tokens < recipe.learning.epochs * batches.tokens:
        note("that is what an ordinary machine does in ten minutes: give a --budget for more")


def _keeper(recipe: NetRecipe, run: Run, store: TokenStore, valid: TokenStore | None) -> Checkpoints | None:
    """What keeps the state of the run, if it has a folder. Whoever goes on may take smaller steps, no other recipe."""
    if run.out is None:
        return None
    settings = recipe_to_json(recipe)
    settings["learning"] = {key: value for key, value in settings["learning"].items() if key != "rate"}
    identity = {
        "recipe": settings,
        "store": store.digest,
        "seed": run.seed,
        "budget": run.budget.text if run.budget else None,
        "valid": valid.digest if valid else None,
        "start": run.start,
    }
    return Checkpoints(run.out, json.loads(json.dumps(identity)), run.resume)


def _full_name(name: str) -> str:
    """The learner's name of an array of a model."""
    return name if name.startswith("heads.") else f"network.{name}"


def _trained(session: Session, run: Run, tokenizer: Tokenizer, store: TokenStore, start: NetModel | None) -> Trained:
    learner, state, recipe = session.learner, session.state, session.recipe
    heads = {} if start is None else dict(start.heads)
    heads |= {f"heads.{name}": tensor for name, tensor in learner.heads.state_dict().items()}
    once = np.flatnonzero(session.vocabulary.counts == 1)
    spelling = Spelling.train(tokenizer.vocabulary[word] for word in once.tolist() if word > MASK)
    model = make_model(recipe, learner.network, tokenizer, run.corpus.layout, spelling, heads)
    last = next((record for record in reversed(state.records) if record["losses"]), state.records[-1])
    valid = next((record for record in reversed(state.records) if "valid_loss" in record), None)
    metrics = {
        "parameters": sum(parameter.numel() for parameter in learner.parameters()),
        "steps": state.step,
        "passes": state.records[-1]["passes"],
        "loss": last["loss"],
        "losses": last["losses"],
        "split_sentences": session.batches.split,
    }
    if valid is not None:
        metrics["valid_loss"] = state.best if session.best else valid["valid_loss"]
    if state.first is not None:
        metrics["valid_loss_before"] = state.first
    if session.plan.changed:
        metrics["plan_changed"] = session.plan.changed
    return Trained(
        model,
        recipe,
        store,
        {"seconds": session.elapsed, "tokens": state.tokens, "flops": state.flops},
        metrics,
        {METRICS: to_lines(state.records), CURVE: draw_curve(state.records, " + ".join(recipe.names))},
    )
