"""The requests of each endpoint: their fields, types and ranges."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

_MAX_TEXTS = 1024  # of any server; its own limit is in /info
_MAX_SEED = 2**63 - 1

ModelName = Annotated[str, Field(min_length=1, max_length=200, description="The name of a model: see /info.")]
Texts = Annotated[list[str], Field(min_length=1, max_length=_MAX_TEXTS)]
Layer = Annotated[
    int | Literal["last", "mix", "all"] | None,
    Field(description="Networks: a number, last, mix (the mean of all) or all (concatenated)."),
]
Pooling = Annotated[
    Literal["mean", "whole", "first", "last", "max"] | None, Field(description="Networks: how states become a vector.")
]
Language = Annotated[
    str | None,
    Field(max_length=40, description="Models of several languages: that of the text; default: by its script."),
]
Words = Annotated[list[str], Field(max_length=64)]
Encoding = Literal["float", "base64"]


class ModelRequest(BaseModel):
    """A request for a model."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
    operation: ClassVar[str]
    model: ModelName

    def items(self) -> list[Any]:
        """What the operation is computed for, each of them apart."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """The arguments that all items share."""
        return self.model_dump(
            exclude={"model", "texts", "text", "word", "prompt", "history", "stream", "encoding_format"}
        )


class TextsRequest(ModelRequest):
    """A request for several texts."""

    texts: Texts

    def items(self) -> list[Any]:
        return list(self.texts)


Pair = Annotated[list[str], Field(min_length=2, max_length=2)]


class ScoreRequest(ModelRequest):
    """Scores of texts, or of [source, target]."""

    operation = "score"
    texts: Annotated[list[str | Pair], Field(min_length=1, max_length=_MAX_TEXTS)]
    tokens: bool = Field(default=False, description="Also the log-probability of each token.")
    whole_words: bool = Field(default=False, description="Masked models: mask whole words.")
    language: Language = None

    def items(self) -> list[Any]:
        return [one if isinstance(one, str) else tuple(one) for one in self.texts]


class NextRequest(ModelRequest):
    """The most probable next tokens."""

    operation = "next"
    history: str
    top: Annotated[int, Field(ge=1, le=1000)] = 10
    language: Language = None

    def items(self) -> list[Any]:
        return [self.history]


class FillRequest(ModelRequest):
    """The most probable tokens for each [MASK] of a text."""

    operation = "fill"
    text: str
    top: Annotated[int, Field(ge=1, le=1000)] = 5
    language: Language = None

    def items(self) -> list[Any]:
        return [self.text]


class SimilarRequest(ModelRequest):
    """The nearest words of a word, in a context if one is given; or analogies with plus and minus."""

    operation = "similar"
    word: Annotated[str, Field(min_length=1, max_length=1000)]
    count: Annotated[int, Field(ge=1, le=1000)] = 10
    context: str | None = None
    plus: Words = []
    minus: Words = []
    method: Literal["add", "mul"] = "add"
    sentences: Annotated[list[str], Field(max_length=_MAX_TEXTS)] = []
    layer: Layer = None
    language: Language = None
    vectors: bool = Field(default=False, description="Also the vectors of the words.")

    def items(self) -> list[Any]:
        return [self.word]


class EmbedRequest(TextsRequest):
    """The vectors of texts."""

    operation = "embed"
    layer: Layer = None
    pooling: Pooling = None
    unit: bool | None = Field(default=None, description="Whether vectors are normalised to length 1.")
    language: Language = None
    encoding_format: Encoding = "float"


class PredictRequest(ModelRequest):
    """Predictions for texts, or for what the task reads."""

    operation = "predict"
    texts: Annotated[
        list[str | Annotated[list[str], Field(max_length=4096)] | dict[str, str | list[str]]],
        Field(min_length=1, max_length=_MAX_TEXTS),
    ]
    task: Annotated[str | None, Field(max_length=200)] = None

    def items(self) -> list[Any]:
        return list(self.texts)


class TokenizeRequest(TextsRequest):
    """The tokens of texts."""

    operation = "tokenize"


class GenerateRequest(ModelRequest):
    """Continuations of a prompt, or a text generated from a source."""

    operation = "generate"
    prompt: str = ""
    count: Annotated[int, Field(ge=1, le=64)] = 1
    length: Annotated[int | None, Field(ge=1, le=4096, description="Maximum number of tokens: 50 by default.")] = None
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 1.0
    top_k: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    top_p: Annotated[float | None, Field(ge=0, le=1)] = None
    beams: Annotated[int, Field(ge=1, le=16)] = 1
    seed: Annotated[int, Field(ge=0, le=_MAX_SEED)] = 0
    language: Language = None
    stream: bool = Field(default=False, description="Server-sent events with the text so far.")

    def items(self) -> list[Any]:
        return [self.prompt]


class OpenAIEmbeddingRequest(BaseModel):
    """OpenAI's request for embeddings; fields that Firth does not know are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, protected_namespaces=())
    model: ModelName
    input: str | Texts | Annotated[list[int] | list[list[int]], Field(max_length=1 << 16)]
    encoding_format: Encoding = "float"
    dimensions: Annotated[int | None, Field(ge=1)] = None
    user: str | None = None
