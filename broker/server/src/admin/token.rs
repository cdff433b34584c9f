//! The bearer token of the admin API: kept in a file, read again when it changes, compared in constant time.

use std::{fs, io, path::PathBuf};

use arc_swap::ArcSwap;
use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;

/// Shortest token in bytes: 128 bits in hexadecimal digits.
const MIN_TOKEN_BYTES: usize = 16;

/// The token in use.
#[derive(Debug)]
pub(crate) struct AdminToken {
    path: PathBuf,
    current: ArcSwap<Vec<u8>>,
}

/// Why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("admin_token_file {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file holds too little.
    #[error(
        "admin_token_file {path} holds fewer than {MIN_TOKEN_BYTES} characters; write a random token there"
    )]
    TooShort {
        /// The file.
        path: PathBuf,
    },
}

impl AdminToken {
    /// Reads the file. Blocks.
    pub(crate) fn load(path: PathBuf) -> Result<Self, TokenError> {
        let token = read(&path)?;
        Ok(Self {
            path,
            current: ArcSwap::from_pointee(token),
        })
    }

    /// Reads the file again and says whether another token is in use now. After an error the one before stays. Blocks.
    pub(crate) fn reload(&self) -> Result<bool, TokenError> {
        let token = read(&self.path)?;
        let changed = token != **self.current.load();
        if changed {
            self.current.store(token.into());
        }
        Ok(changed)
    }

    /// Whether a request carries the token. Takes the same time for every wrong token of the same length.
    pub(crate) fn is_carried_by(&self, headers: &HeaderMap) -> bool {
        let value = headers
            .get(header::AUTHORIZATION)
            .map_or(&[][..], |value| value.as_bytes());
        let Some((scheme, token)) = value.split_first_chunk::<7>() else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(token.ct_eq(&self.current.load()))
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, TokenError> {
    let text = fs::read(path).map_err(|source| TokenError::File {
        path: path.clone(),
        source,
    })?;
    let token = text.trim_ascii();
    if token.len() < MIN_TOKEN_BYTES {
        return Err(TokenError::TooShort { path: path.clone() });
    }
    Ok(token.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(token: &AdminToken, value: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        token.is_carried_by(&headers)
    }

    #[test]
    fn only_the_token_in_use_is_taken_and_a_bad_file_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        assert!(matches!(
            AdminToken::load(path.clone()),
            Err(TokenError::File { .. })
        ));
        fs::write(&path, "short\n").unwrap();
        assert!(matches!(
            AdminToken::load(path.clone()),
            Err(TokenError::TooShort { .. })
        ));
        fs::write(&path, "0123456789abcdef\n").unwrap();
        let token = AdminToken::load(path.clone()).unwrap();
        assert!(carried(&token, "Bearer 0123456789abcdef"));
        assert!(carried(&token, "bearer 0123456789abcdef"));
        for wrong in [
            "Bearer 0123456789abcdeF",
            "Bearer ",
            "Bearer",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert!(!carried(&token, wrong), "{wrong}");
        }
        assert!(!token.is_carried_by(&HeaderMap::new()));
        assert!(!token.reload().unwrap());
        fs::write(&path, "").unwrap();
        assert!(token.reload().is_err());
        assert!(carried(&token, "Bearer 0123456789abcdef"));
        fs::write(&path, "another-token-here").unwrap();
        assert!(token.reload().unwrap());
        assert!(carried(&token, "Bearer another-token-here"));
        assert!(!carried(&token, "Bearer 0123456789abcdef"));
    }
}
