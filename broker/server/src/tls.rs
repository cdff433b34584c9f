//! TLS of clients and of the admin API: one certificate for both, read from files and read again when they change.

mod own_ca;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use rustls::{
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

pub(crate) use own_ca::{CA_FILE, write_own_certificate};

/// How often certificate files are looked at. Kubernetes itself may take a minute to show a changed Secret.
pub(crate) const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("TLS: {path}: {source}; set tls_cert and tls_key to PEM files that the broker may read")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file holds no usable PEM section.
    #[error("TLS: {path}: {reason}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is missing or wrong.
        reason: String,
    },
    /// Certificate and key do not fit each other, or are of an unknown kind.
    #[error("TLS: {certificate} and {key}: {reason}")]
    Pair {
        /// The file with the certificate chain.
        certificate: PathBuf,
        /// The file with the key.
        key: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// The broker's own CA could not be made.
    #[error("TLS: making the broker's own CA: {0}")]
    OwnCa(#[from] rcgen::Error),
}

/// The two files of a server certificate.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// The certificate in use, exchanged while connections go on.
#[derive(Debug)]
pub(crate) struct Certificate {
    files: CertificateFiles,
    current: ArcSwap<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    key: Arc<CertifiedKey>,
    /// End of validity of the first certificate, in seconds since 1970.
    not_after: i64,
    /// What was read, to notice a change: modification times say little about mounted Secrets.
    bytes: (Vec<u8>, Vec<u8>),
}

impl Certificate {
    /// Reads the files. Blocks.
    pub(crate) fn load(files: CertificateFiles) -> Result<Arc<Self>, TlsError> {
        let loaded = load(&files, read(&files)?)?;
        Ok(Arc::new(Self {
            files,
            current: ArcSwap::from_pointee(loaded),
        }))
    }

    /// Reads the files again and says whether another certificate is in use now. After an error the one before stays.
    /// Blocks.
    pub(crate) fn reload(&self) -> Result<bool, TlsError> {
        let bytes = read(&self.files)?;
        if bytes == self.current.load().bytes {
            return Ok(false);
        }
        self.current.store(Arc::new(load(&self.files, bytes)?));
        Ok(true)
    }

    /// End of validity of the certificate in use, in seconds since 1970.
    pub(crate) fn not_after(&self) -> i64 {
        self.current.load().not_after
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.load().key))
    }
}

/// A TLS 1.3 server configuration that offers one protocol. Sessions of 0-RTT are never accepted: data that an attacker
/// can replay would be published twice.
pub(crate) fn server_config(
    certificate: Arc<Certificate>,
    protocol: &[u8],
) -> Result<rustls::ServerConfig, rustls::Error> {
    let builder = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth();
    let mut config = builder.with_cert_resolver(certificate);
    config.alpn_protocols = vec![protocol.to_vec()];
    config.max_early_data_size = 0;
    config.ignore_client_order = true;
    Ok(config)
}

/// AES-128-GCM first: on processors with AES instructions it moves the most bytes for each cycle.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    use rustls::crypto::ring::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    let cipher_suites = vec![
        TLS13_AES_128_GCM_SHA256,
        TLS13_AES_256_GCM_SHA384,
        TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider {
        cipher_suites,
        ..ring::default_provider()
    })
}

fn read(files: &CertificateFiles) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    let read = |path: &Path| {
        fs::read(path).map_err(|source| TlsError::File {
            path: path.to_owned(),
            source,
        })
    };
    Ok((read(&files.certificate)?, read(&files.key)?))
}

fn load(files: &CertificateFiles, bytes: (Vec<u8>, Vec<u8>)) -> Result<Loaded, TlsError> {
    let pem = |path: &Path, reason: String| TlsError::Pem {
        path: path.to_owned(),
        reason,
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&bytes.0)
        .collect::<Result<_, _>>()
        .map_err(|error| pem(&files.certificate, error.to_string()))?;
    let first = chain
        .first()
        .ok_or_else(|| pem(&files.certificate, "holds no certificate".to_owned()))?;
    let not_after = x509_parser::parse_x509_certificate(first)
        .map_err(|error| pem(&files.certificate, error.to_string()))?
        .1
        .validity()
        .not_after
        .timestamp();
    let key = PrivateKeyDer::from_pem_slice(&bytes.1).map_err(|error| pem(&files.key, error.to_string()))?;
    let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| TlsError::Pair {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        reason: error.to_string(),
    })?;
    Ok(Loaded {
        key: Arc::new(key),
        not_after,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path) -> CertificateFiles {
        CertificateFiles {
            certificate: directory.join("tls.crt"),
            key: directory.join("tls.key"),
        }
    }

    fn write_pair(files: &CertificateFiles) -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let pair = (made.cert.pem(), made.signing_key.serialize_pem());
        fs::write(&files.certificate, &pair.0).unwrap();
        fs::write(&files.key, &pair.1).unwrap();
        pair
    }

    #[test]
    fn missing_and_wrong_files_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path());
        let error = Certificate::load(files.clone()).unwrap_err();
        assert!(
            matches!(&error, TlsError::File { path, .. } if *path == files.certificate),
            "{error}"
        );
        write_pair(&files);
        Certificate::load(files.clone()).unwrap();
        fs::write(&files.certificate, "nothing").unwrap();
        assert!(matches!(
            Certificate::load(files.clone()),
            Err(TlsError::Pem { .. })
        ));
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path());
        let (_, other_key) = write_pair(&files);
        write_pair(&files);
        fs::write(&files.key, other_key).unwrap();
        assert!(matches!(Certificate::load(files), Err(TlsError::Pair { .. })));
    }

    #[test]
    fn a_change_is_taken_and_a_broken_one_leaves_the_last_good() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path());
        write_pair(&files);
        let certificate = Certificate::load(files.clone()).unwrap();
        let first = Arc::clone(&certificate.current.load().key);
        assert!(!certificate.reload().unwrap());
        let (_, key) = write_pair(&files);
        fs::write(&files.key, "broken").unwrap();
        assert!(certificate.reload().is_err());
        assert!(Arc::ptr_eq(&first, &certificate.current.load().key));
        fs::write(&files.key, key).unwrap();
        assert!(certificate.reload().unwrap());
        assert!(!Arc::ptr_eq(&first, &certificate.current.load().key));
    }
}
