# firth serve: docker build -t firth . && docker run -p 127.0.0.1:8080:8080 -v ./models:/models:ro -v ./key:/run/secrets/key:ro firth /models/bert
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN python -m venv /opt/firth && /opt/firth/bin/pip install --no-cache-dir -c constraints.txt '.[serve]'

FROM python:3.11-slim
RUN useradd --system --create-home firth
COPY --from=build /opt/firth /opt/firth
ENV PATH=/opt/firth/bin:$PATH FIRTH_CACHE=/tmp/firth NUMBA_CACHE_DIR=/tmp/numba PYTHONUNBUFFERED=1
USER firth
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --start-period=60s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/ready', timeout=5)"]
ENTRYPOINT ["firth", "serve", "--host", "0.0.0.0", "--port", "8080", "--key-file", "/run/secrets/key"]
