# syntax=docker/dockerfile:1
# populora in a container, as a user without privileges.
#
#   docker build --target cpu --tag populora .             for CPUs
#   docker build --target cuda --tag populora:cuda .       with vLLM and Ray, for NVIDIA GPUs
#   docker run --rm --init --volume "$PWD/runs:/populora/runs" --user "$(id -u):$(id -g)" populora train tiny
#
# The sandbox's tier inside is `standard` by default: Landlock, seccomp and limits. Docker's seccomp and AppArmor profiles forbid the calls that
# make namespaces. With `--security-opt seccomp=unconfined --security-opt apparmor=unconfined` it is `full`, if the host lets users make user
# namespaces. `populora doctor` prints the tier. docs/containers.md weighs the two. Never use --privileged.

FROM python:3.12-slim AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .


FROM python:3.12-slim AS cpu
# populora compiles its CPU kernels for the processor that it runs on, at their first use. It keeps them in ~/.cache/populora.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel --mount=type=bind,source=requirements,target=/requirements \
    python -m venv /opt/populora \
    && /opt/populora/bin/pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
    --constraint /requirements/torch.txt /wheel/*.whl

# Anybody may write these folders, so that `docker run --user` works. The sandbox keeps a model's programs from them.
RUN useradd --uid 10001 --create-home populora \
    && install --directory --mode 1777 /populora /populora/runs /home/populora/.cache \
    && chmod 1777 /home/populora
ENV PATH=/opt/populora/bin:$PATH HOME=/home/populora USER=populora
USER 10001
WORKDIR /populora
VOLUME /populora/runs
ENTRYPOINT ["populora"]
CMD ["--help"]


# The whole toolkit, because vLLM compiles kernels when it starts, with nvcc and a C++ compiler. torch's wheel is of the same CUDA 13.0.
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04 AS cuda
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap g++ python3-dev python3-venv wget \
    && rm -rf /var/lib/apt/lists/*
# KubeRay asks Ray's dashboard, by wget, how a job is.
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    python3 -m venv /opt/populora \
    && /opt/populora/bin/pip install --no-cache-dir "$(echo /wheel/*.whl)[vllm,cluster]" "ray[default]"

RUN useradd --uid 10001 --create-home populora \
    && install --directory --mode 1777 /populora /populora/runs /home/populora/.cache \
    && chmod 1777 /home/populora
ENV PATH=/opt/populora/bin:$PATH HOME=/home/populora USER=populora CUDA_HOME=/usr/local/cuda
USER 10001
WORKDIR /populora
VOLUME /populora/runs
ENTRYPOINT ["populora"]
CMD ["--help"]
