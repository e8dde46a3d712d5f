"""Training nets: a session plans, learns, validates and keeps its state until the budget is spent."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.optim import Optimizer

from firth.counts.runs import memory_available
from firth.errors import RecipeError, TrainingError
from firth.fit import settle
from firth.fit.batches import Batches, vocabulary_of
from firth.fit.checkpoints import Checkpoints
from firth.fit.curves import CURVE, METRICS, MetricsFile, draw_curve, to_lines
from firth.fit.loop import AHEAD, Learner, Plan, State, Step, ahead, learn, make_learner, measure_losses, supplies
from firth.fit.optimisers import make_optimiser, optimiser_arrays, restore_optimiser
from firth.fit.preflight import Watch, describe, make_plan
from firth.fit.train import Run, Trained
from firth.nets.batch import Batch
from firth.nets.heap import keep_memory
from firth.nets.model import NetModel, make_model
from firth.nets.network import Vocabulary
from firth.nets.recipe import NetRecipe
from firth.progress import note, patience, progress
from firth.recipes.values import recipe_to_json
from firth.tokens.build import open_store
from firth.tokens.spelling import Spelling
from firth.tokens.store import TokenStore
from firth.tokens.tokenizer import MASK, Tokenizer

Arrays = dict[str, npt.NDArray[Any]]

_RECORDS = 200  # lines of metrics in a run, about
_VALIDATIONS = 20  # in a run, about
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


@contextmanager
def machine(threads: int | None) -> Iterator[None]:
    """So many threads, sums always in the same order, memory kept between steps; afterwards as it was."""
    keep_memory()
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.set_num_threads(threads or os.cpu_count() or 1)
    torch.set_deterministic_debug_mode("error")
    memory.fill_uninitialized_memory = False  # nothing reads it, and filling takes time
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_deterministic_debug_mode(before[1])
        memory.fill_uninitialized_memory = filled


@dataclass
class Session:
    """A run that is going on."""

    recipe: NetRecipe
    seed: int
    vocabulary: Vocabulary
    learner: Learner
    optimiser: Optimizer
    batches: Batches
    plan: Plan
    state: State
    valid: Sequence[Batch]
    keeper: Checkpoints | None
    file: MetricsFile
    threads: int
    began: float
    """When it would have, had it never been interrupted."""
    best: Arrays = field(default_factory=dict)
    """The parameters that were best in validation."""

    @property
    def rate(self) -> float:
        """The highest learning rate."""
        assert isinstance(self.recipe.learning.rate, float | int)
        return self.recipe.learning.rate

    @property
    def elapsed(self) -> float:
        """Seconds of the run, those before it was interrupted included."""
        return time.monotonic() - self.began

    def share(self, parts: int) -> int:
        """How many of so many equal parts of the plan are done."""
        return int(parts * self.plan.amount(self.state) / self.plan.total)

    def learn(self) -> None:
        """Learns until the plan is fulfilled or validation has shown no progress for too long."""
        self.file.begin(self.state.records)
        try:
            self._learn()
            self._finish()
        except TrainingError as error:
            raise TrainingError(f"{error}: {self._remedy()}") from None
        if self.best:
            self.learner.restore(self.best)

    def _learn(self) -> None:
        made = supplies(self.batches, self.learner, self.recipe, self.plan, self.state)
        watch = Watch()
        with (
            closing(ahead(made, AHEAD)) as supply,
            progress("learning", self.plan.tokens, "tokens") as advance,
            patience() as interrupted,
        ):
            advance(self.state.tokens)
            shares = self.share(_RECORDS), self.share(_VALIDATIONS)
            for step in self._steps(supply):
                advance(step.tokens, f"loss {step.loss:.3f}")
                before, shares = shares, (self.share(_RECORDS), self.share(_VALIDATIONS))
                if shares != before:
                    self._record(step, validated=shares[1] != before[1])
                if watch.look(self.plan, self.plan.amount(self.state), self.elapsed) and self.plan.changed == 1:
                    note("the machine is faster or slower than measured: the plan is changed to end in time")
                stop = interrupted()
                if self.keeper is not None and (stop or self.keeper.due()):
                    self.keep()
                if stop:
                    raise KeyboardInterrupt
                if self.recipe.learning.patience and self.state.waited >= self.recipe.learning.patience:
                    note(f"no progress in {self.state.waited} validations: the best state is kept")
                    return

    def _steps(self, supply: Iterator[Any]) -> Iterator[Step]:
        """Learns; after each step its losses are added up."""
        steps = learn(
            self.learner, self.optimiser, supply, self.plan, self.state, self.recipe.learning, self.rate, self.seed
        )
        for step in steps:
            for name, (total, count) in step.losses.items():
                sums = self.state.sums.setdefault(name, [0.0, 0])
                self.state.sums[name] = [sums[0] + total, sums[1] + count]
            yield step

    def _finish(self) -> None:
        """The last record, with validation."""
        if not self.state.records or self.state.records[-1]["step"] < self.state.step:
            self._record(None, validated=True)
        elif self.valid and "valid_loss" not in self.state.records[-1]:
            self.state.records[-1] |= self._validate()

    def _record(self, step: Step | None, *, validated: bool) -> None:
        """Notes how it goes: the mean losses since the last time and, if asked for, those on held-out text."""
        state, last = self.state, self.state.records[-1] if self.state.records else {"tokens": 0, "seconds": 0.0}
        losses = {name: total / count for name, (total, count) in state.sums.items() if count}
        seconds = self.elapsed
        record = {
            "step": state.step,
            "tokens": state.tokens,
            "seconds": round(seconds, 3),
            "flops": state.flops,
            "passes": round(state.tokens / self.batches.tokens, 4),
            "loss": sum(losses.values()) if losses else None,
            "losses": losses,
            "rate": step.rate if step else None,
            "gradient_norm": step.norm if step else None,
            "tokens_per_second": round((state.tokens - last["tokens"]) / max(seconds - last["seconds"], 1e-9), 1),
        }
        if validated and self.valid:
            record |= self._validate()
        state.sums = {}
        state.records.append(record)
        self.file.append(record)

    def _validate(self) -> dict[str, Any]:
        """The losses on held-out text; remembers the parameters if they are the best so far."""
        losses = measure_losses(self.learner, self.valid)
        loss = sum(losses.values())
        if not math.isfinite(loss):
            raise TrainingError(f"the loss on held-out text is infinite after step {self.state.step}")
        if self.state.best is None or loss < self.state.best:
            self.state.best, self.state.waited = loss, 0
            if self.recipe.learning.patience:
                self.best = {name: array.copy() for name, array in self.learner.arrays().items()}
        else:
            self.state.waited += 1
        return {"valid_loss": loss, "valid_losses": losses}

    def keep(self) -> None:
        """Writes all that is needed to go on; refuses to if a parameter is infinite."""
        assert self.keeper is not None
        arrays = self.learner.arrays()
        if not all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f"):
            raise TrainingError(f"a parameter is infinite after step {self.state.step}")
        arrays |= optimiser_arrays(self.optimiser, self.learner)
        arrays |= {f"best.{name}": array for name, array in self.best.items()}
        self.state.seconds = self.elapsed
        state = {"plan": asdict(self.plan), "state": asdict(self.state), "threads": self.threads}
        self.keeper.keep(arrays, state)

    def take_up(self, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Goes on with what was kept."""
        self.plan, self.state = Plan(**state["plan"]), State(**state["state"])
        self.learner.restore(arrays)
        restore_optimiser(self.optimiser, self.learner, arrays)
        self.best = {
            name.removeprefix("best."): np.array(array) for name, array in arrays.items() if name.startswith("best.")
        }
        self.began = time.monotonic() - self.state.seconds
        if state["threads"] != self.threads:
            note(f"this run began with {state['threads']} threads: with {self.threads} the last digits will differ.")

    def _remedy(self) -> str:
        smaller = f"learning.rate={self.rate / 2:.2g}"
        if self.keeper is None:
            return f"train with --set {smaller}, say."
        return f"go on from the last good state with --resume --set {smaller}, say."


