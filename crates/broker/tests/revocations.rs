//! Certificates that their authority has revoked: admitted programs, and the effect of a list read again.

use crate::common::authority::Authority;
use crate::common::{broker, with_server};
use std::path::PathBuf;
use std::time::Duration;
use unisono_broker::{Exposure, OWNER, TlsService, Uncertified};
use unisono_events_client::{CertifiedFiles, Client, Error, SubscriptionSpec, TlsAddress};

/// A broker that serves by TLS and by UDP, and asks for certificates.
struct Site {
    brokers: Authority,
    programs: Authority,
    at: Vec<std::net::SocketAddr>,
    socket: PathBuf,
}

impl Site {
    /// Makes the broker read its files again. The error is the broker's reason.
    fn reload(&self) -> Result<(), String> {
        let mut operator = Client::connect_unix(&self.socket).expect("it listens");
        operator.reload().expect("an answer").refused.map_or(Ok(()), Err)
    }

    /// Connects by TLS, and by UDP.
    fn connect(&self, own: &CertifiedFiles) -> [Result<Client, Error>; 2] {
        let place = |at: usize| TlsAddress {
            host: "localhost".to_owned(),
            address: self.at[at],
            authority: Some(self.brokers.file.clone()),
            own: Some(own.clone()),
            token: None,
        };
        [Client::connect_tls(&place(0)), Client::connect_udp(&place(1))]
    }
}

fn service(brokers: &Authority, programs: &Authority, revocations: Option<PathBuf>) -> TlsService {
    let own = brokers.certify("broker", &["localhost"]);
    TlsService { own, client_authority: Some(programs.file.clone()), revocations }
}

/// Runs a test with a broker that has a list without entries.
fn with_list(test: impl FnOnce(&Site) + Send + 'static) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let brokers = Authority::new(directory.path(), "brokers");
    let programs = Authority::new(directory.path(), "programs");
    let service = service(&brokers, &programs, Some(programs.revoke_until(&[], 2100)));
    let socket = directory.path().join("events");
    let at = socket.clone();
    let listen = move |server: &mut unisono_broker::Server| {
        let any = "127.0.0.1:0".parse().expect("an address");
        server.listen_unix(&at, OWNER).expect("it listens");
        server.use_tls(&service).expect("the files are sound");
        let tls = server.listen_tls(any, Exposure::Loopback).expect("it listens");
        vec![tls, server.listen_udp(any, Exposure::Loopback).expect("it listens")]
    };
    with_server(broker(), listen, move |at| {
        let _directory = directory;
        test(&Site { brokers, programs, at: at.to_vec(), socket });
    });
}

#[test]
fn a_revoked_certificate_is_refused_and_its_connections_end_once_the_list_is_read_again() {
    with_list(|site| {
        let [lost, kept] = ["lost", "kept"].map(|name| site.programs.certify(name, &[]));
        let stolen = site.connect(&lost).map(|client| client.expect("it is not revoked yet"));
        let others = site.connect(&kept).map(|client| client.expect("it is not revoked"));
        site.programs.revoke_until(&[&lost], 2100);
        site.reload().expect("a sound list");
        for mut client in stolen {
            client.subscribe(&SubscriptionSpec::new("#")).err().map_or_else(
                || {
                    let end = client.receive(Some(Duration::from_secs(30))).expect_err("it is sent away");
                    assert!(end.to_string().contains("revoked"), "{end}");
                },
                |end| assert!(end.to_string().contains("revoked"), "{end}"),
            );
        }
        for again in site.connect(&lost) {
            let why = again.expect_err("it is revoked").to_string();
            assert!(why.contains("revoked"), "{why}");
        }
        for mut client in others {
            client.statistics().expect("it is not revoked");
        }
        for again in site.connect(&kept) {
            again.expect("it is not revoked");
        }
    });
}

#[test]
fn a_list_that_cannot_be_used_leaves_the_one_before_in_force() {
    with_list(|site| {
        let lost = site.programs.certify("lost", &[]);
        let file = site.programs.revoke_until(&[&lost], 2100);
        site.reload().expect("a sound list");
        site.programs.revoke_until(&[], 2024);
        let old = site.reload().expect_err("out of date");
        assert!(old.contains("was to be replaced at"), "{old}");
        std::fs::write(&file, "nothing").expect("a scratch directory");
        assert!(site.reload().expect_err("no list").contains("cannot read"));
        std::fs::remove_file(&file).expect("a scratch directory");
        assert!(site.reload().expect_err("no list").contains("cannot read"));
        for again in site.connect(&lost) {
            again.expect_err("it is revoked");
        }
    });
}

#[test]
fn an_authority_without_a_list_gets_nobody_in() {
    with_list(|site| {
        // a list of another authority does not apply to these certificates
        let file = site.programs.revoke_until(&[], 2100);
        std::fs::copy(site.brokers.revoke_until(&[], 2100), &file).expect("a scratch directory");
        site.reload().expect("a sound list");
        let own = site.programs.certify("program", &[]);
        for again in site.connect(&own) {
            again.expect_err("no list speaks for it");
        }
    });
}

#[test]
fn renewed_certificates_and_another_authority_hold_for_new_connections_and_existing_ones_are_checked() {
    with_list(|site| {
        let own = site.programs.certify("program", &[]);
        let before = site.connect(&own).map(|client| client.expect("it is of the authority"));
        // the same names, another key
        site.brokers.certify("broker", &["localhost"]);
        site.reload().expect("a sound pair");
        for mut client in before {
            client.statistics().expect("its certificate is as good as before");
        }
        let mut after = site.connect(&own).map(|client| client.expect("the new pair is the broker's"));
        // a key that is not that of the certificate
        let directory = site.programs.file.parent().expect("a directory").to_owned();
        std::fs::copy(&own.key, directory.join("broker.key")).expect("a scratch directory");
        let refused = site.reload().expect_err("half a pair");
        assert!(refused.contains("the key is not that of the certificate"), "{refused}");
        site.brokers.certify("broker", &["localhost"]);
        // another authority of programs, with its list
        let others = Authority::new(&directory, "others");
        std::fs::copy(&others.file, &site.programs.file).expect("a scratch directory");
        let list = site.programs.revoke_until(&[], 2100);
        std::fs::copy(others.revoke_until(&[], 2100), list).expect("a scratch directory");
        site.reload().expect("a sound authority");
        for client in &mut after {
            let end = client.statistics().expect_err("it is of the former authority").to_string();
            assert!(end.contains("the certificate is not valid any more"), "{end}");
        }
        for again in site.connect(&others.certify("newcomer", &[])) {
            again.expect("it is of the new authority");
        }
        for again in site.connect(&own) {
            again.expect_err("it is of the former authority");
        }
    });
}

#[test]
fn a_broker_does_not_begin_with_a_list_that_cannot_be_used() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let brokers = Authority::new(directory.path(), "brokers");
    let programs = Authority::new(directory.path(), "programs");
    let read = |file: PathBuf| {
        let read = service(&brokers, &programs, Some(file)).read(Uncertified::Refused);
        read.expect_err("it cannot be used").to_string()
    };
    let old = read(programs.revoke_until(&[], 2024));
    assert!(old.contains("was to be replaced at") && old.contains("get a newer one"), "{old}");
    let certificate = read(programs.file.clone());
    assert!(certificate.contains("holds no revocation list in PEM"), "{certificate}");
    let missing = read(directory.path().join("missing"));
    assert!(missing.contains("missing"), "{missing}");
}
