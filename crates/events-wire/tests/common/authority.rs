//! A certificate authority for tests, with the files of its certificates.
#![allow(dead_code, reason = "each test uses some of it")]

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::path::{Path, PathBuf};
use unisono_events_wire::CertifiedFiles;
use x509_cert::der::Decode as _;

/// Signs certificates and writes them to a directory.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: PathBuf,
    /// The file with the authority's own certificate.
    pub(crate) file: PathBuf,
}

impl Authority {
    pub(crate) fn new(directory: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, key()).expect("a certificate");
        let file = directory.join(format!("{name}.pem"));
        std::fs::write(&file, issuer.pem()).expect("a scratch directory");
        Self { issuer, directory: directory.to_owned(), file }
    }

    /// Makes a certificate for these alternative names. `name` is the name of its subject and of its file.
    pub(crate) fn certify(&self, name: &str, alternative: &[&str]) -> CertifiedFiles {
        self.certify_until(name, alternative, 2100)
    }

    /// Makes such a certificate that expires on the first day of `year`.
    pub(crate) fn certify_until(&self, name: &str, alternative: &[&str], year: i32) -> CertifiedFiles {
        let names: Vec<String> = alternative.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = key();
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = CertifiedFiles {
            certificate: self.directory.join(format!("{name}.crt")),
            key: self.directory.join(format!("{name}.key")),
        };
        std::fs::write(&files.certificate, signed.pem()).expect("a scratch directory");
        std::fs::write(&files.key, key.serialize_pem()).expect("a scratch directory");
        files
    }

    /// Makes a list of revoked certificates, which is valid until the first day of `year`.
    pub(crate) fn revoke_until(&self, revoked: &[&CertifiedFiles], year: i32) -> PathBuf {
        let revoked = revoked.iter().map(|files| RevokedCertParams {
            serial_number: serial(files),
            revocation_time: rcgen::date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2020, 1, 1),
            next_update: rcgen::date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("a list");
        let file = self.file.with_extension("crl");
        std::fs::write(&file, list.pem().expect("PEM")).expect("a scratch directory");
        file
    }
}

fn serial(files: &CertifiedFiles) -> SerialNumber {
    let certificate = CertificateDer::from_pem_file(&files.certificate).expect("it was written");
    let certificate = x509_cert::Certificate::from_der(&certificate).expect("a certificate");
    SerialNumber::from_slice(certificate.tbs_certificate.serial_number.as_bytes())
}

fn key() -> KeyPair {
    KeyPair::generate().expect("random numbers")
}
