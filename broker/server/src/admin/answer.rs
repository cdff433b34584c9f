//! The bodies of the admin API's answers, errors included.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use felix_store::{Catalogue, ChangeError, StreamEntry, StreamSpec, SwapError};
use felix_wire::ErrorKind;
use serde::Serialize;

use crate::{
    broker::Broker,
    catalogue::CatalogueError,
    udp::{Buffer, Buffers},
};

/// The broker itself.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BrokerView {
    cluster_id: String,
    broker_id: String,
    version: &'static str,
    uptime_seconds: u64,
    catalogue_version: u64,
    udp_buffers: BuffersView,
}

#[derive(Serialize)]
struct BuffersView {
    receive: BufferView,
    send: BufferView,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BufferView {
    asked_bytes: u64,
    granted_bytes: u64,
}

impl BrokerView {
    pub(super) fn new(broker: &Broker) -> Self {
        Self {
            cluster_id: broker.identity().cluster_id.clone(),
            broker_id: broker.identity().broker_id.clone(),
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: broker.uptime().as_secs(),
            catalogue_version: broker.catalogue().current().version(),
            udp_buffers: broker.buffers().into(),
        }
    }
}

impl From<Buffers> for BuffersView {
    fn from(buffers: Buffers) -> Self {
        Self {
            receive: buffers.receive.into(),
            send: buffers.send.into(),
        }
    }
}

impl From<Buffer> for BufferView {
    fn from(buffer: Buffer) -> Self {
        Self {
            asked_bytes: buffer.asked,
            granted_bytes: buffer.granted,
        }
    }
}

/// All streams.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StreamsView {
    pub(super) catalogue_version: u64,
    pub(super) streams: Vec<StreamView>,
}

/// One stream and the version of the catalogue that it was read from.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StreamAnswer {
    catalogue_version: u64,
    stream: StreamView,
}

impl StreamAnswer {
    pub(super) fn of(catalogue: &Catalogue, name: &str) -> Option<Self> {
        let entry = catalogue.streams().get(name)?;
        Some(Self {
            catalogue_version: catalogue.version(),
            stream: StreamView::new(name, entry),
        })
    }
}

/// The version of the catalogue after a change.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VersionView {
    pub(super) catalogue_version: u64,
}

/// One stream.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StreamView {
    name: String,
    incarnation: String,
    owner: Option<String>,
    spec: StreamSpec,
    /// RFC 3339, UTC.
    created_at: String,
}

impl StreamView {
    pub(super) fn new(name: &str, entry: &StreamEntry) -> Self {
        let millis = i64::try_from(entry.created_at_ms).unwrap_or(i64::MAX);
        Self {
            name: name.to_owned(),
            incarnation: entry.incarnation.clone(),
            owner: entry.owner.clone(),
            spec: entry.spec.clone(),
            created_at: jiff::Timestamp::from_millisecond(millis)
                .unwrap_or_default()
                .to_string(),
        }
    }
}

/// An error with its status; the body says whether to try again.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    body: Box<ErrorBody>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorBody {
    code: &'static str,
    message: String,
    retry: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    catalogue_version: Option<u64>,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, kind: ErrorKind, message: String) -> Self {
        let body = ErrorBody {
            code,
            message,
            retry: kind.as_str(),
            field: None,
            owner: None,
            catalogue_version: None,
        };
        Self {
            status,
            body: Box::new(body),
        }
    }

    pub(super) fn invalid(field: &'static str, message: String) -> Self {
        let mut error = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            ErrorKind::DoNotRetry,
            message,
        );
        error.body.field = Some(field);
        error
    }

    pub(super) fn unauthenticated() -> Self {
        let message = "send the admin token as `Authorization: Bearer TOKEN`".to_owned();
        Self::new(
            StatusCode::UNAUTHORIZED,
            "Unauthenticated",
            ErrorKind::DoNotRetry,
            message,
        )
    }

    pub(super) fn no_such_stream() -> Self {
        let message = "there is no such stream".to_owned();
        Self::new(StatusCode::NOT_FOUND, "NotFound", ErrorKind::DoNotRetry, message)
    }

    pub(super) fn no_such_path() -> Self {
        let message = "there is nothing at this path; the API is below /api/v1".to_owned();
        Self::new(
            StatusCode::NOT_FOUND,
            "NoSuchPath",
            ErrorKind::DoNotRetry,
            message,
        )
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "this path does not take that method".to_owned();
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            ErrorKind::DoNotRetry,
            message,
        )
    }
}

impl From<CatalogueError> for ApiError {
    fn from(error: CatalogueError) -> Self {
        match error {
            CatalogueError::Change(error) => error.into(),
            CatalogueError::Store(error) => error.into(),
        }
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        let message = error.to_string();
        let conflict = |code, kind| Self::new(StatusCode::CONFLICT, code, kind, message.clone());
        match error {
            ChangeError::OwnedByAnother { owner } => {
                let mut answer = conflict("OwnedByAnother", ErrorKind::DoNotRetry);
                answer.body.owner = Some(owner);
                answer
            }
            ChangeError::VersionConflict { actual, .. } => {
                let mut answer = conflict("VersionConflict", ErrorKind::Retry);
                answer.body.catalogue_version = Some(actual);
                answer
            }
            ChangeError::Immutable { field } => {
                let mut answer = conflict("Immutable", ErrorKind::DoNotRetry);
                answer.body.field = Some(field);
                answer
            }
            ChangeError::Full => conflict("Full", ErrorKind::DoNotRetry),
            ChangeError::Invalid(error) => Self::invalid(error.field, error.message),
            ChangeError::NotFound => Self::no_such_stream(),
        }
    }
}

impl From<SwapError> for ApiError {
    fn from(error: SwapError) -> Self {
        let message = error.to_string();
        match error {
            SwapError::Conflict { actual, .. } => {
                let mut answer =
                    Self::new(StatusCode::CONFLICT, "VersionConflict", ErrorKind::Retry, message);
                answer.body.catalogue_version = Some(actual);
                answer
            }
            SwapError::Failed(_) => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "StoreFailed",
                ErrorKind::Retry,
                message,
            ),
            SwapError::Unknown(_) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "StoreUnknown",
                ErrorKind::Unknown,
                message,
            ),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}
