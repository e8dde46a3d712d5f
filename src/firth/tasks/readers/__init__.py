"""Readers of labelled files and Python objects."""
