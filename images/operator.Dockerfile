ARG BASE=localhost/felix-base:bookworm
FROM ${BASE}
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="Felix operator" \
      org.opencontainers.image.description="Runs Felix brokers on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY felix-operator /usr/local/bin/felix-operator
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/felix-operator"]
