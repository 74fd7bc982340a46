//! Checks programs' certificates with the certificate of their authority and with revocation lists (RFC
//! 5280). Both can be read again while the broker serves.
//!
//! If the broker has lists, there must be a list of the issuer of every certificate in a program's chain: a
//! certificate without one is refused, and so is every certificate once its list's `nextUpdate` has passed.
//! Otherwise an attacker that keeps the next list from the broker could have a revoked certificate accepted.
//!
//! Cost: a handshake looks up a serial number in the list of each issuer; reading takes time in proportion to
//! the size of the lists. When not to use it: to exclude a single name; remove it from the permissions
//! instead.

use super::{TlsError, Uncertified, certificates, provider, roots, unread};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error as RustlsError, RootCertStore, SignatureScheme,
};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use unisono_linux::read;
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode as _;

/// The broker's check of programs' certificates.
#[derive(Debug)]
pub struct ClientCertificateCheck {
    uncertified: Uncertified,
    hints: Vec<DistinguishedName>,
    /// The contents of the files when they were read for this check.
    read: Arc<dyn ClientCertVerifier>,
    /// The contents in force. All checks of a service share them, so that a handshake that began before the
    /// files were last read uses the new contents, too.
    current: Arc<RwLock<Arc<dyn ClientCertVerifier>>>,
}

impl ClientCertificateCheck {
    /// Reads the certificate of an authority and its revocation lists, for the first time or after `former`.
    pub(super) fn read(
        (authority, revocations): (&Path, Option<&Path>),
        uncertified: Uncertified,
        former: Option<&Self>,
    ) -> Result<Self, TlsError> {
        let roots = Arc::new(roots(authority, certificates(authority)?)?);
        let hints = roots.subjects();
        let read = verifier(&roots, uncertified, (authority, revocations))?;
        let current = former.map(|former| Arc::clone(&former.current));
        let current = current.unwrap_or_else(|| Arc::new(RwLock::new(Arc::clone(&read))));
        Ok(Self { uncertified, hints, read, current })
    }

    /// Puts the contents that were read for this check in force.
    pub fn enforce(&self) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&self.read);
    }

    /// Checks the certificates of an existing connection. `chain` is the program's own certificate, followed
    /// by the intermediate ones.
    pub fn check(&self, chain: &[CertificateDer<'_>]) -> Result<(), RustlsError> {
        let Some((own, between)) = chain.split_first() else { return Ok(()) };
        self.current().verify_client_cert(own, between, UnixTime::now()).map(drop)
    }

    fn current(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientCertVerifier for ClientCertificateCheck {
    fn client_auth_mandatory(&self) -> bool {
        self.uncertified == Uncertified::Refused
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, RustlsError> {
        self.current().verify_client_cert(own, between, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.current().verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.current().verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

fn verifier(
    roots: &Arc<RootCertStore>,
    uncertified: Uncertified,
    (authority, revocations): (&Path, Option<&Path>),
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider());
    if uncertified == Uncertified::Heard {
        builder = builder.allow_unauthenticated();
    }
    if let Some(path) = revocations {
        builder = builder.with_crls(lists(path)?).enforce_revocation_expiration();
    }
    builder.build().map_err(|error| {
        let path = revocations.unwrap_or(authority).to_owned();
        match revocations {
            Some(_) => TlsError::Revocations { path, why: error.to_string() },
            None => TlsError::Authority { path, why: error.to_string() },
        }
    })
}

/// Reads the revocation lists of a file. It must hold at least one list, and no expired one.
fn lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    // the reading is bounded, because it happens while the broker serves: a file without an end must not take
    // all memory
    let bytes = read::file(path, read::MACHINE_WRITTEN);
    let bytes = bytes.map_err(|error| unread(path, "revocation list", PemError::Io(error)))?;
    let lists = CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let lists = lists.map_err(|error| unread(path, "revocation list", error))?;
    if lists.is_empty() {
        return Err(unread(path, "revocation list", PemError::NoItemsFound));
    }
    match lists.iter().find_map(|list| out_of_date(list)) {
        Some(when) => Err(TlsError::RevocationsExpired { path: path.to_owned(), when }),
        None => Ok(lists),
    }
}

/// Returns the time of a list's next update, if it has passed.
fn out_of_date(list: &[u8]) -> Option<String> {
    let next = CertificateList::from_der(list).ok()?.tbs_cert_list.next_update?;
    (next.to_system_time() < SystemTime::now()).then(|| next.to_string())
}
