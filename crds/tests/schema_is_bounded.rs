//! Every field is described and bounded, and the schema holds nothing that the API server warns about.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops where something is not as it must be"
)]

use serde_json::Value;

/// Calls `check` with the path and schema of every field of every kind.
fn for_each_field(check: impl Fn(&str, &Value)) {
    for definition in felix_crds::definitions() {
        let schema = serde_json::to_value(&definition.spec.versions[0].schema).unwrap();
        walk(&definition.spec.names.kind, &schema["openAPIV3Schema"], &check);
    }
}

fn walk(path: &str, schema: &Value, check: &impl Fn(&str, &Value)) {
    check(path, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), field, check);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            walk(&format!("{path}[]"), &schema[inner], check);
        }
    }
}

#[test]
fn every_string_list_map_and_number_has_a_bound() {
    for_each_field(|path, schema| {
        let has = |key: &str| schema.get(key).is_some();
        let bounded = match schema["type"].as_str().unwrap_or_default() {
            "string" => has("maxLength") || has("enum"),
            "integer" => has("minimum") && has("maximum"),
            "array" => has("maxItems") && has("items"),
            "object" => !has("additionalProperties") || has("maxProperties"),
            "boolean" => true,
            other => panic!("{path}: type {other:?}"),
        };
        assert!(bounded, "{path} has no bound: {schema}");
    });
}

#[test]
fn every_field_is_described() {
    for_each_field(|path, schema| {
        let item = path.ends_with("[]") && schema["type"] == "string";
        assert!(
            item || schema["description"].as_str().is_some_and(|d| d.len() > 3),
            "{path} has no description"
        );
    });
}

#[test]
fn no_field_is_nullable_or_has_a_format_that_kubernetes_does_not_know() {
    for_each_field(|path, schema| {
        for key in [
            "nullable",
            "anyOf",
            "oneOf",
            "allOf",
            "$ref",
            "x-kubernetes-preserve-unknown-fields",
        ] {
            assert!(schema.get(key).is_none(), "{path} has {key}");
        }
        let format = schema["format"].as_str().unwrap_or("int32");
        assert!(
            ["int32", "int64", "date-time"].contains(&format),
            "{path} has format {format}"
        );
    });
}

#[test]
fn every_rule_says_what_to_do() {
    for_each_field(|path, schema| {
        for rule in schema["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            assert!(
                rule["message"].as_str().is_some_and(|m| m.len() > 20),
                "{path}: {rule}"
            );
        }
    });
}

#[test]
fn every_status_has_a_generation_and_so_has_every_condition() {
    for definition in felix_crds::definitions() {
        let schema = serde_json::to_value(&definition.spec.versions[0].schema).unwrap();
        let status = &schema["openAPIV3Schema"]["properties"]["status"]["properties"];
        assert_eq!(status["observedGeneration"]["format"], "int64");
        let conditions = &status["conditions"];
        assert_eq!(conditions["x-kubernetes-list-type"], "map");
        assert_eq!(conditions["x-kubernetes-list-map-keys"][0], "type");
        assert!(
            conditions["items"]["required"]
                .as_array()
                .unwrap()
                .contains(&"observedGeneration".into())
        );
    }
}

#[test]
fn kinds_have_short_names_a_category_and_the_scale_subresource_where_it_belongs() {
    for definition in felix_crds::definitions() {
        let names = &definition.spec.names;
        assert_eq!(names.categories.as_deref(), Some(&["felix".to_owned()][..]));
        assert_eq!(names.short_names.as_ref().map(Vec::len), Some(1));
        let subresources = definition.spec.versions[0].subresources.as_ref().unwrap();
        assert!(subresources.status.is_some());
        assert_eq!(subresources.scale.is_some(), names.kind == "FelixCluster");
    }
}
