//! The Felix client: publishers and subscriptions over QUIC.
