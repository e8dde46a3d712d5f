"""The application: endpoints, and answers of the one shape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse

import firth
from firth.errors import near_miss
from firth.json_output import to_json
from firth.service import answers, schemas
from firth.service.answers import written_answer
from firth.service.batching import Submission
from firth.service.models import ServedModel
from firth.service.pages import static_pages
from firth.service.refusals import Refusal, refusal_of
from firth.service.state import ServerState

T = TypeVar("T")
_QUICK = 16  # texts whose answers are written at once
_DESCRIPTION = "Models of every family: scores, next tokens, masks, vectors, neighbours, predictions and text."
_ERROR: dict[int | str, dict[str, Any]] = {
    status: {"model": answers.ErrorAnswer, "description": what}
    for status, what in {
        400: "Not HTTP or JSON as it should be.",
        401: "The key is missing or wrong.",
        404: "There is no such model.",
        408: "The request arrived too slowly.",
        413: "Too large.",
        422: "Not understood, or the model lacks the ability.",
        429: "Too busy.",
        503: "Not ready, or stopping.",
    }.items()
}


OPERATION_PATHS: tuple[tuple[str, type[schemas.ModelRequest], Any], ...] = (
    ("/score", schemas.ScoreRequest, answers.ScoreAnswer),
    ("/next", schemas.NextRequest, answers.NextAnswer),
    ("/fill", schemas.FillRequest, answers.FillAnswer),
    ("/similar", schemas.SimilarRequest, answers.SimilarAnswer),
    ("/embed", schemas.EmbedRequest, answers.EmbedAnswer),
    ("/predict", schemas.PredictRequest, answers.PredictAnswer),
    ("/tokenize", schemas.TokenizeRequest, answers.TokenizeAnswer),
    ("/generate", schemas.GenerateRequest, answers.GenerateAnswer),
)
"""The path of each operation, its request and its answer."""


class JsonAnswer(JSONResponse):
    """An answer in JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else to_json(content).encode()


def refused(refusal: Refusal) -> JsonAnswer:
    """The answer to a request that is refused."""
    return JsonAnswer(refusal.data(), status_code=refusal.status, headers=refusal.headers())


def make_app(state: ServerState) -> FastAPI:
    """The application that answers with the models of a registry."""
    app = FastAPI(
        title="Firth",
        version=firth.__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        responses=_ERROR,
    )
    _add_handlers(app)
    _add_operations(app, state)
    _add_openai(app, state)
    _add_facts(app, state)
    for path, page in static_pages(app).items():
        app.add_api_route(path, _page(page), include_in_schema=False)
    return app


def _page(response: Callable[[], Response]) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return response()

    return answer


def _add_handlers(app: FastAPI) -> None:
    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        kind = next((kind for path, kind, _ in OPERATION_PATHS if path == request.url.path), None)
        return refused(describe_invalid(error.errors(), list(kind.model_fields) if kind else []))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return refused(_http_refusal(error.status_code))

    async def refusal(request: Request, error: Exception) -> Response:
        return refused(refusal_of(error))

    app.add_exception_handler(Exception, refusal)

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(Refusal, refusal)


def _http_refusal(status: int) -> Refusal:
    messages = {
        400: "the body cannot be read: send JSON in UTF-8.",
        404: "there is no such address: /docs lists them.",
        405: "this address has another method: /docs lists them.",
    }
    known = status if status in messages else 400
    return Refusal(known, messages[known])


def describe_invalid(errors: Sequence[Any], fields: Sequence[str] = ()) -> Refusal:
    """One sentence on what is wrong with a request that has these fields."""
    error = errors[0]
    where = [str(part) for part in error["loc"] if part not in ("body", "query")]
    if error["type"] == "json_invalid":
        return Refusal(400, "the body is not JSON: check its commas, quotes and braces.")
    if not where:
        return Refusal(422, "a JSON object is expected: send it with the header content-type: application/json.")
    name = where[0]
    if error["type"] == "extra_forbidden":
        hint = near_miss(name[:80], fields) if fields else "/docs lists them."
        return Refusal(422, f"there is no field {name!r:.80}: {hint}", param=name[:80])
    if error["type"] == "missing":
        return Refusal(422, f"the field {name!r:.80} is missing: add it.", param=name[:80])
    message = str(error["msg"])
    shown = ".".join(part for part in where[:2] if part.isidentifier() or part.isdecimal())
    return Refusal(422, f"{shown[:80]}: {message[:1].lower()}{message[1:200]}.", param=name[:80])


def _add_operations(app: FastAPI, state: ServerState) -> None:
    def add(path: str, request_type: Any, answer_type: Any) -> None:
        async def endpoint(body: Any, request: Request) -> Response:
            return await answer_request(state, body, request)

        endpoint.__annotations__["body"] = request_type
        endpoint.__annotations__["request"] = Request
        endpoint.__annotations__["return"] = Response
        app.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            name=path.strip("/"),
            summary=(request_type.__doc__ or "").splitlines()[0],
            responses={200: {"model": answer_type, "description": "The answer."}},
            response_class=JsonAnswer,
        )

    for path, request_type, answer_type in OPERATION_PATHS:
        add(path, request_type, answer_type)


async def answer_request(state: ServerState, body: schemas.ModelRequest, request: Request) -> Response:
    """The answer of a model to a request."""
    served = state.registry.get(body.model)
    served.require(body.operation)
    items, options = body.items(), body.options()
    if isinstance(body, schemas.EmbedRequest):
        options = chosen_pooling(served, options)
    await state.check_size(served, items, options)
    submission = Submission(served, body.operation, items, options)
    if isinstance(body, schemas.GenerateRequest):
        state.check_generated(body)
        if body.stream:
            return StreamingResponse(
                _events(state, submission, request),
                media_type="text/event-stream",
                headers={"cache-control": "no-store"},
            )
    found = await until_gone(request, state.workers.run(submission))
    encoding = getattr(body, "encoding_format", "float")
    return JsonAnswer(await in_thread_if_large(found, written_answer, submission, found, encoding, state.limits))


