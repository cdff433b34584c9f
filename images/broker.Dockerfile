ARG BASE=localhost/felix-base:bookworm
FROM ${BASE}
ARG VERSION
ARG REVISION
LABEL org.opencontainers.image.title="Felix broker" \
      org.opencontainers.image.description="Publish and subscribe over QUIC" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY felix-broker /usr/local/bin/felix-broker
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/felix-broker"]
