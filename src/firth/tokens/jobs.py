"""What workers do with blocks: cut them into numbered chunks, encode them, or encode chunks.

A job handles one block after the other. What it gives is a reply: a small JSON object and arrays, so that it can cross
a pipe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from firth.text.layout import Block, Layout
from firth.text.segment import make_segmenter
from firth.tokens.cutting import Cutter
from firth.tokens.encoder import Encoder
from firth.tokens.lines import Lines, read_block
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import id_type
from firth.tokens.tokenizer import Tokenizer

_MOST_BYTES = 1 << 26  # of distinct chunks that a job holds; then it numbers them anew


class Reply(NamedTuple):
    """What comes back from a job."""

    facts: dict[str, Any]
    arrays: list[Any]
    """Contiguous arrays; those that have crossed a pipe are bytes."""


class Setup(NamedTuple):
    """All that a worker needs to know to do its job."""

    job: str
    recipe: TokenizerRecipe
    layout: Layout
    tokenizer: bytes = b""
    dictionary: str | None = None
    made: Tokenizer | None = None
    """The tokenizer itself, for workers in this process."""

    @classmethod
    def of(cls, job: str, tokenizer: Tokenizer, layout: Layout = "lines") -> Setup:
        """The setup of a job that is done with a tokenizer."""
        dictionary = str(tokenizer.dictionary) if tokenizer.dictionary else None
        return cls(job, tokenizer.recipe, layout, tokenizer.data, dictionary, tokenizer)

    def to_reply(self) -> Reply:
        facts = {"job": self.job, "recipe": asdict(self.recipe), "layout": self.layout, "dictionary": self.dictionary}
        return Reply(facts, [self.tokenizer])

    @classmethod
    def from_reply(cls, reply: Reply) -> Setup:
        facts = reply.facts
        recipe = TokenizerRecipe(**facts["recipe"])
        return cls(facts["job"], recipe, facts["layout"], reply.arrays[0], facts["dictionary"])

    def make_tokenizer(self) -> Tokenizer:
        return self.made or Tokenizer(self.tokenizer, self.recipe, Path(self.dictionary) if self.dictionary else None)


class Job(Protocol):
    def block(self, block: Block) -> Reply: ...


class CutJob:
    """Cuts blocks into chunks. The reply holds sentences, their chunks by number, and the chunks that are new.

    Each worker has numbers of its own; `first` is the number of the first new chunk.
    """

    def __init__(self, setup: Setup) -> None:
        self.layout = setup.layout
        # Where words may not be cut at word breaks, text is taken as it stands.
        name = setup.recipe.segmenter if setup.recipe.separable else "space"
        self.cutter = Cutter(setup.recipe, make_segmenter(name, Path(setup.dictionary) if setup.dictionary else None))

    def block(self, block: Block) -> Reply:
        table = self.cutter.table
        if table.size > _MOST_BYTES:
            table.clear()
        first = len(table)
        lines = read_block(block, self.layout, self.cutter.pairs)
        chunks = self.cutter.cut(lines)
        return _reply(lines, {"first": first}, [chunks, table.lines(first).copy()])


class EncodeJob:
    """Encodes blocks. The reply holds sentences, their ids, word starts and lengths."""

    def __init__(self, setup: Setup) -> None:
        self.layout = setup.layout
        tokenizer = setup.make_tokenizer()
        self.encoder = Encoder(tokenizer)
        self.dtype = id_type(len(tokenizer))

    def block(self, block: Block) -> Reply:
        lines = read_block(block, self.layout, self.encoder.pairs)
        encoded = self.encoder.encode_lines(lines)
        return _reply(lines, {}, [encoded.ids.astype(self.dtype), encoded.starts, encoded.lengths])


class ChunksJob:
    """Encodes chunks, of which a block has one a line. The reply holds lengths, ids and word starts."""

    def __init__(self, setup: Setup) -> None:
        self.encoder = Encoder(setup.make_tokenizer())

    def block(self, block: Block) -> Reply:
        return Reply({}, [*self.encoder.encode_chunks(block.data.decode().split("\n")[:-1])])


JOBS: dict[str, Callable[[Setup], Job]] = {"cut": CutJob, "encode": EncodeJob, "chunks": ChunksJob}


def _reply(lines: Lines, facts: dict[str, Any], arrays: list[Any]) -> Reply:
    return Reply({"parted": lines.parted, **facts}, [lines.text, lines.opens, *arrays])
