"""Metrics of predictions, with bootstrap intervals."""
