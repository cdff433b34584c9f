ARG BASE=localhost/felix-base:bookworm
FROM ${BASE}
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="Prometheus for Felix's demo and tests" \
      org.opencontainers.image.description="Prometheus with Kubernetes discovery only" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY prometheus /usr/local/bin/prometheus
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/prometheus"]
