//! The document: which streams exist, whose they are and which life of their name this is; and the rules of change.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::{SpecError, StreamSpec};

/// Most streams that one catalogue holds: the document is rewritten as a whole on each change.
const MAX_STREAMS: usize = 10_000;
/// Longest owner, in bytes: two Kubernetes names (253 each) and a kind fit.
const MAX_OWNER_BYTES: usize = 600;
/// Version of the document's form, refused when it is not this one.
pub(crate) const FORMAT: u32 = 1;

/// The truth about a cluster, as one document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Catalogue {
    format: u32,
    cluster_id: String,
    version: u64,
    streams: BTreeMap<String, StreamEntry>,
}

/// One stream as the catalogue knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StreamEntry {
    /// This life of the name: 32 hexadecimal digits, new for each life.
    pub incarnation: String,
    /// Who may change the stream; nobody when it was released.
    pub owner: Option<String>,
    /// What it is asked to be.
    pub spec: StreamSpec,
    /// When the stream was first created, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// One entry for each shard, in order.
    pub shards: Vec<ShardEntry>,
}

/// One shard as the catalogue knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShardEntry {
    /// Leadership generation, raised each time a log is opened within one incarnation.
    pub term: u32,
}

/// A request to create or change a stream.
#[derive(Clone, Debug)]
pub struct PutStream<'a> {
    /// The stream's name, already checked against the name grammar.
    pub name: &'a str,
    /// Who asks.
    pub owner: &'a str,
    /// The version that the asker has seen; `None` means any.
    pub expected_version: Option<u64>,
    /// What the stream shall be.
    pub spec: StreamSpec,
    /// The incarnation to use if the stream is new.
    pub incarnation: &'a str,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
}

/// What a put did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The stream is new.
    Created,
    /// Spec or owner changed.
    Changed,
    /// Nothing changed, and the version did not rise.
    Same,
}

/// Why a change was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Another owner holds the stream.
    #[error("the stream belongs to {owner}; ask its owner, or let it release the stream")]
    OwnedByAnother {
        /// Who holds it.
        owner: String,
    },
    /// The catalogue has moved on since the asker looked.
    #[error("the catalogue is at version {actual}, not {expected}; read it again")]
    VersionConflict {
        /// What the asker has seen.
        expected: u64,
        /// The version of the catalogue.
        actual: u64,
    },
    /// A field that cannot change differs.
    #[error("{field} cannot change; delete the stream and create it anew")]
    Immutable {
        /// Path of the field.
        field: &'static str,
    },
    /// A field is out of bounds.
    #[error(transparent)]
    Invalid(#[from] SpecError),
    /// There is no such stream.
    #[error("there is no such stream")]
    NotFound,
    /// The catalogue is full.
    #[error("the catalogue holds {MAX_STREAMS} streams, its limit; delete some first")]
    Full,
}

impl Catalogue {
    /// The first, empty document of a cluster.
    pub fn new(cluster_id: &str) -> Self {
        Self {
            format: FORMAT,
            cluster_id: cluster_id.to_owned(),
            version: 1,
            streams: BTreeMap::new(),
        }
    }

    /// The cluster that this document is about.
    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    /// Rises by one with each change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All streams by name.
    pub fn streams(&self) -> &BTreeMap<String, StreamEntry> {
        &self.streams
    }

    /// Creates a stream, or changes one of the same owner or of nobody.
    ///
    /// # Errors
    /// See [`ChangeError`]; the document is then unchanged.
    pub fn put_stream(&mut self, put: PutStream<'_>) -> Result<PutOutcome, ChangeError> {
        self.check_version(put.expected_version)?;
        check_owner(put.owner)?;
        put.spec.check()?;
        let full = self.streams.len() >= MAX_STREAMS;
        let Some(entry) = self.streams.get_mut(put.name) else {
            if full {
                return Err(ChangeError::Full);
            }
            self.streams.insert(put.name.to_owned(), StreamEntry::new(&put));
            self.version += 1;
            return Ok(PutOutcome::Created);
        };
        entry.check_owner(put.owner)?;
        if let Some(field) = entry.spec.immutable_difference(&put.spec) {
            return Err(ChangeError::Immutable { field });
        }
        if entry.owner.is_some() && entry.spec == put.spec {
            return Ok(PutOutcome::Same);
        }
        entry.owner = Some(put.owner.to_owned());
        entry.spec = put.spec;
        self.version += 1;
        Ok(PutOutcome::Changed)
    }

