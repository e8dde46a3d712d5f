"""The names that transformers, gensim, fastText, GloVe and KenLM give to settings of a recipe."""

from __future__ import annotations

from collections.abc import Iterable

_LEARNING_RATE = ("learning.lr", "lr", "base.lr")
_DIMENSION = ("encoder.width", "embedding.width", "dimension", "base.dimension")
_LENGTH = ("sequence.length",)
_EPOCHS = ("learning.epochs", "epochs", "base.epochs")
_WINDOW = ("window", "base.window")
_NEGATIVES = ("negatives", "base.negatives")
_SUBSAMPLE = ("subsample", "base.subsample")
_KEYS = {
    **dict.fromkeys(("learning_rate", "alpha", "eta", "lr", "step_size"), _LEARNING_RATE),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "nhid"), _DIMENSION),
    **dict.fromkeys(("vector_size", "size"), _DIMENSION[2:]),
    **dict.fromkeys(("embedding_size", "embedding_dim", "emsize"), ("embedding.width", "dimension", "base.dimension")),
    **dict.fromkeys(("num_layers", "num_hidden_layers", "n_layer", "n_layers", "nlayers"), ("encoder.layers",)),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads", "nhead"), ("encoder.heads",)),
    **dict.fromkeys(("intermediate_size", "n_inner", "dim_feedforward", "ffn_dim", "d_ff"), ("encoder.ffn_width",)),
    **dict.fromkeys(("hidden_act", "activation_function"), ("encoder.activation",)),
    **dict.fromkeys(("hidden_dropout_prob", "resid_pdrop"), ("encoder.dropout", "embedding.dropout")),
    **dict.fromkeys(("attention_probs_dropout_prob", "attn_pdrop"), ("encoder.attention_dropout",)),
    **dict.fromkeys(("layer_norm_eps", "layer_norm_epsilon"), ("encoder.eps",)),
    **dict.fromkeys(("max_length", "max_seq_length", "max_seq_len", "seq_length", "block_size"), _LENGTH),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "model_max_length", "bptt"), _LENGTH),
    **dict.fromkeys(("num_train_epochs", "num_epochs", "max_epochs", "epoch", "iter", "iterations"), _EPOCHS),
    **dict.fromkeys(("batch_size", "per_device_train_batch_size", "train_batch_size"), ("learning.batch",)),
    **dict.fromkeys(("max_grad_norm", "gradient_clip_val", "grad_clip"), ("learning.clip",)),
    **dict.fromkeys(("warmup_ratio", "warmup_steps", "warmup_proportion"), ("learning.warmup",)),
    **dict.fromkeys(("lr_scheduler_type", "scheduler"), ("learning.schedule",)),
    **dict.fromkeys(("optim", "optimizer"), ("learning.optimiser",)),
    **dict.fromkeys(("mlm_probability", "masked_lm_prob"), ("mlm.masking.rate",)),
    **dict.fromkeys(("window_size", "ws"), _WINDOW),
    **dict.fromkeys(("negative", "neg", "num_negatives", "negative_samples"), _NEGATIVES),
    **dict.fromkeys(("sample", "t"), _SUBSAMPLE),
    **dict.fromkeys(("sg", "dm"), ("architecture", "base.architecture")),
    **dict.fromkeys(("mincount", "min_freq", "min_frequency", "vocab_min_count"), ("tokenizer.min_count",)),
    **dict.fromkeys(("max_vocab", "max_vocab_size", "max_final_vocab"), ("tokenizer.vocab_size",)),
    **dict.fromkeys(("do_lower_case", "lower"), ("tokenizer.lowercase",)),
    "gradient_accumulation_steps": ("learning.grad_accumulation",),
    "weight_decay": ("learning.weight_decay",),
    "wd": ("learning.weight_decay",),
    "adam_beta2": ("learning.beta2",),
    "early_stopping_patience": ("learning.patience",),
    "type_vocab_size": ("embedding.segments",),
    "hs": ("loss", "base.loss"),
    "dm_concat": ("combine",),
    "minn": ("min_n",),
    "maxn": ("max_n",),
    "bucket": ("buckets",),
    "wordngrams": ("word_ngrams",),
    "num_topics": ("dimension",),
    "num_clusters": ("clusters",),
    "n": ("order",),
    "o": ("order",),
    "discount_fallback": ("discounts",),
}
_UNITS = {
    "learning.batch": "tokens per step in pre-training, examples per step in fine-tuning",
    "learning.warmup": "a fraction of the steps",
}


def peer_hint(name: str, known: Iterable[str]) -> str:
    """A sentence that names the keys of this recipe for a setting of another library; empty if there are none.

    >>> peer_hint("hidden_size", ["encoder.width", "embedding.width", "encoder.layers"])
    'Here it is encoder.width and embedding.width.'
    >>> peer_hint("layers", ["encoder.layers"])
    'Here it is encoder.layers.'
    """
    keys = [key for key in known if not key.startswith("network.")]  # fine-tuning does not change the network
    last = name.rpartition(".")[2].lower().replace("-", "_")
    found = [key for key in _KEYS.get(last, ()) if key in keys] or [key for key in keys if key.endswith(f".{last}")]
    if not found:
        return ""
    units = "".join(f" ({_UNITS[key]})" for key in found[:1] if key in _UNITS)
    return f"Here it is {' and '.join(found)}{units}."
