//! The files in the repository are the ones that crdgen would write now.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops where something is not as it must be"
)]

use std::path::Path;

#[test]
fn the_files_in_the_repository_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (path, text) in felix_crds::generated_files().unwrap() {
        let stored = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        assert!(
            stored == text,
            "{path} is out of date: run `cargo run -p felix-crds --bin crdgen`"
        );
    }
}

#[test]
fn each_definition_is_small_enough_for_kubectl_apply() {
    for (path, text) in felix_crds::generated_files().unwrap() {
        assert!(text.len() < 200_000, "{path} has {} bytes", text.len());
    }
}

#[test]
fn a_chart_template_is_the_definition_behind_a_switch_and_kept() {
    let files = felix_crds::generated_files().unwrap();
    for definition in felix_crds::definitions() {
        let plural = &definition.spec.names.plural;
        let find = |folder: &str| {
            &files
                .iter()
                .find(|(p, _)| *p == format!("{folder}/{plural}.yaml"))
                .unwrap()
                .1
        };
        let template = find("charts/felix/templates/crds");
        let body = template
            .strip_prefix("{{- if .Values.crds.enabled }}\n")
            .and_then(|t| t.strip_suffix("{{- end }}\n"))
            .unwrap();
        assert!(!body.contains("{{"), "{plural}: text that Helm would evaluate");
        let mut kept: serde_yaml::Value = serde_yaml::from_str(body).unwrap();
        let annotations = kept["metadata"]
            .as_mapping_mut()
            .unwrap()
            .remove("annotations")
            .unwrap();
        assert_eq!(annotations["helm.sh/resource-policy"], "keep");
        assert_eq!(
            kept,
            serde_yaml::from_str::<serde_yaml::Value>(find("crds/yaml")).unwrap()
        );
    }
}
