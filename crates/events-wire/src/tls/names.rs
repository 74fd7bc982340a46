//! The names in a certificate.

use std::sync::Arc;
use std::time::SystemTime;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Returns the names in a certificate: the alternative names (hosts, mail addresses, URIs), or, if it lacks
/// the extension for them, the common names of the subject. An authority that checks alternative names may
/// leave the subject unchecked, so a subject in addition to them proves nothing (RFC 9525, section 2). TLS
/// has already checked that the authority signed the certificate.
pub fn names(certificate: &[u8]) -> Vec<Arc<str>> {
    let Ok(certificate) = Certificate::from_der(certificate) else { return Vec::new() };
    let facts = &certificate.tbs_certificate;
    match facts.get::<SubjectAltName>() {
        Ok(Some((_, alternative))) => {
            let named = alternative.0.iter().filter_map(|name| match name {
                GeneralName::DnsName(name) | GeneralName::Rfc822Name(name) => Some(Arc::from(name.as_str())),
                GeneralName::UniformResourceIdentifier(name) => Some(Arc::from(name.as_str())),
                _ => None,
            });
            return named.collect();
        }
        // the extension exists, but its names cannot be read
        Err(_) => return Vec::new(),
        Ok(None) => {}
    }
    let mut names = Vec::new();
    for part in facts.subject.0.iter().flat_map(|parts| parts.0.iter()) {
        if part.oid == COMMON_NAME {
            let text = Utf8StringRef::try_from(&part.value).map(|text| Arc::from(text.as_str()));
            let text = text
                .or_else(|_| PrintableStringRef::try_from(&part.value).map(|text| Arc::from(text.as_str())));
            names.extend(text.ok());
        }
    }
    names
}

/// Returns when a certificate expired, if it has.
pub(super) fn expired(certificate: &[u8]) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let end = certificate.tbs_certificate.validity.not_after;
    (end.to_system_time() < SystemTime::now()).then(|| end.to_string())
}
