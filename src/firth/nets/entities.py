"""EntityTable: the vectors of entities, and the names by which they are found in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as f
from torch import Tensor, nn

from firth.nets.entity_recipe import EntitiesRecipe
from firth.nets.visibility import EntityInputs
from firth.tokens.gazetteer import Gazetteer, NameTable, WordBounds

ENTITIES = "entities"
"""The key of entity numbers in `Batch.side_ids`; 0: none."""


class EntityTable(nn.Module):
    """Row 0 is that of no entity; entity n, counted from 1, has the vector of row n."""

    vectors: Tensor
    """(entities + 1, width)."""
    keys: Tensor
    """(forms,): the sorted hashes of the tokens of names, as signed numbers."""
    numbers: Tensor
    """(forms,): the entity of each."""
    longest: Tensor
    """(vocabulary,): the most tokens of a name that begins with each token."""
    names: Tensor
    """The names in UTF-8, with line breaks between them."""
    owners: Tensor
    """(names,): the entity of each name."""

    def __init__(self, recipe: EntitiesRecipe, tokens: Sequence[str]) -> None:
        super().__init__()
        self._tokens = tokens
        vectors = torch.zeros(recipe.count + 1, recipe.width)
        if recipe.trained:
            self.vectors = nn.Parameter(vectors)
        else:
            self.register_buffer("vectors", vectors)
        self.register_buffer("keys", torch.zeros(recipe.forms, dtype=torch.int64))
        self.register_buffer("numbers", torch.zeros(recipe.forms, dtype=torch.int32))
        self.register_buffer("longest", torch.zeros(len(tokens), dtype=torch.uint8))
        self.register_buffer("names", torch.zeros(recipe.name_bytes, dtype=torch.uint8))
        self.register_buffer("owners", torch.zeros(recipe.names, dtype=torch.int32))

    @torch.no_grad()
    def fill(self, vectors: npt.NDArray[np.float32], gazetteer: Gazetteer, table: NameTable) -> None:
        """Set the vectors, the names, and the names as tokens; their sizes are those of the recipe."""
        self.vectors[1:] = torch.from_numpy(vectors).to(self.vectors)
        self.keys.copy_(torch.from_numpy(table.keys.view(np.int64)))
        self.numbers.copy_(torch.from_numpy(table.numbers))
        self.longest.copy_(torch.from_numpy(table.longest.astype(np.uint8)))
        self.names.copy_(torch.from_numpy(np.frombuffer(gazetteer.joined, dtype=np.uint8).copy()))
        self.owners.copy_(torch.from_numpy(np.array(gazetteer.numbers)))

    @property
    def gazetteer(self) -> Gazetteer:
        """The names and their entities."""
        names = self.names.numpy().tobytes().decode(errors="replace")
        return Gazetteer(tuple(names.split("\n")) if names else (), "the model", self.owners.numpy())

    @cached_property
    def titles(self) -> dict[int, str]:
        """The first name of each entity that has one."""
        gazetteer = self.gazetteer
        named = zip(gazetteer.entries, gazetteer.numbers.tolist(), strict=False)
        return {number: name for name, number in reversed(list(named))}

    @cached_property
    def _bounds(self) -> WordBounds:
        return WordBounds(self._tokens)

    def link(self, ids: Tensor) -> Tensor:
        """(batch, length): the entity of each name at its first token, by longest match; 0 elsewhere."""
        flat = ids.flatten().numpy(force=True)
        links = np.zeros(flat.size, dtype=np.int32)
        if len(self.keys):
            keys, numbers, longest = (one.numpy(force=True) for one in (self.keys, self.numbers, self.longest))
            rows = np.arange(len(ids) + 1, dtype=np.int64) * ids.shape[1]
            alone = np.zeros(len(self._tokens), dtype=np.bool_)
            table = NameTable(keys.view(np.uint64), numbers, longest)
            table.mark(flat, self._bounds.starts(flat), rows, alone, links=links)
        return torch.from_numpy(links.astype(np.int64)).view_as(ids).to(ids.device)

    def inputs(self, links: Tensor, sequence_ids: Tensor | None) -> EntityInputs | None:
        """The second stream of inputs for the entities of a batch; None if it has none."""
        is_entity = links > 0
        if not bool(is_entity.any()):
            return None
        vectors = f.embedding(links, self.vectors) * is_entity[..., None]
        return EntityInputs(vectors, is_entity | first_of_linked(is_entity, sequence_ids))


def first_of_linked(is_entity: Tensor, sequence_ids: Tensor | None) -> Tensor:
    """(batch, length): true for the first token of each sequence that has an entity.

    >>> is_entity = torch.tensor([[False, True, False, False]])
    >>> first_of_linked(is_entity, torch.tensor([[0, 0, 1, 1]])).tolist()
    [[True, False, False, False]]
    """
    sequences = torch.zeros_like(is_entity, dtype=torch.int64) if sequence_ids is None else sequence_ids + 1
    counts = torch.zeros(len(sequences), int(sequences.max()) + 1, dtype=torch.int64, device=sequences.device)
    counts.scatter_add_(1, sequences, is_entity.to(torch.int64))
    begins = torch.ones_like(is_entity)
    begins[:, 1:] = sequences[:, 1:] != sequences[:, :-1]
    return begins & (counts.gather(1, sequences) > 0)
