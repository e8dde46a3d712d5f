"""Tokenizers of Hugging Face models and ours: the same pieces, with other ids and special tokens of other names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from firth.artifact.formats.huggingface_config import Config, Kind
from firth.errors import AbilityError, ArtifactError
from firth.nets.recipe import NetRecipe
from firth.tasks.frame import NO_MARKS, Marks, told_marks, usual_marks
from firth.tokens.encoder import Encoder
from firth.tokens.recipe import TokenizerRecipe, TokenModel
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK, Tokenizer

_ROLES = {
    PAD: ("pad_token",),
    UNK: ("unk_token",),
    BOS: ("cls_token", "bos_token"),
    EOS: ("sep_token", "eos_token"),
    MASK: ("mask_token",),
}
"""What tokenizer_config.json calls our special tokens."""
_USUAL = {
    PAD: ("[PAD]", "<pad>"),
    UNK: ("[UNK]", "<unk>"),
    BOS: ("[CLS]", "<s>"),
    EOS: ("[SEP]", "</s>", "<|endoftext|>"),
    MASK: ("[MASK]", "<mask>"),
}
_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
_PROBES = (
    "The quick brown fox, (isn't it?) mails a_b@c.com/x: 3.14 + 1,000 = e-mail!",
    "don't  leave\ttwo   spaces , nor ''quoted'' ``text'' --- e.g. U.S.A. #tag $5",
    "Ångström's Straße, naïve CAFÉ “quoted” — ﬁne ½ ① … ≠ e\u0301",
    "我们喜欢研究自然语言处理，因为3个GPT模型在iPhone12上。《书》",
    "Привет, мир! γειά σου 안녕하세요 こんにちは สวัสดี",
)
"""Texts on which our way of encoding must agree with the file's own tokenizer before it is trusted."""


class Foreign(NamedTuple):
    """A tokenizer that was read."""

    tokenizer: Tokenizer
    order: list[int]
    """The id that each token had in its file; -1 for tokens that it had not."""


def export_tokenizer(
    tokenizer: Tokenizer, kind: Kind, recipe: NetRecipe, kept: Sequence[int], framed: bool = False
) -> Config:
    """The JSON files of a tokenizer by name; `kept` has the ids that the model has.

    Texts for causal models stand alone, unless they are `framed` as for tasks: start a delimiter b extract.
    """
    marks = told_marks(tokenizer.backend) or usual_marks(recipe)
    content = json.loads(tokenizer.backend.to_str())
    if len(kept) < len(tokenizer):
        content = renumber(content, [tokenizer.vocabulary[number] for number in kept])
    for one in content["added_tokens"]:  # where the space before a word is a part of it, a mask hides it, too
        one["lstrip"] = one["id"] == MASK and tokenizer.recipe.model in ("bpe", "byte-bpe", "pieces")
    tokens = {number: tokenizer.recipe.specials[number] for number in range(5) if number in kept}
    roles = {role: tokens[number] for number, names in _ROLES.items() if number in tokens for role in names}
    if kind.causal and framed:
        roles = {role: token for role, token in roles.items() if role not in ("cls_token", "sep_token")}
        content["post_processor"] = _template(tokenizer.vocabulary, marks)
    elif kind.causal:
        end = tokens[EOS]  # text begins with it, too
        roles = {"unk_token": tokens.get(UNK, end), "bos_token": end, "eos_token": end}
        roles |= {"pad_token": tokens[PAD]} if PAD in tokens else {}
        content["post_processor"] = None
    else:
        content["post_processor"] = _template(tokenizer.vocabulary, marks)
    inputs = ["input_ids", *(["token_type_ids"] if recipe.embedding.segments > 1 else []), "attention_mask"]
    return {
        "tokenizer.json": content,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": recipe.rows.length,
            "model_input_names": inputs,
            "clean_up_tokenization_spaces": False,
            **roles,
        },
        "special_tokens_map.json": roles,
    }


def _template(vocabulary: Sequence[str], marks: Marks) -> Any:
    """The rule for special tokens: [CLS] A [SEP], or [CLS] A [SEP] B [SEP], say."""
    before, between, end = ([vocabulary[number] for number in part] for part in marks[:3])
    first = [*before, "$A"]
    pair = [f"{one}:0" for one in [*first, *between]] + [f"{one}:{marks.second}" for one in ["$B", *end]]
    made = processors.TemplateProcessing(
        single=[f"{one}:0" for one in [*first, *end]],
        pair=pair,
        special_tokens=[(vocabulary[number], number) for number in sorted({*marks.before, *marks.between, *marks.end})],
    )
    return json.loads(made.__getstate__())


