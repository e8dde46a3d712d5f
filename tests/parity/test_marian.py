"""The Transformer computes what Marian does in the transformers library, and beam search finds the same texts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from firth.decoding.generate import BeamSearch
from firth.nets.batch import Batch
from firth.nets.dropout import DropoutRng
from firth.nets.model import own_tensors
from firth.nets.network import Network, Vocabulary, build_network
from firth.nets.recipe import NetRecipe
from firth.nets.seq2seq import SourceDecoderState
from firth.nets.visibility import make_encoder_states
from firth.objectives.heads.build import make_heads
from firth.objectives.seq2seq import SequenceToSequence
from firth.recipes.nets import resize, transformer
from firth.tokens.tokenizer import BOS, EOS, FIRST_WORD, MASK, PAD, UNK
from tests.parity.marian_weights import from_marian, marian, to_marian

TOKENS = 40
SOURCES = [[7, 8, 9, 10, 11], [12, 13], [14, 15, 16, 17], [18, 19, 20]]
TARGETS = [[21, 22, 23], [24, 25, 26, 27, 28], [29], [30, 31, 32, 33]]


def recipe() -> NetRecipe:
    """A small Transformer without dropout and with the constants of Marian."""
    tiny = resize(transformer(), "tiny")
    part = replace(tiny.encoder, width=16, ffn_width=24, heads=2, eps=1e-5, dropout=0.0)
    return replace(
        tiny,
        embedding=replace(tiny.embedding, width=16, dropout=0.0),
        encoder=part,
        decoder=replace(part, layers=3, ffn_width=20, heads=4),
        sequence=replace(tiny.sequence, length=24),
    )


def network() -> Network:
    """Random weights."""
    made = build_network(recipe(), Vocabulary([f"w{n}" for n in range(TOKENS)], np.arange(TOKENS, 0, -1)), 1)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return made.double()


@cache
def trained_network(steps: int = 300) -> Network:
    """A network that has learned a little of copying, so that its texts end, and differ."""
    made, rng = build_network(recipe(), network().vocabulary, 1), np.random.default_rng(2)
    (head,) = make_heads(recipe(), made).values()
    optimiser = torch.optim.Adam(made.parameters(), lr=0.01)
    for _ in range(steps):
        texts = torch.from_numpy(rng.integers(FIRST_WORD, 21, (32, int(rng.integers(1, 7)))))
        ends, begins = (torch.full((32, 1), token) for token in (EOS, BOS))
        source = torch.cat([begins, texts, ends], 1)
        inputs = torch.cat([ends, texts + 19], 1)
        batch = Batch(inputs, inputs > 0, source=Batch(source, source > 0))
        loss = head.loss(made, made(batch), batch, None)
        optimiser.zero_grad()
        (loss.total / loss.count).backward()
        optimiser.step()
    return made.double().eval()


def packed_batch() -> Batch:
    """The pairs in two rows of two, padded."""
    rows = [(0, 1), (2, 3)]

    def side(texts: list[list[int]]) -> Batch:
        length = max(sum(len(texts[one]) for one in row) for row in rows) + 1
        ids, sequences, positions = (torch.full((2, length), fill) for fill in (PAD, -1, 0))
        for number, row in enumerate(rows):
            begin = 0
            for sequence, one in enumerate(row):
                end = begin + len(texts[one])
                ids[number, begin:end] = torch.tensor(texts[one])
                sequences[number, begin:end] = sequence
                positions[number, begin:end] = torch.arange(end - begin)
                begin = end
        return Batch(ids, ids >= FIRST_WORD, sequences, positions)

    batch = side([[EOS, *target] for target in TARGETS])
    batch.source = side([[BOS, *source, EOS] for source in SOURCES])
    return batch


def padded(texts: list[list[int]], value: int = PAD) -> Tensor:
    longest = max(map(len, texts))
    return torch.tensor([text + [value] * (longest - len(text)) for text in texts])


def test_weights_convert_both_ways() -> None:
    tensors = {name: tensor.detach() for name, tensor in own_tensors(network()).items()}
    again = from_marian(recipe(), to_marian(recipe(), tensors), tensors)
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_losses_and_gradients_are_those_of_marian(rate: float) -> None:
    """Packed pairs against padded ones; label smoothing against torch's, which is over the whole vocabulary."""
    ours, batch = network(), packed_batch()
    (head,) = make_heads(replace(recipe(), objectives=(SequenceToSequence(label_smoothing=rate),)), ours).values()
    states = ours(batch, head.positions(batch))
    loss = head.loss(ours, states, batch, DropoutRng(0, 0))  # nothing is dropped, but labels are smoothed
    loss.total.backward()

    theirs = marian(network())
    source = padded([[BOS, *one, EOS] for one in SOURCES])
    labels = padded([[*one, EOS] for one in TARGETS], -100)
    found = theirs(input_ids=source, attention_mask=(source != PAD).long(), labels=labels)
    total = torch.nn.functional.cross_entropy(
        found.logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum", label_smoothing=rate
    )
    total.backward()
    assert loss.count == sum(len(one) + 1 for one in TARGETS)
    # Both compute sinusoids in single precision, Marian in another order.
    assert loss.total.item() == pytest.approx(total.item(), rel=1e-7)
    gradients = {name: tensor.grad for name, tensor in own_tensors(ours).items() if tensor.grad is not None}
    wanted = {name: tensor.grad for name, tensor in theirs.named_parameters() if tensor.grad is not None}
    for name, gradient in to_marian(recipe(), gradients).items():
        if "embed_tokens" not in name:  # shared
            torch.testing.assert_close(gradient, wanted[name], rtol=0, atol=1e-6, msg=name)
    assert len(gradients) == len(own_tensors(ours)), "every parameter should have a gradient"


@pytest.mark.parametrize(("beams", "penalty", "limit"), [(1, 1.0, 9), (3, 0.6, 20), (4, 1.0, 20), (5, 0.0, 20)])
def test_beam_search_finds_what_generate_finds(beams: int, penalty: float, limit: int) -> None:
    """At the limit they differ: we prefer texts that have ended."""
    ours = trained_network()
    theirs = marian(ours)
    theirs.final_logits_bias[0, [PAD, BOS, MASK]] = -1e9  # tokens that we never predict
    source = padded([[BOS, *one, EOS] for one in SOURCES])
    found = theirs.generate(
        input_ids=source,
        attention_mask=(source != PAD).long(),
        num_beams=beams,
        length_penalty=penalty,
        early_stopping=True,
        max_new_tokens=limit,
        suppress_tokens=[UNK],
        do_sample=False,
        eos_token_id=EOS,
        pad_token_id=PAD,
        decoder_start_token_id=EOS,
        return_dict_in_generate=True,
        output_scores=True,
    )
    is_token = source != PAD
    with torch.inference_mode():
        batch = Batch(source, is_token, is_token.long() - 1)
        states = make_encoder_states(ours(batch).last_hidden_state.view(*source.shape, -1), is_token)
        search = BeamSearch(len(SOURCES), beams, limit, length_penalty=penalty, early_stopping=True)
        best = [hypotheses[0] for hypotheses in search.run(SourceDecoderState(ours, states))]
    texts = [row[1:] for row in found.sequences.tolist()]
    their_texts = [text[: text.index(EOS) + 1] if EOS in text else text for text in texts]  # it pads with the end
    assert [list(one.tokens) for one in best] == their_texts
    assert any(len(text) > 1 for text in their_texts), "some text should not be empty"
    if beams > 1:
        scores = [one.rank(penalty) for one in best]
        np.testing.assert_allclose(scores, found.sequences_scores.tolist(), atol=1e-5)
