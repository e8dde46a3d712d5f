"""NetModel: a trained network with its tokenizer. Subclasses can do what their objectives allow."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from firth.abilities import POOLINGS
from firth.arguments import ChecksArguments
from firth.errors import AbilityError
from firth.lm.language_model import UnknownWordModel
from firth.nets.contextual_vectors import Floats, embed_texts, layer_states, nearest_occurrences, pooled_sentences
from firth.nets.int8 import pack_arrays
from firth.nets.network import Network
from firth.nets.recipe import NetRecipe
from firth.nets.scoring import Integers, make_batch, max_length, one_line
from firth.nets.special_tokens import start_token
from firth.summaries import SummarisedModel
from firth.text.layout import Layout
from firth.tokens.encoder import TextEncoder
from firth.tokens.tokenizer import EOS, FIRST_WORD, Tokenizer
from firth.tokens.word_classes import WordClasses

WORD_CLASSES = "heads.word_classes."
"""Prefix of the tensors of the classes of words."""
_CHUNK = 4096  # tokens whose vectors are computed at once


class NetModel(SummarisedModel, ChecksArguments):
    """A network that makes vectors of tokens, words and texts."""

    def __init__(
        self,
        recipe: NetRecipe,
        network: Network,
        tokenizer: Tokenizer,
        layout: Layout,
        unknown_word_model: UnknownWordModel,
        heads: Mapping[str, Tensor],
    ) -> None:
        """`heads` are the parameters of the objectives, `heads.NAME.parameter`."""
        self.recipe = recipe
        self.network = network.cpu().eval()
        self.tokenizer = tokenizer
        self.layout = layout
        self.unknown_word_model = unknown_word_model
        self.counts = np.asarray(network.vocabulary.counts, dtype=np.int64)
        """Occurrences of each token in the training text."""
        self.heads = dict(heads)
        self.words = tokenizer.vocabulary
        self._encoder = TextEncoder(tokenizer)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that an artifact saves: parameters by name, shared ones once."""
        tensors = own_tensors(self.network) | self.heads
        return pack_arrays(tensors) | {"spelling": self.unknown_word_model.counts, "counts": self.counts}

    @cached_property
    def word_classes(self) -> WordClasses | None:
        """The classes of the words of the training text, if it was trained to tell them."""
        own = {name: one.numpy() for name, one in self.heads.items() if name.startswith(WORD_CLASSES)}
        return WordClasses.restore({name.removeprefix(WORD_CLASSES): array for name, array in own.items()})

    @property
    def start_token(self) -> int:
        """What a text begins with."""
        return start_token(self.recipe)

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that the network has embeddings of."""
        return self.recipe.languages

    def in_language(self, language: str) -> Self:
        """The same model for texts in one language, whatever their script; the parameters are shared."""
        if language not in self.languages:
            known = f"it knows {', '.join(self.languages)}" if self.languages else "it has no language embeddings"
            raise AbilityError(f"the model does not know the language {language!r:.80}: {known}.")
        recipe = replace(self.recipe, language=language)
        network = copy.copy(self.network)
        network.__dict__.pop("language_votes", None)
        network.recipe = recipe
        return type(self)(recipe, network, self.tokenizer, self.layout, self.unknown_word_model, self.heads)

    def language_of(self, text: str) -> str:
        """The language that a text is read in: that of `in_language`, or by its script; the first if that is unclear.

        Empty for a network without language embeddings.
        """
        if not self.languages:
            return ""
        ids = [one for one in self.tokenizer.encode(one_line(text)).ids if one >= FIRST_WORD] or [EOS]
        return self.languages[int(self.network.language_votes.choose(torch.tensor([ids]))[0, 0])]

    def logits(self, ids: Tensor) -> Tensor:
        """(batch, length, vocabulary): the logits of the network at each position of `ids` (batch, length)."""
        self.check_ids(ids)
        with torch.no_grad():
            states = self.network(make_batch(ids)).last_hidden_state
            return self.network.output.logits(states).view(*ids.shape, -1)

    def check_ids(self, ids: Tensor) -> None:
        """Raise `AbilityError` unless the network can read these ids."""
        if ids.dtype != torch.int64 or ids.dim() != 2 or not ids.numel():
            raise AbilityError("ids must be a LongTensor (batch, length), with at least one of each.")
        if int(ids.min()) < 0 or int(ids.max()) >= len(self.words):
            raise AbilityError(f"ids must be from 0 to {len(self.words) - 1}: use the ids of this model's tokenizer.")
        most = self.max_ids
        if most is not None and ids.shape[1] > most:
            raise AbilityError(f"the network has {most} positions, not {ids.shape[1]}: give shorter sequences.")

    @property
    def max_ids(self) -> int | None:
        """Maximal length of the rows of ids that the network reads; None if there is no limit."""
        return max_length(self.recipe)

    @property
    def text_similarity(self) -> str:
        """How vectors of texts are compared: cosine or angular."""
        return self.recipe.sentence.similarity

    def embed(self, texts: Sequence[str], *, layer: str | int = "last", pooling: str | None = None) -> Floats:
        """(texts, width): the vectors of sentences of the recipe, or pooled hidden states; zeros without tokens.

        By default the vectors are those that objectives of sentences train, or means of the last hidden states.
        `layer` is a number (0 is the embedding), last, mix (the mean of all, as ELMo's with equal weights) or all
        (concatenated). `pooling` is mean, whole (the mean with special tokens, as in sentence-transformers), max, last
        (token) or first: [CLS] where there is one.
        """
        part = self.recipe.sentence
        is_plain = part.pooling in POOLINGS and not (part.bigrams or part.layers)
        if pooling is None and layer == "last" and not is_plain:
            return pooled_sentences(self, texts)
        usual = part.pooling if part.pooling in POOLINGS else "mean"
        return embed_texts(self, texts, layer, usual if pooling is None else pooling)

    def layers(self, texts: Sequence[str]) -> list[list[Floats]]:
        """For each text the hidden states of its tokens (tokens, width), layer by layer, the embedding first.

        Networks of two directions have 2L + 1: the embedding, then each layer forwards and backwards (ELMo).
        """
        return layer_states(self, texts)

    def encode(self, sentences: Sequence[str]) -> list[Integers]:
        """The ids of each sentence, which must not contain line breaks."""
        encoded = self._encoder.encode(sentences)
        ids, ends = encoded.ids.astype(np.int64), np.cumsum(encoded.lengths).tolist()
        return [ids[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of each token that is not special."""
        return {word: row for row, word in enumerate(self.words) if row >= FIRST_WORD}

    @cached_property
    def vectors(self) -> Floats:
        """(vocabulary, width): the token embeddings."""
        with torch.inference_mode():
            chunks = torch.split(torch.arange(len(self.words)), _CHUNK)
            return np.asarray(torch.cat([self.network.embedding.tokens(some) for some in chunks]).numpy())

    @cached_property
    def _units(self) -> Floats:
        lengths = np.linalg.norm(self.vectors, axis=1, keepdims=True)
        return np.asarray(self.vectors / np.maximum(lengths, 1e-12))

    def row(self, word: str) -> int:
        """The row of a word that is one token; any other raises `AbilityError`."""
        ids = self._word_ids(word)
        if len(ids) != 1:
            raise AbilityError(f"{word!r} is {len(ids)} tokens, so it has no row of its own: use its vector.")
        return ids[0]

    def vector(self, word: str) -> Floats:
        """The vector of a word without context: the mean of its token embeddings."""
        return np.asarray(self.vectors[self._word_ids(word)].mean(axis=0))

    def similarity(self, one: str, two: str) -> float:
        """The cosine of the angle between two words' vectors."""
        first, second = (_unit(self.vector(word)) for word in (one, two))
        return float(np.clip(first @ second, -1, 1))

    def similar(
        self, word: str, count: int = 10, *, context: str | None = None, text: Sequence[str] = ()
    ) -> list[tuple[str, float]]:
        """The tokens nearest to a word by their vectors, and their cosines.

        With a context, the words nearest to the word in that context, of the sentences of `text` or of the context.
        """
        if context is not None:
            return [(near.word, near.score) for near in nearest_occurrences(self, word, context, text, count)]
        ids = self._word_ids(word)
        scores = self._units @ _unit(self.vector(word))
        scores[:FIRST_WORD] = -np.inf
        if len(ids) == 1:
            scores[ids] = -np.inf
        order = np.argsort(-scores, kind="stable")[: max(count, 0)]
        found = [(row, float(scores[row])) for row in order.tolist() if scores[row] > -np.inf]
        return [(self.token_text(row).strip() or self.words[row], score) for row, score in found]

    def token_text(self, token: int) -> str:
        """The text of a token, with the space before it if that is a part of it."""
        return str(self.tokenizer.backend.decode([token], skip_special_tokens=False)) or self.words[token]

    def _word_ids(self, word: str) -> list[int]:
        if word in self.rows:
            return [self.rows[word]]
        ids = [one for one in self.tokenizer.encode(one_line(word)).ids if one >= FIRST_WORD]
        if not ids:
            raise AbilityError(f"there is no vector for {word!r}: use a word that occurs often enough in the text.")
        return ids


def _unit(vector: Floats) -> Floats:
    length = np.linalg.norm(vector)
    return np.asarray(vector / length if length > 0 else vector)


def own_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; shared ones by their first name."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return dict(found.values())
