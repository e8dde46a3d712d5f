"""Tokenizers of Hugging Face models and of Firth: the same tokens with other ids and other names of special tokens."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from firth.artifact.formats.huggingface_family import Config, ModelType
from firth.errors import AbilityError, ArtifactError, TokenizerError
from firth.nets.recipe import NetRecipe
from firth.nets.special_tokens import task_special_tokens
from firth.tokens.encoder import TextEncoder
from firth.tokens.loading import check_parts, load_backend, parse_tokenizer, try_tokenizer
from firth.tokens.recipe import TokenizerRecipe, TokenModel
from firth.tokens.special_tokens import SpecialTokens, tokenizer_special_tokens
from firth.tokens.tokenizer import BOS, EOS, MASK, PAD, UNK, Tokenizer

_SPECIALS = {
    PAD: (("pad_token",), ("[PAD]", "<pad>")),
    UNK: (("unk_token",), ("[UNK]", "<unk>")),
    BOS: (("cls_token", "bos_token"), ("[CLS]", "<s>")),
    EOS: (("sep_token", "eos_token"), ("[SEP]", "</s>", "<|endoftext|>")),
    MASK: (("mask_token",), ("[MASK]", "<mask>")),
}
"""Our special tokens -> their keys in tokenizer_config.json, and default names."""
_FLAGS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
_PROBES = (
    "The quick brown fox, (isn't it?) mails a_b@c.com/x: 3.14 + 1,000 = e-mail!",
    "don't  leave\ttwo   spaces , nor ''quoted'' ``text'' --- e.g. U.S.A. #tag $5",
    "Ångström's Straße, naïve CAFÉ “quoted” — ﬁne ½ ① … ≠ e\u0301",
    "我们喜欢研究自然语言处理，因为3个GPT模型在iPhone12上。《书》",
    "Привет, мир! γειά σου 안녕하세요 こんにちは สวัสดี",
)
"""Texts that our fast encoder must encode like the tokenizer itself, or the tokenizer is refused."""


def export_tokenizer(
    tokenizer: Tokenizer, model_type: ModelType, recipe: NetRecipe, kept: Sequence[int], for_task: bool = False
) -> Config:
    """The JSON files of a tokenizer by name; `kept` has the ids of the model's tokens."""
    special_tokens = model_type.export_template(kept, for_task)
    own = tokenizer_special_tokens(tokenizer.backend) or task_special_tokens(recipe)
    special_tokens = special_tokens or _renumbered(own, kept)
    content = json.loads(tokenizer.backend.to_str())
    if len(kept) < len(tokenizer):
        content = renumber(content, [tokenizer.vocabulary[number] for number in kept])
    blanks = {tokenizer.vocabulary[MASK], *tokenizer.recipe.sentinel_tokens}
    for one in content["added_tokens"]:  # where tokens include the space before a word, so does the mask
        one["lstrip"] = one["content"] in blanks and tokenizer.recipe.model in ("bpe", "byte-bpe", "pieces")
    tokens = {number: tokenizer.recipe.specials[number] for number in range(5) if number in kept}
    roles = {role: tokens[number] for number, (keys, _) in _SPECIALS.items() if number in tokens for role in keys}
    roles = model_type.export_roles(tokens, roles, for_task)
    names = [tokenizer.vocabulary[number] for number in kept]
    content["post_processor"] = template(names, special_tokens)
    inputs = ["input_ids", *(["token_type_ids"] if recipe.segments > 1 else []), "attention_mask"]
    return {
        "tokenizer.json": content,
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": recipe.sequence.length,
            "model_input_names": inputs,
            "clean_up_tokenization_spaces": False,
            **({"padding_side": model_type.padding_side} if model_type.padding_side != "right" else {}),
            **roles,
        },
        "special_tokens_map.json": roles,
    }


def _renumbered(special_tokens: SpecialTokens, kept: Sequence[int]) -> SpecialTokens:
    """The special tokens by their index in `kept`, without those that are not there."""
    before, between, end = (tuple(kept.index(one) for one in part if one in kept) for part in special_tokens[:3])
    return special_tokens._replace(before=before, between=between, end=end)


def template(vocabulary: Sequence[str], special_tokens: SpecialTokens) -> Any:
    """The post-processor that adds special tokens, such as [CLS] A [SEP] or [CLS] A [SEP] B [SEP]."""
    before, between, end = ([vocabulary[number] for number in part] for part in special_tokens[:3])
    first, second = [f"{one}:0" for one in [*before, "$A"]], special_tokens.second
    ends = [[f"{one}:{segment}" for one in end] for segment in (0, second)]
    if special_tokens.last is not None:
        ends = [[*one[:-1], f"{end[-1]}:{special_tokens.last}"] for one in ends]
    made = processors.TemplateProcessing(
        single=[*first, *ends[0]],
        pair=[*first, *(f"{one}:0" for one in between), f"$B:{second}", *ends[1]],
        special_tokens=[(vocabulary[number], number) for number in sorted({*itertools.chain(*special_tokens[:3])})],
    )
    return json.loads(made.__getstate__())


