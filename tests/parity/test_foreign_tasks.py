"""Imported models that were fine-tuned elsewhere predict what they do in transformers."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

from firth.apply.embed import embed_file, truncate_texts
from firth.artifact.formats import export_model
from firth.artifact.formats.huggingface import import_huggingface, read_model
from firth.artifact.models import load
from firth.errors import AbilityError
from firth.tasks.predictor import count_truncated
from firth.tasks.task import TaskModel
from firth.tokens.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from firth.tokens.tokenizer import BOS, EOS, MASK
from tests.artifact.formats.small_tasks import task_model
from tests.artifact.formats.small_transformers import THEIR_TOKENIZERS, foreign, tokenizer_of
from tests.command import firth

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import transformers

SHORT, OTHER = "The dog", "foxes jump, it"
PAIRS = [(SHORT, OTHER), (OTHER, SHORT), ("the fox", "the fox"), ("it", "。")]
LONG = [(SHORT, "quick brown foxes jumped over " * 9), ("the lazy dog " * 30, OTHER)]
NLI = {0: "contradiction", 1: "entailment", 2: "neutral"}
PLAIN = {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}


def fine_tuned(kind: str, folder: Path, labels: dict[int, str], tokenizer: Any = None, **settings: Any) -> Any:
    """A random classifier of transformers and its tokenizer, saved."""
    tokenizer = tokenizer or THEIR_TOKENIZERS[kind]()
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 40}
    sizes |= {"max_position_embeddings": 40, "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    names = {"id2label": labels, "label2id": {name: number for number, name in labels.items()}}
    config = transformers.AutoConfig.for_model(kind, **(sizes | names | settings))
    torch.manual_seed(5)
    model = transformers.AutoModelForSequenceClassification.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def their_probabilities(folder: Path, pairs: list[tuple[str, str]], max_length: int | None = None) -> Any:
    """The probabilities of transformers for each pair, with its own tokenizer."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    truncation: dict[str, Any] = {"truncation": "longest_first", "max_length": max_length} if max_length else {}
    if model.config.model_type == "albert":
        truncation["return_token_type_ids"] = True  # as in training; this version omits them by default
    rows = [tokenizer(one, two, return_tensors="pt", **truncation) for one, two in pairs]
    with torch.no_grad():
        return np.array([model(**row).logits[0].softmax(-1).numpy() for row in rows])


def our_probabilities(model: TaskModel, pairs: list[tuple[str, str]]) -> Any:
    return np.array([list(answer["probabilities"].values()) for answer in model.predict(pairs)])


@pytest.mark.parametrize("kind", ["bert", "roberta", "albert"])
def test_imported_pair_classifiers_predict_the_same(kind: str, tmp_path: Path) -> None:
    fine_tuned(kind, tmp_path / "theirs", NLI)
    report = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert report["task"] == "pair"
    model = load(tmp_path / "ours")
    assert (model.recipe.form, model.labels) == ("single", ("contradiction", "entailment", "neutral"))
    assert np.allclose(
        our_probabilities(model, PAIRS), their_probabilities(tmp_path / "theirs", PAIRS), rtol=0, atol=1e-6
    )
    assert count_truncated(model.predict(PAIRS)) == 0
    expected = their_probabilities(tmp_path / "theirs", PAIRS[:1])
    assert not np.allclose(expected, their_probabilities(tmp_path / "theirs", [PAIRS[1]]), atol=1e-3), "order matters"
    long = their_probabilities(tmp_path / "theirs", LONG, model.builder.max_length)
    assert np.allclose(our_probabilities(model, LONG), long, rtol=0, atol=1e-6)
    assert count_truncated(model.predict(LONG)) == 2
    export_model(model, "huggingface", tmp_path / "again")
    assert np.allclose(
        their_probabilities(tmp_path / "again", PAIRS), our_probabilities(model, PAIRS), rtol=0, atol=1e-6
    )
    back = read_model(tmp_path / "again")
    assert np.allclose(our_probabilities(back, PAIRS), our_probabilities(model, PAIRS), rtol=0, atol=1e-6)


def test_special_tokens_of_roberta_pairs(tmp_path: Path) -> None:
    """Two separators and one segment, whatever the size of the segment embedding; or those of another tokenizer."""
    doubled = SpecialTokens((BOS,), (EOS, EOS), (EOS,), 0)
    fine_tuned("roberta", tmp_path / "one", NLI, type_vocab_size=1)
    fine_tuned("roberta", tmp_path / "two", NLI, type_vocab_size=2)
    backend = tokenizers.Tokenizer.from_file(str(tmp_path / "two/tokenizer.json"))
    backend.enable_padding(length=20)
    backend.enable_truncation(5)
    backend.save(str(tmp_path / "two/tokenizer.json"))
    fine_tuned("roberta", tmp_path / "like-bert", NLI, THEIR_TOKENIZERS["bert"](), type_vocab_size=2)
    for name, special_tokens in (
        ("one", doubled),
        ("two", doubled),
        ("like-bert", SpecialTokens((BOS,), (EOS,), (EOS,), 1)),
    ):
        model = read_model(tmp_path / name)
        assert model.builder.special_tokens == special_tokens
        expected = their_probabilities(tmp_path / name, PAIRS)
        assert np.allclose(our_probabilities(model, PAIRS), expected, rtol=0, atol=1e-6), name


