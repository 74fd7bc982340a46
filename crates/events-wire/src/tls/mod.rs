//! Certificates and keys from PEM files, and their TLS configurations.
//!
//! A broker has a certificate and its key. It may ask programs for certificates of an authority; the names in
//! a certificate then identify the program. A program authenticates the broker by the authority that signed
//! the broker's certificate. It does not use the system's list of trusted authorities, because a broker's
//! authority normally belongs to the broker's owner.
//!
//! The implementation is rustls, with TLS 1.2 and 1.3 and the algorithms of the library ring. A broker can
//! read certificate revocation lists (`client_check`), and can read all its files again while it serves.

mod client_check;
mod names;

pub use client_check::ClientCertificateCheck;
pub use names::names;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig, Error as RustlsError, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The reason why certificates and keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    #[error("cannot read {}: {why}", path.display())]
    Read { path: PathBuf, why: String },
    #[error("{} and {} cannot be used: {why}", certificate.display(), key.display())]
    Pair { certificate: PathBuf, key: PathBuf, why: String },
    #[error("the certificate {} expired at {when}; renew it", path.display())]
    Expired { path: PathBuf, when: String },
    #[error("{} holds no authority's certificate: {why}", path.display())]
    Authority { path: PathBuf, why: String },
    #[error("{} holds no revocation list that can be used: {why}", path.display())]
    Revocations { path: PathBuf, why: String },
    #[error(
        "the revocation list in {} was to be replaced at {when}; get a newer one from the authority", path.display()
    )]
    RevocationsExpired { path: PathBuf, when: String },
    #[error("a certificate without its key, or a key without its certificate; name both files")]
    Half,
    #[error(
        "TLS needs the certificate of the broker's authority; name its file: --authority FILE, or {address}?authority=FILE"
    )]
    NoAuthority { address: String },
    /// QUIC has further requirements for TLS.
    #[error("no connection over UDP: {0}")]
    Datagrams(String),
}

/// A certificate, followed by the intermediate certificates up to its authority.
pub type CertificateChain = Vec<CertificateDer<'static>>;

/// A certificate and its key, in PEM files.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CertifiedFiles {
    /// The certificate, followed by the intermediate certificates up to its authority.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl CertifiedFiles {
    /// # Errors
    /// One of the two files is given without the other.
    pub fn new(certificate: Option<&Path>, key: Option<&Path>) -> Result<Option<Self>, TlsError> {
        match (certificate, key) {
            (Some(certificate), Some(key)) => {
                Ok(Some(Self { certificate: certificate.to_owned(), key: key.to_owned() }))
            }
            (None, None) => Ok(None),
            _ => Err(TlsError::Half),
        }
    }

    fn read(&self) -> Result<(CertificateChain, PrivateKeyDer<'static>), TlsError> {
        let chain = certificates(&self.certificate)?;
        if let Some(when) = chain.first().and_then(|own| names::expired(own)) {
            return Err(TlsError::Expired { path: self.certificate.clone(), when });
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| unread(&self.key, "key", error))?;
        Ok((chain, key))
    }

    fn unfit(&self, error: &RustlsError) -> TlsError {
        let why = match error {
            RustlsError::InconsistentKeys(_) => "the key is not that of the certificate".to_owned(),
            other => other.to_string(),
        };
        TlsError::Pair { certificate: self.certificate.clone(), key: self.key.clone(), why }
    }
}

/// The files of a broker that serves TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsService {
    pub own: CertifiedFiles,
    /// The certificate of the programs' authority, in a PEM file. If it is given, programs are asked for
    /// certificates of this authority.
    pub client_authority: Option<PathBuf>,
    /// Revocation lists of this authority and of intermediate ones, in a PEM file, for a broker that asks for
    /// certificates.
    pub revocations: Option<PathBuf>,
}

/// The treatment of a program without a certificate, if programs are asked for certificates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Uncertified {
    Refused,
    /// The program may still authenticate itself with a token.
    Heard,
}

/// The certificates of a [`TlsService`], read and checked.
#[derive(Clone, Debug)]
pub struct TlsCertificates {
    pub config: Arc<ServerConfig>,
    /// The check of programs' certificates. `None`: programs are not asked for certificates.
    pub check: Option<Arc<ClientCertificateCheck>>,
}

impl TlsService {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or its contents are not valid.
    pub fn read(&self, uncertified: Uncertified) -> Result<TlsCertificates, TlsError> {
        self.read_after(None, uncertified)
    }