    /// Removes a stream and all that it holds.
    ///
    /// # Errors
    /// See [`ChangeError`]; the document is then unchanged.
    pub fn delete_stream(
        &mut self,
        name: &str,
        owner: &str,
        expected_version: Option<u64>,
    ) -> Result<(), ChangeError> {
        self.check_version(expected_version)?;
        self.streams
            .get(name)
            .ok_or(ChangeError::NotFound)?
            .check_owner(owner)?;
        self.streams.remove(name);
        self.version += 1;
        Ok(())
    }

    /// Lets go of a stream without removing it: the next put adopts it. Says whether anything changed.
    ///
    /// # Errors
    /// See [`ChangeError`]; the document is then unchanged.
    pub fn release_owner(
        &mut self,
        name: &str,
        owner: &str,
        expected_version: Option<u64>,
    ) -> Result<bool, ChangeError> {
        self.check_version(expected_version)?;
        let entry = self.streams.get_mut(name).ok_or(ChangeError::NotFound)?;
        entry.check_owner(owner)?;
        let changed = entry.owner.take().is_some();
        self.version += u64::from(changed);
        Ok(changed)
    }

    /// Begins a new life of every memory stream: their records did not survive the process that held them.
    /// Says whether there was any.
    pub fn renew_memory_streams(&mut self, mut incarnation: impl FnMut() -> String) -> bool {
        for entry in self.streams.values_mut() {
            match entry.spec.class {
                crate::StreamClass::Memory => {
                    entry.incarnation = incarnation();
                    entry.shards.fill(ShardEntry { term: 1 });
                }
            }
        }
        let changed = !self.streams.is_empty();
        self.version += u64::from(changed);
        changed
    }

    fn check_version(&self, expected: Option<u64>) -> Result<(), ChangeError> {
        match expected {
            Some(expected) if expected != self.version => Err(ChangeError::VersionConflict {
                expected,
                actual: self.version,
            }),
            Some(_) | None => Ok(()),
        }
    }
}

impl StreamEntry {
    fn new(put: &PutStream<'_>) -> Self {
        Self {
            incarnation: put.incarnation.to_owned(),
            owner: Some(put.owner.to_owned()),
            spec: put.spec.clone(),
            created_at_ms: put.now_ms,
            shards: vec![ShardEntry { term: 1 }; usize::from(put.spec.shards)],
        }
    }

    fn check_owner(&self, asker: &str) -> Result<(), ChangeError> {
        match &self.owner {
            Some(owner) if owner != asker => Err(ChangeError::OwnedByAnother { owner: owner.clone() }),
            Some(_) | None => Ok(()),
        }
    }
}

