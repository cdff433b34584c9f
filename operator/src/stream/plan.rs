//! What to ask of the broker for a stream: decided from the checked stream and what the broker holds. Pure.

use felix_crds::{DeletionPolicy, FelixStream};
use kube::ResourceExt;

use super::document::{PutStream, StreamAnswer, StreamSettings};

/// A stream that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValidatedStream {
    /// The name that clients use.
    pub(crate) name: String,
    /// Who asks: the object by name, so that one that was deleted and made again takes its stream back.
    pub(crate) owner: String,
    /// What it should be.
    pub(crate) settings: StreamSettings,
    /// What becomes of it when the object is deleted.
    pub(crate) deletion_policy: DeletionPolicy,
}

/// What to do about a stream that should exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Ask the broker to create or change it.
    Put(PutStream),
    /// It is as it should be.
    Keep {
        /// The identity of its life.
        incarnation: String,
    },
    /// Another owner was there first, by what the broker recorded.
    Taken {
        /// That owner.
        owner: String,
        /// The version of the catalogue that says so.
        catalogue_version: u64,
    },
}

/// What to do about a stream whose object goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// Delete it with all its records.
    Delete {
        /// The version of the catalogue that the decision rests on.
        catalogue_version: u64,
    },
    /// Let go of it: it stays, and the next owner adopts it.
    Release {
        /// The version of the catalogue that the decision rests on.
        catalogue_version: u64,
    },
    /// It is gone, or another's.
    Nothing,
}

/// Checks a stream against the rules of its definition: an older definition in the cluster may have let it through.
pub(crate) fn validate(stream: &FelixStream) -> Result<ValidatedStream, String> {
    felix_crds::check(stream).map_err(|errors| errors.to_string())?;
    let validated = identify(stream);
    let name = &validated.name;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let edges = [name.chars().next(), name.chars().next_back()];
    let alphanumeric_edges = edges.iter().all(|c| c.is_some_and(|c| c.is_ascii_alphanumeric()));
    if name.len() > 253 || !name.chars().all(plain) || !alphanumeric_edges {
        return Err(format!(
            "streamName {name:?}: use 1 to 253 ASCII letters, digits, '.', '_' and '-', a letter or a digit at both ends"
        ));
    }
    Ok(validated)
}

/// Name, owner and settings of a stream, unchecked: enough to let go of what it may have made.
pub(crate) fn identify(stream: &FelixStream) -> ValidatedStream {
    let (namespace, name) = (stream.namespace().unwrap_or_default(), stream.name_any());
    ValidatedStream {
        owner: format!("FelixStream/{namespace}/{name}"),
        name: stream.spec.stream_name.clone().unwrap_or(name),
        settings: StreamSettings::from(&stream.spec),
        deletion_policy: stream.spec.deletion_policy,
    }
}

/// Decides about a stream that should exist. `found` is what the broker holds under its name.
pub(crate) fn plan(stream: &ValidatedStream, found: Option<&StreamAnswer>) -> Plan {
    if let Some(found) = found {
        match &found.stream.owner {
            Some(owner) if *owner != stream.owner => {
                let catalogue_version = found.catalogue_version;
                return Plan::Taken {
                    owner: owner.clone(),
                    catalogue_version,
                };
            }
            Some(_) if found.stream.spec == stream.settings => {
                return Plan::Keep {
                    incarnation: found.stream.incarnation.clone(),
                };
            }
            Some(_) | None => {}
        }
    }
    Plan::Put(PutStream {
        owner: stream.owner.clone(),
        catalogue_version: found.map(|found| found.catalogue_version),
        spec: stream.settings.clone(),
    })
}

/// Decides about a stream whose object goes.
pub(crate) fn farewell(stream: &ValidatedStream, found: Option<&StreamAnswer>) -> Farewell {
    let Some(found) = found else {
        return Farewell::Nothing;
    };
    if found.stream.owner.as_deref() != Some(stream.owner.as_str()) {
        return Farewell::Nothing;
    }
    let catalogue_version = found.catalogue_version;
    match stream.deletion_policy {
        DeletionPolicy::Delete => Farewell::Delete { catalogue_version },
        DeletionPolicy::Retain => Farewell::Release { catalogue_version },
    }
}

/// The name of the FelixStream in `namespace` that `owner` stands for, if it stands for one there.
pub(crate) fn stream_of_owner<'a>(owner: &'a str, namespace: &str) -> Option<&'a str> {
    owner
        .strip_prefix("FelixStream/")?
        .strip_prefix(namespace)?
        .strip_prefix('/')
}

#[cfg(test)]
mod tests {
    use super::{super::document::HeldStream, *};