def import_tokenizer(
    data: bytes,
    settings: Mapping[str, Any],
    model_type: ModelType,
    rows: int,
    known: TokenizerRecipe | None = None,
    default: SpecialTokens | None = None,
    config: Config | None = None,
    *,
    is_task: bool = False,
) -> tuple[Tokenizer, list[int]]:
    """The tokenizer of a tokenizer.json, and the old id of each token (-1 for new ones); special tokens get 0 to 4.

    `rows` is the vocabulary size of the model, `settings` name the special tokens, `known` is the recipe if Firth wrote
    the file. The special tokens around texts are kept if they differ from the `default` of such a network; None keeps
    none.
    """
    backend = _parse_backend(data)
    ids = backend.get_vocab(with_added_tokens=True)
    old = sorted(ids, key=ids.__getitem__)
    if sorted(ids.values()) != list(range(len(ids))):
        raise ArtifactError("tokenizer.json has missing or repeated ids: use the tokenizer of the model.")
    if len(old) != rows and not (model_type.has_spare_rows and len(old) < rows):
        raise ArtifactError(
            f"tokenizer.json has {len(old)} tokens and the weights have {rows}: use files of one model."
        )
    content = json.loads(backend.to_str())
    if content["model"].get("dropout"):
        raise ArtifactError("tokenizer.json splits words randomly: set its model's dropout to null.")
    roles = _special_roles(ids, settings, model_type)
    recipe = _read_recipe(content, known, set(roles.values()))
    specials: list[str | None] = [roles.get(number) for number in range(5)]
    last = recipe.sentinel_tokens
    rest = [*(token for token in old if token not in roles.values() and token not in last), *last]
    named = {token: name for token, name in model_type.renamed.items() if token in rest and name not in ids}
    named |= {token: recipe.specials[number] for number, token in roles.items()}
    if clash := set(recipe.specials) & {named.get(token, token) for token in rest}:
        raise ArtifactError(f"tokenizer.json has an ordinary token {min(clash)!r}, which is special here: rename it.")
    content = renumber(content, [*specials, *rest], named, recipe.specials)
    content |= {"post_processor": None, "truncation": None, "padding": None}
    if known is not None:
        content["added_tokens"] = [{**one, "lstrip": False} for one in content["added_tokens"]]
    normalised = json.loads(load_backend(json.dumps(content).encode()).to_str())
    tokenizer = Tokenizer(_to_bytes(normalised), recipe)
    _check_encoding(tokenizer)
    order = [ids[token] if token is not None else -1 for token in [*specials, *rest]]
    if default is None:
        return tokenizer, order
    model_type.check_tokens(config or {}, order)
    special_tokens = model_type.import_template(tokenizer_special_tokens(backend), config or {}, is_task)
    return tokenizer if special_tokens is None else _with_template(tokenizer, special_tokens, order, default), order


def _with_template(
    tokenizer: Tokenizer, found: SpecialTokens, order: Sequence[int], default: SpecialTokens
) -> Tokenizer:
    """The tokenizer with the template of its file in the new ids, unless that is the default."""
    before, between, end = (tuple(order.index(number) for number in part) for part in found[:3])
    special_tokens = SpecialTokens(before, between, end, found.second, found.last)
    if special_tokens == default:
        return tokenizer
    content = json.loads(tokenizer.data) | {"post_processor": template(tokenizer.vocabulary, special_tokens)}
    return Tokenizer(_to_bytes(content), tokenizer.recipe)


def _to_bytes(content: Config) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


def wordpiece_json(lines: Sequence[str], settings: Mapping[str, Any]) -> bytes:
    """The tokenizer.json of a BERT model that has only a vocab.txt.

    >>> data = wordpiece_json(["[UNK]", "the", "##m"], {})
    >>> tokenizers.Tokenizer.from_str(data.decode()).encode("The them").tokens
    ['the', 'the', '##m']
    """
    vocabulary = {token: number for number, token in enumerate(lines)}
    if len(vocabulary) < len(lines):
        raise ArtifactError("vocab.txt has a token twice: use the vocab.txt of the model.")
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
    """A tokenizer.json whose ids follow the order of `tokens`; `named` renames some, None is a new special token.

    The first tokens are `specials`, which are never split or merged with other text.
    """
    named = named or {}
    final = [specials[number] if token is None else named.get(token, token) for number, token in enumerate(tokens)]
    model = dict(content["model"])
    scores = dict(_scored_tokens(model))
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


