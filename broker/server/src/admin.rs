//! The admin API under `/api/v1`: what the broker is, and which streams it has. All of it needs the bearer token.

mod answer;
mod token;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{
        DefaultBodyLimit, Path, Query, Request, State,
        rejection::{JsonRejection, QueryRejection},
    },
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{delete, get},
};
use felix_store::{PutOutcome, StreamSpec};
use felix_wire::StreamName;
use serde::Deserialize;

use answer::{ApiError, BrokerView, StreamAnswer, StreamView, StreamsView};
pub(crate) use token::AdminToken;
pub use token::TokenError;

use crate::{broker::Broker, catalogue::NewStream};

/// Largest body of a request in bytes: a spec has a few hundred.
const MAX_BODY_BYTES: usize = 64 << 10;

/// What the handlers share.
#[derive(Clone)]
struct Api {
    broker: Arc<Broker>,
    token: Arc<AdminToken>,
}

/// All of the API.
pub(crate) fn router(broker: Arc<Broker>, token: Arc<AdminToken>) -> Router {
    let api = Api { broker, token };
    Router::new()
        .route("/api/v1/broker", get(show_broker))
        .route("/api/v1/streams", get(list_streams))
        .route(
            "/api/v1/streams/{name}",
            get(show_stream).put(put_stream).delete(delete_stream),
        )
        .route("/api/v1/streams/{name}/owner", delete(release_owner))
        .fallback(async || ApiError::no_such_path())
        .method_not_allowed_fallback(async || ApiError::method_not_allowed())
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(api.clone(), authenticate))
        .with_state(api)
}

async fn authenticate(State(api): State<Api>, request: Request, next: Next) -> Response {
    if api.token.is_carried_by(request.headers()) {
        next.run(request).await
    } else {
        ApiError::unauthenticated().into_response()
    }
}

async fn show_broker(State(api): State<Api>) -> Json<BrokerView> {
    Json(BrokerView::new(&api.broker))
}

async fn list_streams(State(api): State<Api>) -> Json<StreamsView> {
    let catalogue = api.broker.catalogue().current();
    let streams = catalogue
        .streams()
        .iter()
        .map(|(name, entry)| StreamView::new(name, entry))
        .collect();
    Json(StreamsView {
        catalogue_version: catalogue.version(),
        streams,
    })
}

async fn show_stream(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<StreamAnswer>, ApiError> {
    let catalogue = api.broker.catalogue().current();
    StreamAnswer::of(&catalogue, &name)
        .map(Json)
        .ok_or_else(ApiError::no_such_stream)
}

/// The body of a put.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PutBody {
    owner: String,
    catalogue_version: Option<u64>,
    #[serde(default)]
    spec: StreamSpec,
}

async fn put_stream(
    State(api): State<Api>,
    Path(name): Path<String>,
    body: Result<Json<PutBody>, JsonRejection>,
) -> Result<(StatusCode, Json<StreamAnswer>), ApiError> {
    let Json(body) = body.map_err(|rejection| ApiError::invalid("body", rejection.body_text()))?;
    let name = StreamName::new(&name).map_err(|error| ApiError::invalid("name", error.to_string()))?;
    let request = NewStream {
        name: &name,
        owner: &body.owner,
        expected_version: body.catalogue_version,
        spec: body.spec,
    };
    let (outcome, catalogue) = api.broker.catalogue().put(request).await?;
    let status = match outcome {
        PutOutcome::Created => StatusCode::CREATED,
        PutOutcome::Changed | PutOutcome::Same => StatusCode::OK,
    };
    let answer = StreamAnswer::of(&catalogue, name.as_str()).ok_or_else(ApiError::no_such_stream)?;
    Ok((status, Json(answer)))
}

/// The query of a delete.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeleteQuery {
    owner: String,
    catalogue_version: Option<u64>,
}

async fn delete_stream(
    State(api): State<Api>,
    Path(name): Path<String>,
    query: Result<Query<DeleteQuery>, QueryRejection>,
) -> Result<Json<answer::VersionView>, ApiError> {
    let Query(query) = query.map_err(|rejection| ApiError::invalid("query", rejection.body_text()))?;
    let catalogue = api
        .broker
        .catalogue()
        .delete(&name, &query.owner, query.catalogue_version)
        .await?;
    Ok(Json(answer::VersionView {
        catalogue_version: catalogue.version(),
    }))
}

async fn release_owner(
    State(api): State<Api>,
    Path(name): Path<String>,
    query: Result<Query<DeleteQuery>, QueryRejection>,
) -> Result<Json<StreamAnswer>, ApiError> {
    let Query(query) = query.map_err(|rejection| ApiError::invalid("query", rejection.body_text()))?;
    let catalogue = api
        .broker
        .catalogue()
        .release(&name, &query.owner, query.catalogue_version)
        .await?;
    StreamAnswer::of(&catalogue, &name)
        .map(Json)
        .ok_or_else(ApiError::no_such_stream)
}