def import_tokenizer(
    data: bytes,
    settings: Mapping[str, Any],
    kind: Kind,
    rows: int,
    known: TokenizerRecipe | None = None,
    usual: Marks | None = None,
) -> Foreign:
    """Our tokenizer of a tokenizer.json, whose model has so many rows; special tokens get the ids 0 to 4.

    `settings` say which tokens are special; `known` is the recipe if Firth wrote the file. The rule for special tokens
    is kept if it is not the `usual` one of such a network; causal language models have none to be kept.
    """
    backend = _read(data)
    backend.no_padding()
    backend.no_truncation()
    ids = backend.get_vocab(with_added_tokens=True)
    old = sorted(ids, key=ids.__getitem__)
    if sorted(ids.values()) != list(range(len(ids))):
        raise ArtifactError("tokenizer.json leaves ids out or gives one twice: use the tokenizer that the model has.")
    if len(old) != rows:
        raise ArtifactError(
            f"tokenizer.json has {len(old)} tokens and the weights have {rows}: give the files of one model."
        )
    content = json.loads(backend.to_str())
    if content["model"].get("dropout"):
        raise ArtifactError("tokenizer.json cuts words by chance: set its model's dropout to null.")
    roles = _roles(ids, settings, kind)
    recipe = _recipe(content, known)
    specials: list[str | None] = [roles.get(number) for number in range(5)]
    rest = [token for token in old if token not in roles.values()]
    named = {token: recipe.specials[number] for number, token in roles.items()}
    if clash := set(recipe.specials) & set(rest):
        raise ArtifactError(f"tokenizer.json has an ordinary token {min(clash)!r}, which is special here: rename it.")
    content = renumber(content, [*specials, *rest], named, recipe.specials)
    content |= {"post_processor": None, "truncation": None, "padding": None}
    if known is not None:
        content["added_tokens"] = [{**one, "lstrip": False} for one in content["added_tokens"]]
    text = json.dumps(json.loads(_read(json.dumps(content).encode()).to_str()), ensure_ascii=False, indent=1) + "\n"
    tokenizer = Tokenizer(text.encode(), recipe)
    _probe(tokenizer)
    order = [ids[token] if token is not None else -1 for token in [*specials, *rest]]
    told = told_marks(backend) or (NO_MARKS if kind.causal else None)
    if usual is not None and told is not None:
        tokenizer = _with_rule(tokenizer, told, order, usual)
    return Foreign(tokenizer, order)


