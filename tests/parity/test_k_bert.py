"""K-BERT's sentence trees beside BertModel of transformers with position_ids and a mask of (batch, 1, query, key)."""

from __future__ import annotations

import warnings

import torch

from firth.nets.network import Network
from firth.tasks.sequences import pack
from firth.tokens.tokenizer import FIRST_WORD
from tests.parity.test_unilm import mapped
from tests.tasks.test_trees import SENTENCE, SOFT, WITH_FACTS, builder, matrix, network_of, one_sequence, tokenizer_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers


def as_bert(network: Network) -> transformers.BertModel:
    """The same network in transformers."""
    encoder, recipe = network.recipe.encoder, network.recipe
    config = transformers.BertConfig(
        vocab_size=len(network.vocabulary),
        hidden_size=encoder.width,
        num_hidden_layers=encoder.layers,
        num_attention_heads=encoder.heads,
        intermediate_size=encoder.ffn_width,
        max_position_embeddings=recipe.sequence.length,
        type_vocab_size=recipe.embedding.segments,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=encoder.eps,
        attn_implementation="eager",
    )
    model = transformers.BertModel(config, add_pooling_layer=False).double().eval()
    ours, theirs = dict(network.named_parameters()), dict(model.named_parameters())
    names = mapped(network)
    assert {their for _, their, _ in names} == set(theirs)
    with torch.no_grad():
        for mine, their, rows in names:
            theirs[their].copy_(ours[mine][rows])
    return model


def test_hidden_states_of_the_example_of_the_paper() -> None:
    """Ids are those of Firth; positions and the mask are those that are worked out by hand."""
    tokenizer = tokenizer_of(SENTENCE, WITH_FACTS)
    network = network_of(tokenizer, 3, norm=True)
    batch = pack([one_sequence(builder(tokenizer))], FIRST_WORD)
    mask = torch.zeros(1, 1, 15, 15, dtype=torch.float64).masked_fill(~matrix(), -torch.inf)
    arguments = {"attention_mask": mask, "position_ids": torch.tensor([SOFT])}
    found = as_bert(network)(batch.ids, **arguments).last_hidden_state
    states = network(batch).last_hidden_state.view_as(found)
    torch.testing.assert_close(states, found, rtol=0, atol=1e-9)
    plain = as_bert(network)(batch.ids).last_hidden_state
    assert (states - plain).abs().max() > 1e-3, "without the mask and positions it is another result"