def chosen_pooling(served: ServedModel, options: dict[str, Any]) -> dict[str, Any]:
    """The options of `embed` with the pooling that the model was trained with, where none is given."""
    own = served.pooling
    chosen = dict(options)
    if chosen["pooling"] is None and chosen["unit"] is None and chosen["layer"] is None:
        chosen |= own
    return chosen


async def until_gone(request: Request, work: Awaitable[T]) -> T:
    """The result of work, which is cancelled if the client closes its connection."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Refusal(408, "the client has gone.")
        return task.result()
    finally:
        for one in (task, gone):
            if not one.done():
                one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def in_thread_if_large(found: Sequence[Any], write: Callable[..., bytes], *arguments: Any) -> bytes:
    """The bytes of an answer, written in a thread if that takes long, so that other requests go on."""
    if len(found) > _QUICK:
        return await asyncio.to_thread(write, *arguments)
    return write(*arguments)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _events(state: ServerState, submission: Submission, request: Request) -> AsyncIterator[bytes]:
    """Server-sent events: the text so far after each token, then the answer, or an error."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    latest: list[dict[str, Any]] = []

    def emit(part: dict[str, Any]) -> None:
        loop.call_soon_threadsafe(_set_latest, latest, part, ready)

    submission.emit = emit
    task = asyncio.ensure_future(state.workers.run(submission))
    task.add_done_callback(lambda _: ready.set())
    try:
        while not task.done() or latest:
            await ready.wait()
            ready.clear()
            if latest:
                yield _event(latest.pop())
        answer = written_answer(submission, task.result(), "float", state.limits)
        yield _event(answer, "done")
    except Exception as error:
        yield _event(refusal_of(error).data(), "error")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _set_latest(latest: list[dict[str, Any]], part: dict[str, Any], ready: asyncio.Event) -> None:
    latest[:] = [part]
    ready.set()


def _event(data: bytes | dict[str, Any], name: str = "") -> bytes:
    written = data if isinstance(data, bytes) else to_json(data).encode()
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + written + b"\n\n"


def _add_openai(app: FastAPI, state: ServerState) -> None:
    @app.post("/v1/embeddings", responses={200: {"model": answers.OpenAIEmbeddings, "description": "The answer."}})
    async def embeddings(body: schemas.OpenAIEmbeddingRequest, request: Request) -> Response:
        """Vectors of texts in OpenAI's shape."""
        texts = [body.input] if isinstance(body.input, str) else body.input
        if not texts or not all(isinstance(text, str) for text in texts):
            raise Refusal(
                422, "input must be a text or a list of texts: ids belong to another tokenizer.", param="input"
            )
        served = state.registry.get(body.model)
        served.require("embed")
        options = chosen_pooling(served, schemas.EmbedRequest(model=body.model, texts=["-"]).options())
        await state.check_size(served, texts, options)
        submission = Submission(served, "embed", texts, options)
        found = await until_gone(request, state.workers.run(submission))
        if body.dimensions is not None and any(one["embedding"].size != body.dimensions for one in found):
            size = found[0]["embedding"].size
            raise Refusal(422, f"the vectors have {size} dimensions: leave dimensions out.", param="dimensions")
        write = answers.openai_embeddings
        return JsonAnswer(await in_thread_if_large(found, write, served, found, body.encoding_format, state.limits))

    @app.get("/v1/models", responses={200: {"model": answers.OpenAIModels, "description": "The answer."}})
    async def models() -> Response:
        """All models in OpenAI's shape."""
        data = [answers.openai_model(one, state.metrics.started) for one in state.registry.all()]
        return JsonAnswer({"object": "list", "data": data})

    @app.get("/v1/models/{name}", responses={200: {"model": answers.OpenAIModel, "description": "The answer."}})
    async def model(name: str) -> Response:
        """One model in OpenAI's shape."""
        return JsonAnswer(answers.openai_model(state.registry.get(name), state.metrics.started))


def _add_facts(app: FastAPI, state: ServerState) -> None:
    @app.get("/info", responses={200: {"model": answers.InfoAnswer, "description": "The answer."}})
    async def info(model: Annotated[str | None, Query(max_length=200)] = None) -> Response:
        """The models, what they can do, and the limits of requests."""
        if model is None:
            models = [one.info() for one in state.registry.all()]
        else:
            served = state.registry.get(model)
            details = {"card": getattr(served.model, "card", ""), "manifest": served.manifest.to_dict()}
            models = [served.info() | details]
        return JsonAnswer({"version": firth.__version__, "limits": state.limits.shown(), "models": models})

    @app.get("/health", responses={200: {"model": answers.HealthAnswer, "description": "The answer."}})
    async def health() -> Response:
        """Whether the process runs."""
        return JsonAnswer({"status": "ok", "version": firth.__version__})

    @app.get("/ready", responses={200: {"model": answers.ReadyAnswer, "description": "The answer."}})
    async def ready() -> Response:
        """Whether all models are verified and tested."""
        state.require_ready()
        return JsonAnswer({"status": "ready", "models": {one.name: one.digest for one in state.registry.all()}})

    @app.get("/metrics", responses={200: {"content": {"text/plain": {}}, "description": "Prometheus' text format."}})
    async def metrics() -> Response:
        """Counters in Prometheus' text format."""
        return Response(state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