    /// Reads the files again. The result is for later handshakes; with [`ClientCertificateCheck::enforce`],
    /// handshakes in progress use the new contents, too.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_again(
        &self,
        former: &TlsCertificates,
        uncertified: Uncertified,
    ) -> Result<TlsCertificates, TlsError> {
        self.read_after(former.check.as_deref(), uncertified)
    }

    fn read_after(
        &self,
        former: Option<&ClientCertificateCheck>,
        uncertified: Uncertified,
    ) -> Result<TlsCertificates, TlsError> {
        let own = &self.own;
        let (chain, key) = own.read()?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| own.unfit(&error))?;
        let check = match &self.client_authority {
            None => None,
            Some(authority) => {
                let files = (authority.as_path(), self.revocations.as_deref());
                Some(Arc::new(ClientCertificateCheck::read(files, uncertified, former)?))
            }
        };
        let builder = match check.clone() {
            None => builder.with_no_client_auth(),
            Some(check) => builder.with_client_cert_verifier(check),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| own.unfit(&error))?;
        // A program connects once and stays connected, so it needs no session ticket. An unread ticket would
        // also make the end of a program look like a broken connection.
        config.send_tls13_tickets = 0;
        // A resumed session of TLS 1.2 would admit a program whose certificate has expired since.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(TlsCertificates { config: Arc::new(config), check })
    }
}

/// A program's side of TLS: the authority that it trusts, and the certificate that it shows.
#[derive(Clone, Debug)]
pub struct TlsClient {
    pub(crate) config: Arc<ClientConfig>,
    /// The name in the broker's certificate.
    pub(crate) broker: String,
}

impl TlsClient {
    /// Reads the certificate of the broker's authority, and the program's own certificate.
    ///
    /// # Errors
    /// A file cannot be read, or its contents are not valid.
    pub fn read(broker: &str, authority: &Path, own: Option<&CertifiedFiles>) -> Result<Self, TlsError> {
        Ok(Self { config: client(authority, own)?, broker: broker.to_owned() })
    }
}

fn client(trusted: &Path, own: Option<&CertifiedFiles>) -> Result<Arc<ClientConfig>, TlsError> {
    let no_authority = |error: &dyn std::fmt::Display| TlsError::Authority {
        path: trusted.to_owned(),
        why: error.to_string(),
    };
    let authorities = Arc::new(roots(trusted, certificates(trusted)?)?);
    let verifier = WebPkiServerVerifier::builder_with_provider(authorities, provider())
        .build()
        .map_err(|error| no_authority(&error))?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| no_authority(&error))?
        .with_webpki_verifier(verifier);
    Ok(Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let (chain, key) = own.read()?;
            builder.with_client_auth_cert(chain, key).map_err(|error| own.unfit(&error))?
        }
    }))
}

/// Returns the text of a TLS error for the user at this end.
pub fn in_words(error: &RustlsError) -> String {
    use rustls::AlertDescription as Alert;
    match error {
        RustlsError::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the certificate of the other end is not of the authority that is trusted here".to_owned()
        }
        RustlsError::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "the certificate of the other end has expired".to_owned(),
        RustlsError::InvalidCertificate(CertificateError::Revoked) => {
            "the certificate of the other end was revoked".to_owned()
        }
        RustlsError::InvalidCertificate(CertificateError::UnknownRevocationStatus) => {
            "no revocation list of the authority that signed the other end's certificate; add it to the file of \
             --revocations"
                .to_owned()
        }
        RustlsError::InvalidCertificate(
            CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. },
        ) => "the revocation list is out of date; replace the file of --revocations, and have the broker read it \
             again"
                .to_owned(),
        RustlsError::InvalidMessage(_) => {
            "the other end does not speak TLS; a broker without TLS is at tcp:HOST:PORT".to_owned()
        }
        RustlsError::NoCertificatesPresented => "the other end showed no certificate".to_owned(),
        RustlsError::AlertReceived(alert) => match alert {
            Alert::UnknownCA | Alert::DecryptError => {
                "the other end does not know the authority of this end's certificate".to_owned()
            }
            Alert::CertificateRequired => {
                "the other end asks for a certificate; name one: --certificate FILE --certificate-key FILE"
                    .to_owned()
            }
            Alert::CertificateExpired => {
                "the other end says that this end's certificate has expired".to_owned()
            }
            Alert::CertificateRevoked => {
                "the other end says that this end's certificate was revoked; ask for another one".to_owned()
            }
            other => format!("the other end ended it: {other:?}"),
        },
        other => other.to_string(),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(path: &Path) -> Result<CertificateChain, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(chain) if chain.is_empty() => Err(unread(path, "certificate", PemError::NoItemsFound)),
        Ok(chain) => Ok(chain),
        Err(error) => Err(unread(path, "certificate", error)),
    }
}

fn roots(path: &Path, authorities: CertificateChain) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in authorities {
        roots
            .add(certificate)
            .map_err(|error| TlsError::Authority { path: path.to_owned(), why: error.to_string() })?;
    }
    Ok(roots)
}

fn unread(path: &Path, what: &str, error: PemError) -> TlsError {
    let why = match error {
        PemError::NoItemsFound => format!("it holds no {what} in PEM"),
        PemError::Io(error) => error.to_string(),
        other => other.to_string(),
    };
    TlsError::Read { path: path.to_owned(), why }
}
