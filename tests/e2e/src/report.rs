//! What a namespace looked like when a scenario failed.

use std::fmt::Debug;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::{
    ResourceExt,
    api::{ListParams, LogParams},
};

use crate::{Space, felix::Kind};

/// Lines of each container's log that are printed.
const LOG_LINES: i64 = 40;

/// Prints it, as far as the API server tells.
pub(crate) async fn print(space: &Space) {
    eprintln!("---- namespace {} ----", space.name);
    for kind in Kind::ALL {
        section(kind.name(), felix_objects(space, kind).await);
    }
    section("claims", claims(space).await);
    section("pods and logs", pods(space).await);
    section("events", events(space).await);
    eprintln!("---- end of namespace {} ----", space.name);
}

fn section<E: Debug>(title: &str, text: Result<String, E>) {
    match text {
        Ok(text) if text.is_empty() => {}
        Ok(text) => eprintln!("== {title}\n{text}"),
        Err(error) => eprintln!("== {title}: {error:?}"),
    }
}

async fn felix_objects(space: &Space, kind: Kind) -> Result<String> {
    let mut text = String::new();
    for mut object in space.felix(kind).list(&ListParams::default()).await? {
        object.metadata.managed_fields = None;
        text += &serde_yaml::to_string(&object)?;
    }
    Ok(text)
}

async fn claims(space: &Space) -> Result<String> {
    let claims = space
        .api::<PersistentVolumeClaim>()
        .list(&ListParams::default())
        .await?;
    let line = |claim: &PersistentVolumeClaim| {
        let phase = claim.status.as_ref().and_then(|status| status.phase.clone());
        format!("{} {}\n", claim.name_any(), phase.unwrap_or_default())
    };
    Ok(claims.iter().map(line).collect())
}

async fn pods(space: &Space) -> Result<String> {
    let api = space.api::<Pod>();
    let mut text = String::new();
    for pod in api.list(&ListParams::default()).await? {
        let name = pod.name_any();
        let status = pod.status.unwrap_or_default();
        text += &format!("-- {name} {}\n", status.phase.unwrap_or_default());
        for container in status.container_statuses.unwrap_or_default() {
            let state = serde_json::to_string(&container.state)?;
            text += &format!(
                "   {} ready={} restarts={} {state}\n",
                container.name, container.ready, container.restart_count
            );
        }
        let log = api
            .logs(
                &name,
                &LogParams {
                    tail_lines: Some(LOG_LINES),
                    ..LogParams::default()
                },
            )
            .await;
        text += &log.unwrap_or_else(|error| format!("   no log: {error}\n"));
    }
    Ok(text)
}

async fn events(space: &Space) -> Result<String> {
    let events = space.api::<Event>().list(&ListParams::default()).await?;
    let line = |event: &Event| {
        let object = &event.involved_object;
        format!(
            "{} {}/{} {}: {}\n",
            event.type_.as_deref().unwrap_or_default(),
            object.kind.as_deref().unwrap_or_default(),
            object.name.as_deref().unwrap_or_default(),
            event.reason.as_deref().unwrap_or_default(),
            event.message.as_deref().unwrap_or_default(),
        )
    };
    Ok(events.iter().map(line).collect())
}
