"""Compression: a smaller or faster model, and a card of what it cost."""
