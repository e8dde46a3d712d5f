"""Decoding of token sequences: sampling and beam search over any model that gives next-token probabilities."""
