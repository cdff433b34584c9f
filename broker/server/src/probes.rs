//! The plain port: is the process alive, may it serve clients, and what does it measure.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};

use crate::broker::Broker;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `/livez`, `/readyz` and `/metrics`.
pub(crate) fn router(broker: Arc<Broker>) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(broker)
}

async fn ready(State(broker): State<Arc<Broker>>) -> impl IntoResponse {
    if broker.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the broker does not serve clients: it starts or stops\n",
        )
    }
}

async fn metrics(State(broker): State<Arc<Broker>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, OPENMETRICS)], broker.render_metrics())
}
