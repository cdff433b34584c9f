//! A CA of the broker's own, for runs by hand: made once, kept in the data directory, its certificate handed to clients.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::{CertificateFiles, TlsError};
use crate::files::{self, PRIVATE, PUBLIC};

/// The file that clients are given.
pub(crate) const CA_FILE: &str = "ca.crt";
const CA_KEY_FILE: &str = "ca.key";
const CERTIFICATE_FILE: &str = "tls.crt";
const KEY_FILE: &str = "tls.key";

/// Writes a server certificate for this machine's names, signed by the CA of `directory`, which is made if there is
/// none. A new certificate at each start needs no renewal. Blocks.
pub(crate) fn write_own_certificate(directory: &Path) -> Result<CertificateFiles, TlsError> {
    let ca_key_pem = file(directory, CA_KEY_FILE, PRIVATE, || {
        Ok(KeyPair::generate()?.serialize_pem())
    })?;
    let ca_key = KeyPair::from_pem(&ca_key_pem)?;
    let ca_pem = file(directory, CA_FILE, PUBLIC, || {
        Ok(ca_params().self_signed(&ca_key)?.pem())
    })?;
    let issuer = Issuer::from_ca_cert_pem(&ca_pem, ca_key)?;
    let key = KeyPair::generate()?;
    let certificate = server_params()?.signed_by(&key, &issuer)?;
    let written = CertificateFiles {
        certificate: directory.join(CERTIFICATE_FILE),
        key: directory.join(KEY_FILE),
    };
    write(&written.certificate, &certificate.pem(), PUBLIC)?;
    write(&written.key, &key.serialize_pem(), PRIVATE)?;
    Ok(written)
}

fn file(
    directory: &Path,
    name: &str,
    mode: u32,
    make: impl FnOnce() -> Result<String, rcgen::Error>,
) -> Result<String, TlsError> {
    let path: PathBuf = directory.join(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let text = make()?;
            write(&path, &text, mode)?;
            Ok(text)
        }
        Err(source) => Err(TlsError::File { path, source }),
    }
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    files::write_atomic(path, text.as_bytes(), mode).map_err(|source| TlsError::File {
        path: path.to_owned(),
        source,
    })
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "Felix broker's own CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn server_params() -> Result<CertificateParams, rcgen::Error> {
    let mut names = vec!["localhost".to_owned()];
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_name = !host.is_empty()
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    if is_name && host != "localhost" {
        names.push(host);
    }
    let mut params = CertificateParams::new(names)?;
    for address in [
        IpAddr::from([127, 0, 0, 1]),
        IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
    ] {
        params.subject_alt_names.push(rcgen::SanType::IpAddress(address));
    }
    params.distinguished_name.push(DnType::CommonName, "Felix broker");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}
