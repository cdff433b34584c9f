//! Keys, certificates and tokens of a cluster: which stay, which must be made, and making them.
//!
//! Deciding is pure (the time comes in); making draws random numbers. Nothing is ever replaced that is still good: a
//! server certificate from an older CA stays until its own renewal, so that clients have time to learn of the new CA.

mod certificate;

use ring::rand::{SecureRandom as _, SystemRandom};
use time::{Duration, OffsetDateTime};

use self::certificate::{Parsed, issue, new_ca};
use super::{
    dereference::{Observed, secret_text},
    validate::ValidatedCluster,
};

/// How long a CA is valid.
const CA_LIFE: Duration = Duration::days(3650);
/// How long a server certificate is valid.
const SERVER_LIFE: Duration = Duration::days(90);
/// Certificates are valid from a little before they are made: clocks differ.
const CLOCK_SKEW: Duration = Duration::minutes(10);
/// Most CAs in a bundle. Each stays until it expires; more than a few means that somebody deletes the key again and again.
const MAX_BUNDLE: usize = 16;

/// A certificate with its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyPairPem {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Everything secret that a cluster is built with.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Material {
    pub(crate) ca: KeyPairPem,
    /// The CAs that clients should trust, the present one first.
    pub(crate) bundle: Vec<String>,
    pub(crate) server: KeyPairPem,
    pub(crate) admin_token: String,
}

impl Material {
    /// The bundle as one file.
    pub(crate) fn bundle_pem(&self) -> String {
        self.bundle.concat()
    }
}

/// What is there, as far as it is still good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    ca: Option<KeyPairPem>,
    older_cas: Vec<String>,
    server: Option<KeyPairPem>,
    admin_token: Option<String>,
}

/// What was made anew, for events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) ca: bool,
    pub(crate) server: bool,
    pub(crate) admin_token: bool,
}

/// Why a key or certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MaterialError {
    /// The library refused, for example a name.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The system gave no random numbers.
    #[error("the system gave no random numbers")]
    Random,
}

/// Decides what stays.
pub(crate) fn keep(observed: &Observed, names: &[String], now: OffsetDateTime) -> Kept {
    let pair = |secret, certificate: &str| {
        let certificate = secret_text(secret, certificate)?;
        Some(KeyPairPem {
            certificate,
            key: secret_text(secret, "tls.key")?,
        })
    };
    let ca = pair(observed.ca.as_ref(), "tls.crt").filter(|ca| is_good_ca(ca, now));
    let mut cas: Vec<String> = ca.iter().map(|ca| ca.certificate.clone()).collect();
    let bundle = observed
        .ca_bundle
        .as_ref()
        .and_then(|map| map.data.as_ref()?.get("ca.crt").cloned());
    let sources = [
        secret_text(observed.ca.as_ref(), "tls.crt"),
        secret_text(observed.ca.as_ref(), "ca.crt"),
        bundle,
        secret_text(observed.server_certificate.as_ref(), "ca.crt"),
    ];
    for certificate in sources
        .into_iter()
        .flatten()
        .flat_map(|pem| certificate::split(&pem))
    {
        let valid =
            Parsed::from_pem(&certificate).is_some_and(|parsed| parsed.is_ca && parsed.not_after > now);
        if valid && !cas.contains(&certificate) && cas.len() < MAX_BUNDLE {
            cas.push(certificate);
        }
    }
    let server = pair(observed.server_certificate.as_ref(), "tls.crt")
        .filter(|server| is_good_server(server, names, &cas, now));
    let admin_token = secret_text(observed.admin_token.as_ref(), "token").filter(|token| token.len() >= 32);
    let older_cas = if ca.is_some() { cas.split_off(1) } else { cas };
    Kept {
        ca,
        older_cas,
        server,
        admin_token,
    }
}

/// Makes what is missing.
pub(crate) fn make(
    kept: Kept,
    cluster: &ValidatedCluster,
    now: OffsetDateTime,
) -> Result<(Material, Made), MaterialError> {
    let mut made = Made::default();
    let ca = match kept.ca {
        Some(ca) => ca,
        None => {
            made.ca = true;
            new_ca(
                cluster.names.cluster(),
                &cluster.cluster_id,
                now - CLOCK_SKEW,
                now + CA_LIFE,
            )?
        }
    };
    let server = match kept.server {
        Some(server) => server,
        None => {
            made.server = true;
            issue(
                &ca,
                &cluster.certificate_names,
                now - CLOCK_SKEW,
                now + SERVER_LIFE,
            )?
        }
    };
    let admin_token = match kept.admin_token {
        Some(token) => token,
        None => {
            made.admin_token = true;
            new_token()?
        }
    };
    let mut bundle = vec![ca.certificate.clone()];
    bundle.extend(kept.older_cas);
    Ok((
        Material {
            ca,
            bundle,
            server,
            admin_token,
        },
        made,
    ))
}

/// A CA is renewed after two thirds of its life; it stays in the bundle until it expires.
fn is_good_ca(ca: &KeyPairPem, now: OffsetDateTime) -> bool {
    Parsed::from_pem(&ca.certificate)
        .is_some_and(|parsed| parsed.is_ca && parsed.has_key(&ca.key) && !parsed.is_due(now))
}

/// Good while it has its key and all names, comes from a CA of the bundle, and is younger than two thirds of its life.
fn is_good_server(server: &KeyPairPem, names: &[String], cas: &[String], now: OffsetDateTime) -> bool {
    let Some(parsed) = Parsed::from_pem(&server.certificate) else {
        return false;
    };
    parsed.has_key(&server.key)
        && parsed.has_exactly(names)
        && !parsed.is_due(now)
        && cas.iter().any(|ca| parsed.is_signed_by(ca))
}

/// 256 random bits as hexadecimal digits.
fn new_token() -> Result<String, MaterialError> {
    let mut bytes = [0u8; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| MaterialError::Random)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests;
