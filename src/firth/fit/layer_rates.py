"""Learning rates by layer: eta_(l - 1) = eta_l * decay (Howard and Ruder 2018, 3.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from firth.fit.optimisers import parameter_groups
from firth.nets.recipe import LearningRecipe


def depths(network: nn.Module) -> dict[str, int]:
    """The depth of each parameter of a network: 0 for embeddings, then the layer number from 1."""
    found = {}
    for name, _ in network.named_parameters():
        parts = name.split(".")
        below = parts[0] == "embedding"
        found[name] = 0 if below else int(parts[parts.index("layers") + 1]) + 1 if "layers" in parts else -1
    top = max(found.values(), default=0)
    return {name: top if depth < 0 else depth for name, depth in found.items()}


def groups_by_depth(
    parameters: Iterable[tuple[int, Tensor]], top: int, decay: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Parameter groups whose factor of the learning rate is decay^(top - depth); `parameters` have their depths."""
    by_depth: dict[int, list[Tensor]] = {}
    for depth, parameter in parameters:
        by_depth.setdefault(depth, []).append(parameter)
    found = []
    for depth, some in sorted(by_depth.items()):
        found += parameter_groups(some, weight_decay, decay ** (top - depth))
    return [group for group in found if group["params"]]


def pretraining_groups(network: nn.Module, heads: nn.Module, learning: LearningRecipe) -> list[dict[str, Any]] | None:
    """The parameter groups of further pre-training with lower rates in lower layers; None: all have the same rate.

    The output layer and the layers of objectives are above the last layer, and so is an embedding that the output layer
    is tied to, as in the authors' program.
    """
    if learning.layer_decay == 1:
        return None
    by_name, known = depths(network), set()
    top = max(by_name.values(), default=0) + 1
    output = getattr(network, "output", None)
    tied = {id(one) for one in output.parameters()} if isinstance(output, nn.Module) else set()
    found = []
    for name, parameter in network.named_parameters():
        found.append((top if id(parameter) in tied else by_name[name], parameter))
        known.add(id(parameter))
    found += [(top, parameter) for parameter in heads.parameters() if id(parameter) not in known]
    return groups_by_depth(found, top, learning.layer_decay, learning.weight_decay)
