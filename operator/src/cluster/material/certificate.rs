//! Making and reading X.509 certificates.

use std::{collections::BTreeSet, net::IpAddr};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;
use x509_parser::{extensions::GeneralName, parse_x509_certificate, pem::Pem};

use super::{KeyPairPem, MaterialError};

/// A new CA for a cluster.
pub(super) fn new_ca(
    cluster: &str,
    cluster_id: &str,
    from: OffsetDateTime,
    to: OffsetDateTime,
) -> Result<KeyPairPem, MaterialError> {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("Felix cluster {cluster}"));
    params
        .distinguished_name
        .push(DnType::OrganizationalUnitName, cluster_id);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params.not_before = from;
    params.not_after = to;
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(KeyPairPem {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// A server certificate from a CA. Names that are IP addresses become addresses.
pub(super) fn issue(
    ca: &KeyPairPem,
    names: &[String],
    from: OffsetDateTime,
    to: OffsetDateTime,
) -> Result<KeyPairPem, MaterialError> {
    let mut params = CertificateParams::default();
    if let Some(first) = names.first() {
        params.distinguished_name.push(DnType::CommonName, first.as_str());
    }
    for name in names {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(name.as_str().try_into()?),
        });
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = from;
    params.not_after = to;
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate, KeyPair::from_pem(&ca.key)?)?;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok(KeyPairPem {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
    })
}

/// Each certificate of a PEM text as a text of its own.
pub(super) fn split(pem: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let parts = pem
        .split_inclusive(END)
        .filter_map(|part| part.find("-----BEGIN").and_then(|start| part.get(start..)));
    parts
        .filter(|part| part.ends_with(END))
        .map(|part| format!("{part}\n"))
        .collect()
}

/// What is of interest in a certificate.
pub(super) struct Parsed {
    pub(super) is_ca: bool,
    pub(super) not_before: OffsetDateTime,
    pub(super) not_after: OffsetDateTime,
    names: BTreeSet<String>,
    public_key: Vec<u8>,
    der: Vec<u8>,
}

impl Parsed {
    /// Of the first certificate of a PEM text.
    pub(super) fn from_pem(pem: &str) -> Option<Self> {
        let pem = Pem::iter_from_buffer(pem.as_bytes()).next()?.ok()?;
        let (_, certificate) = parse_x509_certificate(&pem.contents).ok()?;
        let names = certificate.subject_alternative_name().ok()?;
        let names = names
            .iter()
            .flat_map(|extension| &extension.value.general_names)
            .filter_map(name_text);
        Some(Self {
            is_ca: certificate.is_ca(),
            not_before: certificate.validity().not_before.to_datetime(),
            not_after: certificate.validity().not_after.to_datetime(),
            names: names.collect(),
            public_key: certificate.public_key().raw.to_vec(),
            der: pem.contents.clone(),
        })
    }

    /// Whether two thirds of its life have passed.
    pub(super) fn is_due(&self, now: OffsetDateTime) -> bool {
        now >= self.not_before + (self.not_after - self.not_before) * 2 / 3
    }

    /// Whether it carries these names and no others.
    pub(super) fn has_exactly(&self, names: &[String]) -> bool {
        // Addresses have more than one spelling.
        let spelled = |name: &String| {
            name.parse::<IpAddr>()
                .map_or_else(|_| name.clone(), |ip| ip.to_string())
        };
        self.names == names.iter().map(spelled).collect()
    }

    /// Whether the private key (PEM) belongs to it.
    pub(super) fn has_key(&self, key: &str) -> bool {
        use rcgen::PublicKeyData as _;
        KeyPair::from_pem(key).is_ok_and(|key| key.subject_public_key_info() == self.public_key)
    }

    /// Whether a CA (PEM) has signed it.
    pub(super) fn is_signed_by(&self, ca: &str) -> bool {
        let Some(Ok(pem)) = Pem::iter_from_buffer(ca.as_bytes()).next() else {
            return false;
        };
        let Ok((_, ca)) = parse_x509_certificate(&pem.contents) else {
            return false;
        };
        let Ok((_, this)) = parse_x509_certificate(&self.der) else {
            return false;
        };
        this.issuer() == ca.subject() && this.verify_signature(Some(ca.public_key())).is_ok()
    }
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from))
                .ok()
                .map(|ip| ip.to_string())
        }
        // The operator writes no other kinds of names; a certificate that has some is not ours.
        GeneralName::OtherName(..)
        | GeneralName::RFC822Name(_)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::URI(_)
        | GeneralName::RegisteredID(_)
        | GeneralName::Invalid(..) => Some(format!("{name:?}")),
    }
}