fn check_owner(owner: &str) -> Result<(), SpecError> {
    let printable = owner.bytes().all(|byte| byte.is_ascii_graphic());
    if owner.is_empty() || owner.len() > MAX_OWNER_BYTES || !printable {
        let message = format!("must be 1 to {MAX_OWNER_BYTES} printable ASCII characters without spaces");
        return Err(SpecError {
            field: "owner",
            message,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put<'a>(name: &'a str, owner: &'a str) -> PutStream<'a> {
        PutStream {
            name,
            owner,
            expected_version: None,
            spec: StreamSpec::default(),
            incarnation: "00000000000000000000000000000001",
            now_ms: 7,
        }
    }

    #[test]
    fn the_first_put_wins_and_a_repeat_changes_nothing() {
        let mut catalogue = Catalogue::new("c");
        assert_eq!(catalogue.put_stream(put("orders", "a")), Ok(PutOutcome::Created));
        assert_eq!(catalogue.version(), 2);
        assert_eq!(catalogue.put_stream(put("orders", "a")), Ok(PutOutcome::Same));
        assert_eq!(catalogue.version(), 2);
        let refused = catalogue.put_stream(put("orders", "b"));
        assert_eq!(refused, Err(ChangeError::OwnedByAnother { owner: "a".into() }));
    }

    #[test]
    fn an_old_version_is_refused_before_anything_else() {
        let mut catalogue = Catalogue::new("c");
        catalogue.put_stream(put("orders", "a")).unwrap();
        let stale = PutStream {
            expected_version: Some(1),
            ..put("other", "a")
        };
        assert_eq!(
            catalogue.put_stream(stale),
            Err(ChangeError::VersionConflict {
                expected: 1,
                actual: 2
            })
        );
        assert!(!catalogue.streams().contains_key("other"));
    }

    #[test]
    fn a_released_stream_keeps_its_life_and_is_adopted() {
        let mut catalogue = Catalogue::new("c");
        catalogue.put_stream(put("orders", "a")).unwrap();
        assert_eq!(catalogue.release_owner("orders", "a", Some(2)), Ok(true));
        assert_eq!(catalogue.release_owner("orders", "a", None), Ok(false));
        assert_eq!(catalogue.version(), 3);
        let adopt = PutStream {
            incarnation: "ffffffffffffffffffffffffffffffff",
            ..put("orders", "b")
        };
        assert_eq!(catalogue.put_stream(adopt), Ok(PutOutcome::Changed));
        let entry = &catalogue.streams()["orders"];
        assert_eq!(entry.owner.as_deref(), Some("b"));
        assert_eq!(entry.incarnation, "00000000000000000000000000000001");
    }

    #[test]
    fn shards_cannot_change_and_ring_bytes_can() {
        let mut catalogue = Catalogue::new("c");
        catalogue.put_stream(put("orders", "a")).unwrap();
        let mut wider = put("orders", "a");
        wider.spec.shards = 2;
        assert_eq!(
            catalogue.put_stream(wider),
            Err(ChangeError::Immutable { field: "spec.shards" })
        );
        let mut larger = put("orders", "a");
        larger.spec.ring_bytes *= 2;
        assert_eq!(catalogue.put_stream(larger), Ok(PutOutcome::Changed));
    }

    #[test]
    fn only_the_owner_deletes() {
        let mut catalogue = Catalogue::new("c");
        catalogue.put_stream(put("orders", "a")).unwrap();
        let refused = catalogue.delete_stream("orders", "b", None);
        assert_eq!(refused, Err(ChangeError::OwnedByAnother { owner: "a".into() }));
        assert_eq!(catalogue.delete_stream("orders", "a", None), Ok(()));
        assert_eq!(
            catalogue.delete_stream("orders", "a", None),
            Err(ChangeError::NotFound)
        );
    }

    #[test]
    fn a_restart_begins_new_lives_in_one_change() {
        let mut catalogue = Catalogue::new("c");
        assert!(!catalogue.renew_memory_streams(|| "x".into()));
        assert_eq!(catalogue.version(), 1);
        catalogue.put_stream(put("a", "o")).unwrap();
        catalogue.put_stream(put("b", "o")).unwrap();
        let mut next = 0;
        assert!(catalogue.renew_memory_streams(|| {
            next += 1;
            format!("{next:032x}")
        }));
        assert_eq!(catalogue.version(), 4);
        assert_ne!(
            catalogue.streams()["a"].incarnation,
            catalogue.streams()["b"].incarnation
        );
    }

    #[test]
    fn an_owner_is_bounded() {
        let mut catalogue = Catalogue::new("c");
        for owner in ["", "with space", "new\nline"] {
            let error = catalogue.put_stream(put("a", owner)).unwrap_err();
            assert!(
                matches!(error, ChangeError::Invalid(SpecError { field: "owner", .. })),
                "{owner:?}"
            );
        }
        let long = "x".repeat(MAX_OWNER_BYTES + 1);
        assert!(catalogue.put_stream(put("a", &long)).is_err());
    }

    #[test]
    fn the_number_of_streams_is_bounded() {
        let mut catalogue = Catalogue::new("c");
        for index in 0..MAX_STREAMS {
            catalogue.put_stream(put(&format!("s{index}"), "o")).unwrap();
        }
        assert_eq!(catalogue.put_stream(put("one-more", "o")), Err(ChangeError::Full));
        assert_eq!(catalogue.put_stream(put("s0", "o")), Ok(PutOutcome::Same));
    }
}
