# Trains in a container: `docker build -t bayes-planet .`, then `docker run -v "$PWD/runs:/runs" bayes-planet`.
# With NVIDIA's container toolkit: `docker build --build-arg EXTRAS=cuda -t bayes-planet:cuda .` and `docker run --gpus all`.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
ARG PYTHON
ARG EXTRAS=""
WORKDIR /source
COPY . .
# The wheel first: its dependencies are then all that the environment has beside it.
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir -c constraints/${PYTHON}.txt ".${EXTRAS:+[${EXTRAS}]}"

FROM python:${PYTHON}-slim
# Software OpenGL; on NVIDIA cards the container toolkit brings its own EGL.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libegl1 libgl1 libgl1-mesa-dri \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics
RUN useradd --create-home --uid 1000 planet && install --directory --owner=planet /runs
USER planet
WORKDIR /home/planet
VOLUME /runs
# Ctrl-C and `docker stop` reach the run itself, which saves; the same command goes on.
STOPSIGNAL SIGTERM
ENTRYPOINT ["bayes-planet"]
CMD ["train", "--config", "quickstart", "--logdir", "/runs/quickstart"]