def _scored_tokens(model: Config) -> Iterator[tuple[str, float]]:
    """The tokens of a tokenizer.json's model by id, with their scores or 0."""
    found = model["vocab"]
    yield from ((token, 0.0) for token in sorted(found, key=found.__getitem__)) if isinstance(found, dict) else found


def _parse_backend(data: bytes) -> tokenizers.Tokenizer:
    """The tokenizer of a file from elsewhere, without truncation and padding, after a trial with limits."""
    try:
        content = parse_tokenizer(data) | {"truncation": None, "padding": None}
        check_parts(content)
        plain = json.dumps(content, ensure_ascii=False).encode()
        try_tokenizer(plain)
        return load_backend(plain)
    except TokenizerError as error:
        raise ArtifactError(str(error)) from error


def _special_roles(ids: Mapping[str, int], settings: Mapping[str, Any], model_type: ModelType) -> dict[int, str]:
    """Our special token -> theirs; the end of text comes first if one token has several roles."""
    found: dict[int, str] = {}
    for number in (EOS, UNK, BOS, PAD, MASK):
        keys, defaults = _SPECIALS[number]
        found_tokens = [settings.get(key) for key in (keys if model_type.prefers_cls else reversed(keys))]
        contents = [one["content"] if isinstance(one, dict) and "content" in one else one for one in found_tokens]
        for token in [*contents, *defaults]:
            if isinstance(token, str) and token in ids and token not in found.values():
                found[number] = token
                break
    for number in model_type.required_specials:
        if number not in found:
            name = _SPECIALS[number][0][0 if model_type.prefers_cls else -1]
            raise ArtifactError(f"the tokenizer of a {model_type.name} has no {name}: set it in tokenizer_config.json.")
    return found


def _read_recipe(content: Config, known: TokenizerRecipe | None, specials: Set[str]) -> TokenizerRecipe:
    """The recipe of a tokenizer.json whose `specials` have other roles than sentinels; the known one if it fits."""
    parts = list(_flatten_steps(content["normalizer"])) + list(_flatten_steps(content["pre_tokenizer"]))
    types = {part["type"] for part in parts}
    model = content["model"]["type"]
    kinds: dict[str, TokenModel] = {"WordPiece": "wordpiece", "Unigram": "pieces", "WordLevel": "words", "BPE": "bpe"}
    if model not in kinds:
        raise ArtifactError(f"tokenizer.json has a model of type {model!r}: Firth reads {', '.join(kinds)}.")
    kind: TokenModel = "byte-bpe" if "ByteLevel" in types else kinds[model]
    sentinels = _count_sentinels({token["content"] for token in content["added_tokens"]} - specials)
    is_same = known is not None and (known.model == kind or (known.model == "chars" and model == "WordLevel"))
    if known is not None and is_same and known.sentinels == sentinels:
        return known
    size = max(261, len(list(_scored_tokens(content["model"]))) + len(content["added_tokens"]))
    return TokenizerRecipe(
        model=kind,
        vocab_size=size,
        split="space" if kind == "words" else "auto",
        normalise="nfkc" if "NFKC" in types else "nfc" if "NFC" in types else "none",
        lowercase="Lowercase" in types or any(part.get("lowercase") is True for part in parts),
        segmenter="space" if kind == "words" else "rjieba",
        sentinels=sentinels,
    )


def _count_sentinels(tokens: Set[str]) -> int:
    """The number of sentinels from `<extra_id_0>` on.

    >>> _count_sentinels({"<extra_id_1>", "<extra_id_0>", "<extra_id_3>"})
    2
    """
    return next(number for number in itertools.count() if f"<extra_id_{number}>" not in tokens)


def _flatten_steps(step: Any) -> Iterator[Config]:
    """The steps of a normaliser or pre-tokenizer, without nesting."""
    if step is None:
        return
    inner = step.get("normalizers") or step.get("pretokenizers")
    if inner is None:
        yield step
    for part in inner or ():
        yield from _flatten_steps(part)


def _check_encoding(tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer that our fast encoder, which splits at spaces and punctuation, would encode differently."""
    added = [token["content"] for token in json.loads(tokenizer.data)["added_tokens"]]
    texts = [*_PROBES, *(f"The {token} (and {token})." for token in added[:100])]
    whole = [np.array(tokens.ids, dtype=np.int64) for tokens in tokenizer.encode_batch(texts)]
    encoded = TextEncoder(tokenizer).encode(texts)
    if not np.array_equal(np.concatenate(whole), encoded.ids):
        raise AbilityError("the tokenizer splits text in a way that Firth lacks: use the standard one of its type.")
