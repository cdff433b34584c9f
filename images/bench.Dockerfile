ARG BASE=localhost/felix-base:bookworm
FROM ${BASE}
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="Felix benchmark" \
      org.opencontainers.image.description="Measures a Felix broker from where it runs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY felix-bench /usr/local/bin/felix-bench
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/felix-bench"]