@pytest.mark.parametrize("kind", ["gpt2", "openai-gpt"])
def test_imported_causal_classifiers_get_no_special_tokens(kind: str, tmp_path: Path) -> None:
    """Ours are trained with special tokens around texts, theirs without."""
    fine_tuned(kind, tmp_path / "theirs", NLI, n_layer=2, n_head=2, n_embd=16, n_positions=40)
    import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    model = load(tmp_path / "ours")
    assert model.builder.special_tokens[:3] == NO_SPECIAL_TOKENS[:3]
    expected = their_probabilities(tmp_path / "theirs", PAIRS)
    assert np.allclose(our_probabilities(model, PAIRS), expected, rtol=0, atol=1e-6)
    assert np.ptp(expected, axis=0).max() > 0.01, "texts matter"
    assert model.predict([("", "")])[0]["label"] in NLI.values()
    export_model(model, "huggingface", tmp_path / "again")
    assert np.allclose(their_probabilities(tmp_path / "again", PAIRS), expected, rtol=0, atol=1e-6)


def test_exported_causal_classifiers_keep_their_special_tokens(tmp_path: Path) -> None:
    model = task_model("gpt2", "pair")
    export_model(model, "huggingface", tmp_path / "own")
    back = read_model(tmp_path / "own")
    assert back.builder.special_tokens == model.builder.special_tokens == SpecialTokens((BOS,), (MASK,), (EOS,), 0)
    assert np.allclose(our_probabilities(back, PAIRS), our_probabilities(model, PAIRS), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "roberta", "albert"])
def test_exported_pair_classifiers_predict_the_same(kind: str, tmp_path: Path) -> None:
    model = task_model(kind, "pair")
    between = [EOS] if kind != "roberta" else [EOS, EOS]
    first, second = model.builder.encode(PAIRS[0])
    assert model.builder.build(first, second).ids.tolist() == [BOS, *first, *between, *second, EOS]
    export_model(model, "huggingface", tmp_path / "out")
    assert np.allclose(their_probabilities(tmp_path / "out", PAIRS), our_probabilities(model, PAIRS), rtol=0, atol=1e-6)
    back = read_model(tmp_path / "out")
    assert back.tokenizer.backend.post_processor is None, "the default template is not stored"
    assert our_probabilities(back, PAIRS).tolist() == our_probabilities(model, PAIRS).tolist()


def test_texts_that_fill_a_sequence_exactly() -> None:
    builder = task_model("roberta", "pair", length=16).builder
    one, two = np.arange(5, 11), np.arange(11, 17)
    assert builder.capacity(2) == 12
    row = builder.build(one, two)
    assert (row.ids.size, row.begins, row.lengths, row.truncated) == (16, (1, 9), (6, 6), False)
    longer = builder.build(one, np.arange(5, 12))
    assert (longer.ids.size, longer.truncated) == (16, True)
    assert builder.build(np.arange(5, 19)).ids.size == 16


@pytest.mark.parametrize(
    ("labels", "settings", "task"),
    [
        (NLI, {}, "pair"),
        ({0: "not_entailment", 1: "entailment"}, {}, "pair"),
        ({0: "Not Duplicate", 1: "Duplicate"}, {}, "pair"),
        (PLAIN, {}, "classify"),
        (PLAIN, {"finetuning_task": "mrpc"}, "pair"),
        (PLAIN, {"finetuning_task": "sst-2"}, "classify"),
        ({0: "NEGATIVE", 1: "POSITIVE"}, {}, "classify"),
        ({0: "LABEL_0"}, {}, "pair"),
    ],
    ids=str,
)
def test_labels_determine_the_task(labels: dict[int, str], settings: dict[str, Any], task: str, tmp_path: Path) -> None:
    fine_tuned("bert", tmp_path / "theirs", labels, **settings)
    done = firth("import", "huggingface", tmp_path / "theirs", "-o", tmp_path / "ours", "--json")
    assert done.code == 0, done.err
    assert done.json["task"] == task
    assert ("if it classifies pairs, import it with --task pair" in done.err) == (task == "classify")


