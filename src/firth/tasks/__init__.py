"""Tasks: what a model is fine-tuned for. Each reads labelled files, gives a head, and measures what it predicts."""
