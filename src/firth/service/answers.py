"""The answers of each endpoint: how they are written, and their schemas in the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from firth.json_output import to_json
from firth.service.batching import Submission
from firth.service.limits import Limits
from firth.service.models import ServedModel
from firth.service.operations import task_predictor, written_vector
from firth.service.refusals import Refusal


def written_answer(submission: Submission, found: Sequence[Any], encoding: str, limits: Limits) -> bytes:
    """The JSON of the answers to the items of a request."""
    served, operation = submission.served, submission.operation
    answer: dict[str, Any] = {"model": served.name, "digest": served.digest}
    if operation == "embed":
        return _written_vectors(answer, submission, found, encoding, limits)
    if operation == "score":
        answer |= {"kind": getattr(served.network, "score_kind", "causal"), "results": found}
    elif operation == "predict":
        answer |= {"task": task_predictor(served, submission.options["task"]).task, "results": found}
    elif operation == "tokenize":
        answer["results"] = found
    else:
        answer |= found[0]
    return to_json(answer).encode()


def _written_vectors(
    answer: dict[str, Any], submission: Submission, found: Sequence[Any], encoding: str, limits: Limits
) -> bytes:
    dimension = check_numbers(found, limits)
    options = submission.options
    answer |= {"dimension": dimension, "pooling": options["pooling"], "unit": bool(options["unit"])}
    results = [_with_vector({name: one[name] for name in one if name != "embedding"}, one, encoding) for one in found]
    return f'{to_json(answer)[:-1]}, "results": [{", ".join(results)}]}}'.encode()


def _with_vector(facts: dict[str, Any], found: dict[str, Any], encoding: str) -> str:
    """The JSON of a vector, whose numbers are finite, and facts."""
    return f'{to_json(facts)[:-1]}, "embedding": {json.dumps(written_vector(found["embedding"], encoding))}}}'


def check_numbers(found: Sequence[Any], limits: Limits) -> int:
    """The dimension of vectors; too many numbers are refused."""
    dimension = int(found[0]["embedding"].size)
    if dimension * len(found) > limits.numbers:
        raise Refusal(
            413, f"{len(found)} vectors of {dimension:,} numbers are too many for one answer: send fewer texts."
        )
    return dimension


def openai_embeddings(served: ServedModel, found: Sequence[Any], encoding: str, limits: Limits) -> bytes:
    """The vectors of texts in OpenAI's shape."""
    check_numbers(found, limits)
    names = ("truncated", "windowed", "unknown", "empty")
    data = [
        _with_vector({"object": "embedding", "index": index, **{name: one[name] for name in names}}, one, encoding)
        for index, one in enumerate(found)
    ]
    tokens = sum(one["tokens"] for one in found)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    answer = {"object": "list", "model": served.name, "digest": served.digest, "usage": usage}
    return f'{to_json(answer)[:-1]}, "data": [{", ".join(data)}]}}'.encode()


def openai_model(served: ServedModel, created: float) -> dict[str, Any]:
    """A model in OpenAI's shape."""
    facts = {"digest": served.digest, "abilities": list(served.abilities)}
    return {"id": served.name, "object": "model", "created": int(created), "owned_by": "firth"} | facts


class AnswerSchema(BaseModel):
    """What every answer of a model has."""

    model_config = ConfigDict(protected_namespaces=())
    model: str
    digest: str


class TextFacts(BaseModel):
    """What was read of a text."""

    tokens: int
    unknown: int
    truncated: bool


class PieceFacts(BaseModel):
    """A token of a text and its log-probability."""

    token: str
    logprob: float
    start: int | None
    end: int | None
    unknown: bool


class ScoreFacts(TextFacts):
    """The score of a text."""

    logprob: float
    words: int
    sentences: int
    bytes: int
    oov: int
    oov_logprob: float
    spelling: float
    silent: int
    bits_per_byte: float | None
    perplexity: float | None
    windowed: bool
    pieces: list[PieceFacts] | None = None


class ScoreAnswer(AnswerSchema):
    kind: Literal["causal", "pseudo"]
    results: list[ScoreFacts]


class NextToken(BaseModel):
    token: str
    probability: float


class NextAnswer(AnswerSchema, TextFacts):
    next: list[NextToken]


class FilledToken(NextToken):
    text: str | None


class FillAnswer(AnswerSchema, TextFacts):
    masks: list[list[FilledToken]]


class NeighbourFacts(BaseModel):
    word: str
    score: float
    context: str | None = None
    vector: list[float] | None = None


class SimilarAnswer(AnswerSchema):
    neighbours: list[NeighbourFacts]
    unknown: bool
    vector: list[float] | None = None


class EmbeddingFacts(TextFacts):
    embedding: list[float] | str
    windowed: bool
    empty: bool


class EmbedAnswer(AnswerSchema):
    dimension: int
    pooling: str | None
    unit: bool
    results: list[EmbeddingFacts]


class PredictionFacts(BaseModel):
    """What docs/tasks.md describes for each task."""

    model_config = ConfigDict(extra="allow")
    truncated: bool


class PredictAnswer(AnswerSchema):
    task: str
    results: list[PredictionFacts]


class TokenFacts(BaseModel):
    tokens: list[str]
    ids: list[int]
    offsets: list[list[int]]
    word_starts: list[bool]
    unknown: int


class TokenizeAnswer(AnswerSchema):
    results: list[TokenFacts]


class GenerateAnswer(AnswerSchema, TextFacts):
    texts: list[str]
    logprob: float | None = None
    finished: bool | None = None


class OpenAIEmbedding(BaseModel):
    model_config = ConfigDict(extra="allow")
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class OpenAIUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class OpenAIEmbeddings(AnswerSchema):
    object: Literal["list"]
    data: list[OpenAIEmbedding]
    usage: OpenAIUsage


class OpenAIModel(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class OpenAIModels(BaseModel):
    object: Literal["list"]
    data: list[OpenAIModel]


class ModelFacts(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str
    digest: str
    kind: str
    recipe: str
    vocabulary: int
    abilities: list[str]


class InfoAnswer(BaseModel):
    version: str
    limits: dict[str, float]
    models: list[ModelFacts]


class HealthAnswer(BaseModel):
    status: str
    version: str


class ReadyAnswer(BaseModel):
    status: str
    models: dict[str, str]


class ErrorFacts(BaseModel):
    status: int
    type: str
    message: str
    param: str | None


class ErrorAnswer(BaseModel):
    """A request that was refused, with one sentence."""

    error: ErrorFacts