def test_the_task_can_be_given(tmp_path: Path) -> None:
    fine_tuned("bert", tmp_path / "theirs", PLAIN)
    model = read_model(tmp_path / "theirs", "pair")
    assert (model.task, model.labels) == ("pair", tuple(PLAIN.values()))
    assert np.allclose(
        our_probabilities(model, PAIRS), their_probabilities(tmp_path / "theirs", PAIRS), rtol=0, atol=1e-6
    )
    done = firth("import", "huggingface", tmp_path / "theirs", "-o", tmp_path / "ours", "--task", "pair", "--json")
    assert (done.code, done.json["task"]) == (0, "pair"), done.err
    assert firth("import", "arpa", tmp_path / "theirs", "-o", tmp_path / "other", "--task", "pair").code == 2
    assert read_model(tmp_path / "theirs", "classify").task == "classify"
    fine_tuned("bert", tmp_path / "nli", NLI)
    assert read_model(tmp_path / "nli", "classify").task == "classify"
    with pytest.raises(AbilityError, match="cannot be imported for tag: its class is for classify or pair; leave"):
        read_model(tmp_path / "theirs", "tag")
    tokenizer = THEIR_TOKENIZERS["bert"]()
    foreign("bert", tmp_path / "plain", len(tokenizer))
    tokenizer.save_pretrained(tmp_path / "plain")
    with pytest.raises(AbilityError, match="it has no task head, so fine-tune it"):
        read_model(tmp_path / "plain", "pair")
    fine_tuned("bert", tmp_path / "several", PLAIN, problem_type="multi_label_classification")
    assert read_model(tmp_path / "several").recipe.form == "multi"
    with pytest.raises(AbilityError, match="predicts several labels"):
        read_model(tmp_path / "several", "pair")
    fine_tuned("bert", tmp_path / "number", {0: "LABEL_0"})
    assert read_model(tmp_path / "number", "pair").recipe.form == "number"
    with pytest.raises(AbilityError, match="predicts one number"):
        read_model(tmp_path / "number", "classify")


@pytest.mark.parametrize(("mode", "pooling"), [("mean", "whole"), ("cls", "first")])
@pytest.mark.parametrize("length", [12, 30, None])
def test_sentence_vectors_are_of_truncated_texts(mode: str, pooling: str, length: int | None, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    tokenizer = THEIR_TOKENIZERS["bert"]()
    foreign("bert", theirs, len(tokenizer))
    tokenizer.save_pretrained(theirs)
    types = [{"path": f"{n}_{one}", "type": f"sentence_transformers.models.{one}"} for n, one in enumerate(TYPES)]
    (theirs / "modules.json").write_text(json.dumps(types))
    (theirs / "1_Pooling").mkdir()
    (theirs / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode": mode}))
    (theirs / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
    import_huggingface(theirs, tmp_path / "ours")
    model, max_length = load(tmp_path / "ours"), length or 30
    assert model.recipe.sequence.length == max_length
    texts = [SHORT, "unbelievable foxes jumped " * 9, "语言 it", "", "the quick " * 30]
    (tmp_path / "texts").write_text("\n".join(texts) + "\n")
    report = embed_file(model, tmp_path / "texts", tmp_path / "out.npy", pooling=pooling)
    assert (report["rows"], report["truncated"]) == (5, 2)
    backbone = transformers.AutoModel.from_pretrained(theirs).eval()
    found = np.load(tmp_path / "out.npy")
    for text, row in zip(texts, found, strict=True):
        given = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
        with torch.no_grad():
            states = backbone(**given).last_hidden_state[0]
        expected = states.mean(0) if mode == "mean" else states[0]
        assert np.allclose(row, expected.numpy() if text else 0, rtol=0, atol=1e-5)


TYPES = ("Transformer", "Pooling")


@pytest.mark.parametrize("kind", ["wordpiece", "byte-bpe", "pieces", "words"])
def test_texts_are_truncated_between_characters(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    texts = ["the fox", "the lazy dog jumps over it " * 5, "🦊🐕" * 20, "我们喜欢语言。" * 9, ""]
    for max_length in range(4, 30):
        found, truncated = truncate_texts(tokenizer, texts, max_length)
        sizes = [len(tokenizer.encode(text).ids) for text in texts]
        assert truncated == sum(size > max_length - 2 for size in sizes)
        for text, short, size in zip(texts, found, sizes, strict=True):
            assert tokenizer.presegment(text).startswith(short)
            kept = tokenizer.encode(short).ids
            assert len(kept) <= max_length - 2
            assert kept == tokenizer.encode(text).ids[: len(kept)]
            assert len(kept) >= min(size, max_length - 5)


def test_special_tokens_of_a_post_processor() -> None:
    from firth.tasks.sequences import tokenizer_special_tokens

    backend = tokenizers.Tokenizer.from_str(tokenizer_of("wordpiece").data.decode())
    assert tokenizer_special_tokens(backend) is None
    backend.post_processor = tokenizers.processors.RobertaProcessing(("[SEP]", EOS), ("[CLS]", BOS))
    assert tokenizer_special_tokens(backend) == SpecialTokens((BOS,), (EOS, EOS), (EOS,), 0)
    backend.post_processor = tokenizers.processors.BertProcessing(("[SEP]", EOS), ("[CLS]", BOS))
    assert tokenizer_special_tokens(backend) == SpecialTokens((BOS,), (EOS,), (EOS,), 1)
