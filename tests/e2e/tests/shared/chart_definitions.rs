//! The resource definitions in the chart: installed, kept, taken over, upgraded. Tried on a copy of the chart whose
//! definitions belong to a group of this scenario's own, since the real ones serve the other scenarios.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use felix_e2e::{QUICK, Space, await_object, chart_dir, helm, scenario};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;

#[test]
fn definitions_are_kept_taken_over_and_upgraded() -> Result<()> {
    scenario("definitions", async |space| {
        let group = format!("{}.felix.dev", space.name);
        let chart = Copy::new(&group)?;
        let api: Api<CustomResourceDefinition> = Api::all(space.client.clone());
        let name = format!("felixclusters.{group}");
        let outcome = lifecycle(space, &chart, &api, &name).await;
        for kind in ["felixclusters", "felixstreams", "felixbenchmarks"] {
            space.delete_and_await(&api, &format!("{kind}.{group}")).await?;
        }
        outcome
    })
}

async fn lifecycle(
    space: &Space,
    chart: &Copy,
    api: &Api<CustomResourceDefinition>,
    name: &str,
) -> Result<()> {
    // Switched off, the chart brings none.
    chart
        .helm(
            space,
            &["install", "off", chart.path()?, "--set", "crds.enabled=false"],
        )
        .await?;
    ensure!(
        api.get_opt(name).await?.is_none(),
        "the definitions came although crds.enabled is false"
    );
    chart.helm(space, &["uninstall", "off", "--wait"]).await?;

    chart.helm(space, &["install", "one", chart.path()?]).await?;
    let first = api.get(name).await?.metadata.uid;
    chart.helm(space, &["uninstall", "one", "--wait"]).await?;
    let kept = api
        .get(name)
        .await
        .context("the definitions went with the release")?;
    ensure!(
        kept.metadata.uid == first && kept.metadata.deletion_timestamp.is_none(),
        "the definitions were made anew"
    );

    // A release of another name gets by with what the first one left, or takes it over.
    chart
        .helm(
            space,
            &["install", "beside", chart.path()?, "--set", "crds.enabled=false"],
        )
        .await?;
    chart.helm(space, &["uninstall", "beside", "--wait"]).await?;
    chart
        .helm(space, &["install", "two", chart.path()?, "--take-ownership"])
        .await
        .context("under another name")?;

    chart.add_field("felixclusters", "newField")?;
    chart.helm(space, &["upgrade", "two", chart.path()?]).await?;
    await_object(api, name, "the new field", QUICK, |definition| {
        let version = definition?.spec.versions.first()?;
        let schema = version.schema.as_ref()?.open_api_v3_schema.as_ref()?;
        schema
            .properties
            .as_ref()?
            .get("spec")?
            .properties
            .as_ref()?
            .get("newField")
            .map(drop)
    })
    .await?;
    let upgraded = api.get(name).await?;
    ensure!(
        upgraded.metadata.uid == first,
        "the upgrade made the definitions anew"
    );
    chart.helm(space, &["uninstall", "two", "--wait"]).await
}

/// A copy of the chart with definitions of another group.
struct Copy {
    folder: tempfile::TempDir,
}

impl Copy {
    fn new(group: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        copy(&chart_dir(), folder.path())?;
        let copy = Self { folder };
        for entry in fs::read_dir(copy.definitions())? {
            let path = entry?.path();
            let text = fs::read_to_string(&path)?;
            ensure!(
                text.contains("group: felix.dev"),
                "{} is not a definition of ours",
                path.display()
            );
            let text = text.replace("group: felix.dev", &format!("group: {group}"));
            fs::write(&path, text.replace("s.felix.dev", &format!("s.{group}")))?;
        }
        Ok(copy)
    }

    fn path(&self) -> Result<&str> {
        self.folder
            .path()
            .to_str()
            .context("the temporary folder's path is not UTF-8")
    }

    fn definitions(&self) -> PathBuf {
        self.folder.path().join("templates/crds")
    }

    /// Adds a field to the spec, as a later version of the chart would.
    fn add_field(&self, kind: &str, field: &str) -> Result<()> {
        let path = self.definitions().join(format!("{kind}.yaml"));
        let text = fs::read_to_string(&path)?;
        let place = "\n          spec:\n";
        let properties = text.find(place).and_then(|spec| {
            text[spec..]
                .find("\n            properties:\n")
                .map(|at| spec + at)
        });
        let at = properties.context("the definition has no properties of its spec")?
            + "\n            properties:\n".len();
        let (before, after) = text.split_at(at);
        fs::write(
            &path,
            format!("{before}              {field}:\n                type: string\n{after}"),
        )?;
        Ok(())
    }

    async fn helm(&self, space: &Space, arguments: &[&str]) -> Result<()> {
        let mut all = arguments.to_vec();
        all.extend(["--namespace", &space.name]);
        helm(&all).await.map(drop)
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