def open_session(
    recipe: NetRecipe, run: Run, tokenizer: Tokenizer, store: TokenStore, start: NetModel | None
) -> Session:
    """A run with its plan, new or taken up where it was interrupted."""
    if recipe.learning.patience and run.valid is None:
        raise RecipeError("learning.patience waits for progress on held-out text: give some with --valid.")
    # Output layers are built by the counts: those of the first text, where a model is gone on from.
    vocabulary = vocabulary_of(tokenizer, store)
    first = vocabulary if start is None else Vocabulary(tokenizer.vocabulary, start.counts)
    learner = make_learner(recipe, first, run.seed)
    learner.network.output.prepare(store)
    if start is not None:
        learner.restore(learner.arrays() | {_full_name(name): array for name, array in start.arrays().items()})
    objectives = list(learner.objectives.values())
    valid = None if run.valid is None else open_store(run.valid, tokenizer, run.threads)
    session = Session(
        recipe=recipe,
        seed=run.seed,
        vocabulary=vocabulary,
        learner=learner,
        optimiser=make_optimiser(recipe.learning, learner, 0.0),
        batches=Batches(recipe, store, objectives, run.seed),
        plan=Plan("tokens", 1.0, 1),
        state=State(),
        valid=(),
        keeper=_keeper(recipe, run, store, valid),
        file=MetricsFile(run.out),
        threads=torch.get_num_threads(),
        began=time.monotonic(),
    )
    if session.batches.split:
        note(f"{session.batches.split:,} sentences were longer than rows of {recipe.rows.length} tokens and were split")
    kept = session.keeper.kept() if session.keeper is not None else None
    if kept is not None:
        session.take_up(*kept)
    else:
        _plan(session, run)
    if valid is not None:
        least, most = _VALID_TOKENS
        size = min(max(round(_VALID_SHARE * session.plan.tokens), least), most)
        session.valid = Batches(recipe, valid, objectives, run.seed).fixed(size)
    return session


def _plan(session: Session, run: Run) -> None:
    """Measures and plans; the plan is kept before the first step, so that it is the same for whoever goes on."""
    limit = settle.is_free(run.settings, "learning.epochs")
    session.plan, pace = make_plan(session.learner, session.batches, session.recipe, run.budget, run.seed, limit=limit)
    note(describe(session.plan, pace, session.learner, session.batches.tokens))
    if run.budget is None and session.plan.tokens < session.recipe.learning.epochs * session.batches.tokens:
        note("that is what ten minutes allow: give a --budget for more")
    if session.keeper is not None:
        session.keep()


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