def _with_rule(tokenizer: Tokenizer, told: Marks, order: Sequence[int], usual: Marks) -> Tokenizer:
    """The tokenizer with the rule that it came with, in its own ids, unless that is the usual one."""
    before, between, end = (tuple(order.index(number) for number in part) for part in told[:3])
    marks = Marks(before, between, end, told.second)
    if marks == usual:
        return tokenizer
    content = json.loads(tokenizer.data) | {"post_processor": _template(tokenizer.vocabulary, marks)}
    return Tokenizer((json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode(), tokenizer.recipe)


def wordpiece_json(lines: Sequence[str], settings: Mapping[str, Any]) -> bytes:
    """The tokenizer.json of a BERT that has only a vocab.txt.

    >>> data = wordpiece_json(["[UNK]", "the", "##m"], {})
    >>> tokenizers.Tokenizer.from_str(data.decode()).encode("The them").tokens
    ['the', 'the', '##m']
    """
    vocabulary = {token: number for number, token in enumerate(lines)}
    if len(vocabulary) < len(lines):
        raise ArtifactError("vocab.txt has the same token twice: use the one that the model has.")
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    lowercase, accents = settings.get("do_lower_case", True), settings.get("strip_accents")
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase is not False, strip_accents=accents if isinstance(accents, bool) else None
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return str(backend.to_str()).encode()


def renumber(
    content: Config,
    tokens: Sequence[str | None],
    named: Mapping[str, str] | None = None,
    specials: Sequence[str] = (),
) -> Config:
    """A tokenizer.json with other ids: those of `tokens` in order; some get other names, and None stands for a new one.

    The first tokens are `specials`, if there are any, and stand apart in text.
    """
    named = named or {}
    final = [specials[number] if token is None else named.get(token, token) for number, token in enumerate(tokens)]
    model = dict(content["model"])
    scores = dict(_words(model))
    kept = {
        name: scores.get(token or "", 0.0)
        for name, token in zip(final, tokens, strict=True)
        if token in scores or name in specials
    }
    if isinstance(model["vocab"], dict):
        model["vocab"] = {name: number for number, name in enumerate(kept)}
        if model.get("unk_token"):
            model["unk_token"] = named.get(model["unk_token"], model["unk_token"])
    else:
        model["vocab"] = [[name, score] for name, score in kept.items()]
        unknown = model.get("unk_id")
        unknown = None if unknown is None else content["model"]["vocab"][unknown][0]
        model["unk_id"] = None if unknown is None else list(kept).index(named.get(unknown, unknown))
    flags = {named.get(token["content"], token["content"]): token for token in content["added_tokens"]}
    added = [
        {**_FLAGS, **flags.get(name, {}), "id": number, "content": name}
        for number, name in enumerate(final)
        if name in flags or name in specials
    ]
    return {**content, "model": model, "added_tokens": added}


def _words(model: Config) -> Iterator[tuple[str, float]]:
    """The tokens of a tokenizer.json's model in the order of their ids, with their scores where they have them."""
    found = model["vocab"]
    yield from ((token, 0.0) for token in sorted(found, key=found.__getitem__)) if isinstance(found, dict) else found


def _read(data: bytes) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(data.decode())
    except Exception as error:  # the library raises plain Exception for whatever is wrong in the file
        raise ArtifactError(
            f"tokenizer.json cannot be read ({error!s:.200}): save it again with transformers."
        ) from None


def _roles(ids: Mapping[str, int], settings: Mapping[str, Any], kind: Kind) -> dict[int, str]:
    """Which token is which of our special ones; the end comes first where one token stands for several."""
    found: dict[int, str] = {}
    for number in (EOS, UNK, BOS, PAD, MASK):
        names = _ROLES[number][::-1] if kind.causal else _ROLES[number]
        told = [settings.get(name) for name in names]
        told = [token["content"] if isinstance(token, dict) and "content" in token else token for token in told]
        for token in [*told, *_USUAL[number]]:
            if isinstance(token, str) and token in ids and token not in found.values():
                found[number] = token
                break
    for number in (EOS,) if kind.causal else (BOS, EOS, MASK):
        if number not in found:
            name = _ROLES[number][-1 if kind.causal else 0]
            raise ArtifactError(
                f"the tokenizer has no {name}, which {kind.name} models need: name it in tokenizer_config.json."
            )
    return found


def _recipe(content: Config, known: TokenizerRecipe | None) -> TokenizerRecipe:
    """The recipe of our kind of tokenizer that works like a tokenizer.json."""
    parts = list(_parts(content["normalizer"])) + list(_parts(content["pre_tokenizer"]))
    types = {part["type"] for part in parts}
    model = content["model"]["type"]
    kinds: dict[str, TokenModel] = {"WordPiece": "wordpiece", "Unigram": "pieces", "WordLevel": "words", "BPE": "bpe"}
    if model not in kinds:
        raise ArtifactError(f"tokenizer.json has a model of type {model!r}: Firth reads {', '.join(kinds)}.")
    kind: TokenModel = "byte-bpe" if "ByteLevel" in types else kinds[model]
    if known is not None and (known.model == kind or (known.model == "chars" and model == "WordLevel")):
        return known
    size = max(261, len(list(_words(content["model"]))) + len(content["added_tokens"]))
    return TokenizerRecipe(
        model=kind,
        vocab_size=size,
        split="space" if kind == "words" else "auto",
        normalise="nfkc" if "NFKC" in types else "nfc" if "NFC" in types else "none",
        lowercase="Lowercase" in types or any(part.get("lowercase") is True for part in parts),
        segmenter="space" if kind == "words" else "rjieba",
    )


def _parts(step: Any) -> Iterator[Config]:
    """The steps of a normaliser or pre-tokenizer, one by one."""
    if step is None:
        return
    inner = step.get("normalizers") or step.get("pretokenizers")
    if inner is None:
        yield step
    for part in inner or ():
        yield from _parts(part)


def _probe(tokenizer: Tokenizer) -> None:
    """Refuses a tokenizer that treats the two sides of a space or a punctuation mark other than ours do."""
    added = [token["content"] for token in json.loads(tokenizer.data)["added_tokens"]]
    texts = [*_PROBES, *(f"The {token} (and {token})." for token in added[:100])]
    whole = [np.array(tokens.ids, dtype=np.int64) for tokens in tokenizer.encode_batch(texts)]
    encoded = Encoder(tokenizer).encode(texts)
    if not np.array_equal(np.concatenate(whole), encoded.ids):
        raise AbilityError(
            "the tokenizer cuts text in a way that Firth does not know: use a model with the usual one of its type."
        )