    fn stream(spec: serde_json::Value) -> FelixStream {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "felix.dev/v1alpha1",
            "kind": "FelixStream",
            "metadata": { "name": "orders", "namespace": "team-a" },
            "spec": spec,
        }))
        .unwrap()
    }

    fn orders() -> ValidatedStream {
        validate(&stream(serde_json::json!({ "clusterRef": { "name": "main" } }))).unwrap()
    }

    fn found(owner: Option<&str>, settings: &StreamSettings) -> StreamAnswer {
        let stream = HeldStream {
            incarnation: "1".to_owned(),
            owner: owner.map(str::to_owned),
            spec: settings.clone(),
        };
        StreamAnswer {
            catalogue_version: 7,
            stream,
        }
    }

    #[test]
    fn the_name_is_the_objects_unless_the_spec_has_another() {
        assert_eq!(orders().name, "orders");
        assert_eq!(orders().owner, "FelixStream/team-a/orders");
        let named =
            stream(serde_json::json!({ "clusterRef": { "name": "main" }, "streamName": "Orders.EU_1" }));
        assert_eq!(validate(&named).unwrap().name, "Orders.EU_1");
    }

    #[test]
    fn odd_names_are_refused_with_the_rule() {
        let long = "a".repeat(254);
        for name in [
            "",
            "../etc",
            "a/b",
            "заказы",
            "-a",
            "a-",
            "a b",
            "e\u{301}",
            long.as_str(),
        ] {
            let spec = serde_json::json!({ "clusterRef": { "name": "main" }, "streamName": name });
            let refusal = validate(&stream(spec)).unwrap_err();
            assert!(
                refusal.contains("streamName") && refusal.contains("letters"),
                "{name:?}: {refusal}"
            );
        }
    }

    #[test]
    fn what_is_missing_is_asked_for() {
        let Plan::Put(put) = plan(&orders(), None) else {
            panic!("no request")
        };
        assert_eq!(
            (put.catalogue_version, put.owner.as_str()),
            (None, "FelixStream/team-a/orders")
        );
        assert_eq!(
            serde_json::to_value(&put.spec).unwrap(),
            serde_json::json!({
                "class": "memory", "shards": 1, "ringBytes": 67_108_864,
                "slowSubscriber": { "policy": "drop_new", "windowBytes": 8_388_608, "allowBlock": false },
            })
        );
    }

    #[test]
    fn drift_is_corrected_from_the_version_it_was_seen_in_and_nothing_is_asked_without_it() {
        let orders = orders();
        assert_eq!(
            plan(&orders, Some(&found(Some(&orders.owner), &orders.settings))),
            Plan::Keep {
                incarnation: "1".to_owned()
            }
        );
        let mut drifted = orders.settings.clone();
        drifted.ring_bytes += 1;
        let Plan::Put(put) = plan(&orders, Some(&found(Some(&orders.owner), &drifted))) else {
            panic!("no request")
        };
        assert_eq!(put.catalogue_version, Some(7));
    }

    #[test]
    fn a_released_stream_is_adopted() {
        let orders = orders();
        assert!(matches!(
            plan(&orders, Some(&found(None, &orders.settings))),
            Plan::Put(_)
        ));
    }

    #[test]
    fn the_recorded_owner_keeps_the_name_and_the_loser_never_touches_it() {
        let orders = orders();
        let theirs = found(Some("FelixStream/team-a/first"), &orders.settings);
        let taken = Plan::Taken {
            owner: "FelixStream/team-a/first".to_owned(),
            catalogue_version: 7,
        };
        assert_eq!(plan(&orders, Some(&theirs)), taken);
        let mut leaving = orders;
        leaving.deletion_policy = DeletionPolicy::Delete;
        assert_eq!(farewell(&leaving, Some(&theirs)), Farewell::Nothing);
    }

    #[test]
    fn the_policy_decides_what_becomes_of_a_stream() {
        let mut orders = orders();
        let ours = found(Some(&orders.owner), &orders.settings);
        assert_eq!(
            farewell(&orders, Some(&ours)),
            Farewell::Release { catalogue_version: 7 },
            "it stays by default"
        );
        orders.deletion_policy = DeletionPolicy::Delete;
        assert_eq!(
            farewell(&orders, Some(&ours)),
            Farewell::Delete { catalogue_version: 7 }
        );
        assert_eq!(farewell(&orders, None), Farewell::Nothing);
    }

    #[test]
    fn an_owner_is_traced_only_within_its_own_namespace() {
        assert_eq!(
            stream_of_owner("FelixStream/team-a/orders", "team-a"),
            Some("orders")
        );
        assert_eq!(stream_of_owner("FelixStream/team-ab/orders", "team-a"), None);
        assert_eq!(stream_of_owner("someone", "team-a"), None);
    }
}
