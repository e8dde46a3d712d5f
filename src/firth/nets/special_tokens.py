"""The special tokens that a network reads before, between and after texts: in pre-training, in use, and in tasks."""

from __future__ import annotations

import torch
from torch import Tensor

from firth.nets.recipe import STREAMS, NetRecipe
from firth.tokens.special_tokens import SpecialTokens
from firth.tokens.tokenizer import BOS, EOS, MASK


def start_token(recipe: NetRecipe) -> int:
    """What a text begins with: `</s>` in the format `</s> a </s> b </s>` of streams, `[CLS]` in `[CLS] a b [SEP]`."""
    is_stream = recipe.sequence.format in STREAMS or recipe.visibility != "bidirectional"
    return EOS if is_stream else BOS


def task_special_tokens(recipe: NetRecipe) -> SpecialTokens:
    """Those of one text or two in a task.

    A network that reads both ways has them as in pre-training, with two separators if it has no segments (Liu et al.
    2019). A causal one gets start, delimiter and extract tokens (Radford et al. 2018).
    """
    if recipe.visibility == "bidirectional" and recipe.ends_with_class:  # a <sep> b <sep> <cls> (Yang et al. 2019)
        return SpecialTokens((), (EOS,), (EOS, BOS), 1, 2)
    if recipe.visibility == "bidirectional":
        segments = recipe.segments > 1
        return SpecialTokens((start_token(recipe),), (EOS,) if segments else (EOS, EOS), (EOS,), int(segments))
    if recipe.visibility == "causal" and recipe.encoder.kind != "none":
        return SpecialTokens((BOS,), (MASK,), (EOS,), 0)
    return SpecialTokens((EOS,), (EOS,), (EOS,), 0)


def with_start(ids: Tensor) -> Tensor:
    """(batch, length): the ids with `[CLS]` before a text, where causal networks have the end of the one before."""
    starts = torch.where(ids[:, :1] == EOS, BOS, ids[:, :1])
    return torch.cat([starts, ids[:, 1:]], 1)
