"""Token stores of given ids, and small recipes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from firth.nets.network import Vocabulary
from firth.nets.objective import Visibility
from firth.nets.recipe import (
    EmbeddingRecipe,
    EncoderRecipe,
    Format,
    LearningRecipe,
    NetRecipe,
    OutputRecipe,
    SequenceRecipe,
)
from firth.objectives.masking import Masking
from firth.objectives.mlm import MaskedLM
from firth.objectives.registry import parse_objectives
from firth.objectives.restoring import RestoringObjective
from firth.tokens.build import StoreWriter
from firth.tokens.encoder import EncodedSentences
from firth.tokens.recipe import TokenizerRecipe
from firth.tokens.store import TokenStore

Documents = Sequence[Sequence[Sequence[int]]]
VISIBILITY: dict[str, Visibility] = {
    "clm": "causal",
    "autoencoding": "causal",
    "bilm": "forward+backward",
    "context": "forward+backward",
}


class FakeTokenizer:
    """The tokenizer of a store."""

    digest = "none"

    def __init__(self, size: int) -> None:
        self.size = size
        self.vocabulary = [str(number) for number in range(size)]

    def __len__(self) -> int:
        return self.size


def store_of(documents: Documents, folder: Path, every: int = 1, vocabulary: int = 1000) -> TokenStore:
    """A store of sentences of ids, with words of `every` tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    sentences = [np.array(sentence, dtype=np.uint16) for document in documents for sentence in document]
    opens = np.array([position == 0 for document in documents for position, _ in enumerate(document)], dtype=bool)
    starts = [np.arange(sentence.size) % every == 0 for sentence in sentences]
    lengths = np.array([sentence.size for sentence in sentences], dtype=np.int64)
    with StoreWriter(folder, FakeTokenizer(vocabulary)) as writer:  # type: ignore[arg-type]
        if sentences:
            writer.add(EncodedSentences(np.concatenate(sentences), np.concatenate(starts), lengths), opens)
        facts = writer.finish("none", 0, 0)
    (folder / "store.json").write_text(facts.to_json())
    return TokenStore(folder)


def numbered(sizes: Sequence[Sequence[int]], first: int = 5) -> list[list[list[int]]]:
    """Documents with sentences of these sizes and distinct ids."""
    documents = []
    for lengths in sizes:
        ends = first + np.cumsum(lengths)
        documents.append([list(range(end - length, end)) for end, length in zip(ends, lengths, strict=True)])
        first = int(ends[-1])
    return documents


def random_documents(rng: np.random.Generator, documents: int, longest: int = 60) -> list[list[list[int]]]:
    """Documents of random sizes, with distinct ids below 65,000 tokens."""
    sizes = [[int(rng.integers(1, longest)) for _ in range(int(rng.integers(1, 30)))] for _ in range(documents)]
    return numbered(sizes)


def small_recipe(
    objectives: str,
    form: Format = "stream",
    length: int = 16,
    batch: int = 64,
    grad_accumulation: int = 1,
    **masking: object,
) -> NetRecipe:
    """A Transformer of width 8, or a bidirectional window for ranking."""
    ranking = objectives == "ranking"
    encoder = EncoderRecipe(layers=1, width=8, ffn_width=12, heads=2, dropout=0.0, attention_dropout=0.0)
    if ranking:
        encoder = replace(encoder, kind="window", context=2, activation="tanh", norm="none")
    permuted = objectives == "plm"
    if permuted:
        encoder = replace(encoder, positions="relative")
    pairs = form.endswith("-pair")
    parsed = parse_objectives(objectives)
    decodes = form == "parallel" or any(isinstance(one, RestoringObjective) for one in parsed)
    return NetRecipe(
        tokenizer=TokenizerRecipe(model="wordpiece", vocab_size=16_000, sentinels=5 if decodes else 0),
        embedding=EmbeddingRecipe(
            width=8,
            positions="none" if ranking or permuted else "learned",
            query=permuted,
            segments=6 if objectives == "unilm" else 2 if pairs else 0,
            languages=2 if "tlm" in objectives.split("+") else 0,
        ),
        encoder=encoder,
        visibility=VISIBILITY.get(objectives, "bidirectional"),
        objectives=tuple(
            replace(one, masking=Masking(**masking)) if isinstance(one, MaskedLM) else one  # type: ignore[arg-type]
            for one in parsed
        ),
        output=OutputRecipe(kind="negative" if objectives == "context" else "full"),
        sequence=SequenceRecipe(format=form, length=length),
        learning=LearningRecipe(batch=batch, grad_accumulation=grad_accumulation),
        decoder=encoder if decodes else None,
    )


def small_vocabulary(size: int = 40) -> Vocabulary:
    """Equally frequent tokens."""
    return Vocabulary([str(number) for number in range(size)], np.ones(size, dtype=np.int64))
