# smoothcert for the processor:
#   docker build --build-arg TORCH_CPU_INDEX=URL -t smoothcert .
#   docker run --rm -v "$PWD:/work" smoothcert --help
# URL: a package index that has torch without CUDA. Without it torch is installed with CUDA, and the image is large.
FROM python:3.11-slim AS build
ARG TORCH_CPU_INDEX=""
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/smoothcert \
    && PIP_EXTRA_INDEX_URL="$TORCH_CPU_INDEX" /opt/smoothcert/bin/pip install --no-cache-dir \
        --constraint constraints.txt \
        '.[torch,onnx,sklearn,images,plot,verify,report]'

FROM python:3.11-slim
COPY --from=build /opt/smoothcert /opt/smoothcert
ENV PATH=/opt/smoothcert/bin:$PATH
RUN useradd --create-home --uid 1000 smoothcert
USER 1000
WORKDIR /work
ENTRYPOINT ["smoothcert"]
CMD ["--help"]
