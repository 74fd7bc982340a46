//! TLS over TCP: accepted and refused programs, the reasons they are told, and no effect on other programs.

use crate::common::authority::Authority;
use crate::common::{broker, event, with_server};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use unisono_broker::{Broker, Exposure, Permissions, TlsService, Tokens};
use unisono_events_client::{
    Advertisement, BrokerAddress, CertifiedFiles, Client, ClientOptions, Error, EventDraft, SubscriptionSpec,
    TlsAddress, now,
};

/// The hash of `test`.
const TOKENS: &str = "[[token]]
name = \"line1\"
sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"
";

/// A broker's authority and the programs' one, and the broker's addresses: with TLS, without, for MQTT.
struct Site {
    brokers: Authority,
    programs: Authority,
    at: [SocketAddr; 3],
    directory: tempfile::TempDir,
}

impl Site {
    fn place(&self, own: Option<CertifiedFiles>) -> TlsAddress {
        let authority = Some(self.brokers.file.clone());
        TlsAddress { host: "localhost".to_owned(), address: self.at[0], authority, own, token: None }
    }

    fn connect(&self, own: Option<CertifiedFiles>, token: Option<&str>) -> Result<Client, Error> {
        let file = token.map(|token| {
            let file = self.directory.path().join(format!("token-{token}"));
            std::fs::write(&file, format!("{token}\n")).expect("there is room");
            file
        });
        Client::connect_tls(&TlsAddress { token: file, ..self.place(own) })
    }
}

/// Runs a test with a broker that listens with TLS and asks for certificates, if `asks` says so.
fn with_tls(broker: Broker, asks: bool, test: impl FnOnce(&Site) + Send + 'static) {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let brokers = Authority::new(directory.path(), "brokers");
    let programs = Authority::new(directory.path(), "programs");
    let service = TlsService {
        own: brokers.certify("broker", &["localhost"]),
        client_authority: asks.then(|| programs.file.clone()),
        revocations: None,
    };
    let listen = move |server: &mut unisono_broker::Server| {
        let any = "127.0.0.1:0".parse().expect("an address");
        server.use_tls(&service).expect("the files are sound");
        let exposure = Exposure::Loopback;
        let tls = server.listen_tls(any, exposure).expect("it listens");
        let plain = server.listen_tcp(any, exposure).expect("it listens");
        vec![tls, plain, server.listen_mqtt_tls(any, exposure).expect("it listens")]
    };
    with_server(broker, listen, move |at| {
        let at = at.try_into().expect("as many as were made");
        test(&Site { brokers, programs, at, directory });
    });
}

/// Returns the address of a server that is no broker, with an authority that is made in a directory.
fn place_of(server: &TcpListener, directory: &Path) -> TlsAddress {
    let authority = Some(Authority::new(directory, "a").file);
    let address = server.local_addr().expect("it is bound");
    TlsAddress { host: "localhost".to_owned(), address, authority, own: None, token: None }
}

fn with_rules(rules: &str, tokens: Option<&str>) -> Broker {
    let broker = broker().with_permissions(Permissions::parse(rules, &|_| None).expect("it is sound"));
    match tokens {
        Some(tokens) => broker.with_tokens(Tokens::parse(tokens, now(), 0).expect("it is sound")),
        None => broker,
    }
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    outcome.expect_err("it is not allowed").to_string()
}

fn failures(client: &mut Client) -> u64 {
    client.statistics().expect("it goes on").refusals.get("tls").copied().unwrap_or(0)
}

#[test]
fn programs_exchange_events_of_all_sizes_through_tls() {
    with_tls(broker(), false, |site| {
        let mut consumer = site.connect(None, None).expect("it listens");
        consumer.subscribe(&SubscriptionSpec::new("t")).expect("it fits");
        let mut supplier = site.connect(None, None).expect("it listens");
        let topic = supplier.advertise(&Advertisement::new("t")).expect("it fits");
        for size in [0, 1, 16 << 10, 1 << 20] {
            let payload: Vec<u8> = (0..size).map(|at: usize| (at * 31) as u8).collect();
            supplier.publish(topic, &EventDraft::new(&payload)).expect("it leaves");
            supplier.flush().expect("it leaves");
            assert!(event(&mut consumer).payload.bytes()[..] == payload, "{size}");
        }
        assert_eq!(failures(&mut consumer), 0);
    });
}

#[test]
fn a_certificate_says_who_a_program_is_by_its_alternative_names_or_its_subject() {
    let rules = "[[allow]]\nwho = [\"certificate:line1.example\"]\npublish = [\"line1/#\"]\n\
                 [[allow]]\nwho = [\"certificate:watcher\"]\nsubscribe = [\"#\"]";
    with_tls(with_rules(rules, None), true, |site| {
        let line1 = site.programs.certify("first line", &["other.example", "line1.example"]);
        let mut line1 = site.connect(Some(line1), None).expect("it is named");
        line1.advertise(&Advertisement::new("line1/a")).expect("it may");
        let more = refused(line1.advertise(&Advertisement::new("a")));
        assert!(more.contains("certificate:line1.example may not publish `a`"), "{more}");
        let mut watcher =
            site.connect(Some(site.programs.certify("watcher", &[])), None).expect("it is named");
        watcher.subscribe(&SubscriptionSpec::new("#")).expect("it may");
        let stranger = refused(site.connect(Some(site.programs.certify("stranger", &[])), None));
        assert!(stranger.contains("no rule of the permissions names certificate:stranger"), "{stranger}");
        let none = refused(site.connect(None, None));
        assert!(
            none.contains("asks for a certificate; name one: --certificate FILE --certificate-key FILE"),
            "{none}"
        );
        let own = site.brokers.certify("watcher", &[]);
        let foreign = refused(site.connect(Some(own), None));
        assert!(foreign.contains("does not know the authority of this end's certificate"), "{foreign}");
        assert_eq!(failures(&mut watcher), 2);
    });
}

#[test]
fn a_subject_counts_only_in_a_certificate_without_alternative_names() {
    let rules = "[[allow]]\nwho = [\"certificate:admin\"]\npublish = [\"#\"]\n\
                 [[allow]]\nwho = [\"certificate:line1.example\"]\npublish = [\"line1\"]";
    with_tls(with_rules(rules, None), true, |site| {
        // an authority that checks hosts may let the applicant choose the subject
        let own = site.programs.certify("admin", &["line1.example"]);
        let mut line1 = site.connect(Some(own), None).expect("its alternative name is named");
        let more = refused(line1.advertise(&Advertisement::new("a")));
        assert!(more.contains("certificate:line1.example may not publish `a`"), "{more}");
        // an address is an alternative name, too, though no rule can name it
        let nameless = refused(site.connect(Some(site.programs.certify("admin", &["192.0.2.1"])), None));
        assert!(nameless.contains("no rule of the permissions names anonymous"), "{nameless}");
    });
}

#[test]
fn a_broker_with_tokens_takes_a_certificate_or_a_token() {
    let rules = "[[allow]]\nwho = [\"certificate:a\"]\npublish = [\"a\"]\n\
                 [[allow]]\nwho = [\"token:line1\"]\npublish = [\"line1\"]";
    with_tls(with_rules(rules, Some(TOKENS)), true, |site| {
        let own = Some(site.programs.certify("a", &[]));
        site.connect(own.clone(), None)
            .expect("a certificate")
            .advertise(&Advertisement::new("a"))
            .expect("it may");
        let mut known = site.connect(None, Some("test")).expect("a token");
        known.advertise(&Advertisement::new("line1")).expect("it may");
        let both = site
            .connect(own, Some("test"))
            .expect("the token goes first")
            .advertise(&Advertisement::new("a"));
        assert!(refused(both).contains("token:line1 may not"));
        assert!(refused(site.connect(None, None)).contains("no token came"));
    });
}

#[test]
fn a_program_does_not_speak_to_a_broker_that_its_authority_does_not_vouch_for() {
    with_tls(broker(), false, |site| {
        let with = |place: TlsAddress| refused(Client::at(&BrokerAddress::Tls(place)));
        let wrong = TlsAddress { authority: Some(site.programs.file.clone()), ..site.place(None) };
        assert!(with(wrong).contains("not of the authority that is trusted here"));
        let other_name = TlsAddress { host: "127.0.0.1".to_owned(), ..site.place(None) };
        let said = with(other_name);
        assert!(said.contains("not valid for name") && said.contains("localhost"), "{said}");
        let nobody = TlsAddress { authority: None, ..site.place(None) };
        assert!(with(nobody).contains("name its file: --authority FILE"));
        let gone = TlsAddress { authority: Some(PathBuf::from("/no/such.pem")), ..site.place(None) };
        assert!(with(gone).contains("cannot read /no/such.pem: No such file"));
        // the broker learned the reason of the first two
        assert_eq!(failures(&mut site.connect(None, None).expect("others go on")), 2);
    });
}

#[test]
fn tls_at_a_plain_address_and_the_reverse_are_told_apart() {
    with_tls(broker(), false, |site| {
        let plain = refused(Client::connect_tcp(site.at[0]));
        assert!(
            plain.contains("this address speaks TLS; connect to tls:HOST:PORT with --authority FILE"),
            "{plain}"
        );
        let place = TlsAddress { address: site.at[1], ..site.place(None) };
        let encrypted = refused(Client::connect_tls(&place));
        assert!(
            encrypted.contains("does not speak TLS; a broker without TLS is at tcp:HOST:PORT"),
            "{encrypted}"
        );
        let mut plain_mqtt = TcpStream::connect(site.at[2]).expect("it listens");
        plain_mqtt.write_all(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a").expect("it leaves");
        let mut answer = Vec::new();
        plain_mqtt.read_to_end(&mut answer).expect("the end");
        assert!(answer.starts_with(&[0x20]), "a CONNACK that refuses: {answer:?}");
        let mut client = site.connect(None, None).expect("others go on");
        assert_eq!(failures(&mut client), 2, "two at addresses with TLS");
        assert_eq!(client.statistics().expect("it goes on").sent_away, 3);
    });
}

#[test]
fn a_server_of_another_protocol_is_named_where_a_broker_with_tls_should_be() {
    with_tls(broker(), false, |site| {
        let web = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = web.local_addr().expect("it is bound");
        let server = std::thread::spawn(move || {
            let (mut program, _) = web.accept().expect("a program");
            program.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("the program is there");
            // an unread handshake would make the kernel reset the connection
            let _ = program.read(&mut [0; 4096]).expect("the handshake");
        });
        let said = refused(Client::connect_tls(&TlsAddress { address, ..site.place(None) }));
        server.join().expect("the server ends");
        assert!(said.contains("no Unisono broker answers there, but an HTTP server; name"), "{said}");
        assert!(said.contains(&address.to_string()), "{said}");
    });
}

#[test]
fn a_server_that_is_silent_where_a_broker_with_tls_should_be_is_named() {
    with_tls(broker(), false, |site| {
        // the kernel accepts connections to a listener that never takes them
        let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = silent.local_addr().expect("it is bound");
        let at = BrokerAddress::Tls(TlsAddress { address, ..site.place(None) });
        let said = refused(ClientOptions::new().answered_within(Duration::from_millis(20)).connect(&at));
        let begin = format!("no TLS connection to {address}: no answer to its handshake within 20ms; ");
        assert!(said.starts_with(&begin), "{said}");
    });
}

#[test]
fn handshakes_that_stop_in_the_middle_delay_nobody_and_take_places() {
    with_tls(broker(), false, |site| {
        let mut stuck: Vec<TcpStream> =
            (0..20).map(|_| TcpStream::connect(site.at[0]).expect("it listens")).collect();
        for (at, socket) in stuck.iter_mut().enumerate() {
            // the head of a record of 512 bytes, and less than that
            socket.write_all(&[&[0x16, 3, 1, 2, 0][..], &vec![1; at]].concat()).expect("it leaves");
        }
        let mut client = site.connect(None, None).expect("it listens");
        while client.statistics().expect("it goes on").clients < 21 {
            std::thread::yield_now();
        }
        drop(stuck);
        while client.statistics().expect("it goes on").clients > 1 {
            std::thread::yield_now();
        }
        let mut garbage = TcpStream::connect(site.at[0]).expect("it listens");
        garbage.write_all(&[0x16, 3, 1, 0, 4, 1, 0, 0, 0]).expect("it leaves");
        let mut alert = Vec::new();
        garbage.read_to_end(&mut alert).expect("the end");
        assert_eq!(alert.first(), Some(&0x15), "an alert");
        assert_eq!(failures(&mut client), 1);
    });
}

#[test]
fn a_program_waits_only_so_long_for_the_handshake() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let said = refused(Client::connect_tls(&place_of(&silent, directory.path())));
    assert!(said.contains("no answer to its handshake within 10s"), "{said}");
}

#[test]
fn a_program_that_reconnects_tries_again_when_a_broker_ends_in_the_handshake() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let ending = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let place = place_of(&ending, directory.path());
    let server = std::thread::spawn(move || {
        for answer in ["", "", "HTTP/1.1 400 Bad Request\r\n\r\n"] {
            let (mut program, _) = ending.accept().expect("a program");
            program.write_all(answer.as_bytes()).expect("it leaves");
            let _ = program.read(&mut [0; 4096]).expect("a hello");
        }
    });
    let ended = Client::connect_tls(&place).expect_err("it ends the connection");
    assert!(matches!(ended, Error::NoGreeting { .. }), "{ended}");
    let lasting = ClientOptions::new().reconnecting(Duration::from_secs(60));
    let said = refused(lasting.connect(&BrokerAddress::Tls(place)));
    assert!(said.contains("an HTTP server"), "the third answer: {said}");
    server.join().expect("it does not panic");
}

#[test]
fn an_expired_certificate_is_refused_by_the_one_who_has_it_and_by_the_other_end() {
    with_tls(broker(), true, |site| {
        let old = site.programs.certify_until("old", &["localhost"], 2020);
        let said = refused(site.connect(Some(old.clone()), None));
        assert!(said.contains("old.crt expired at 2020-01-01T00:00:00Z; renew it"), "{said}");
        let service = TlsService { own: old.clone(), client_authority: None, revocations: None };
        assert!(service.read(unisono_broker::Uncertified::Heard).is_err());

        // programs of others do not look at their own certificates
        let chain = || vec![CertificateDer::from_pem_file(&old.certificate).expect("a certificate")];
        let key = || PrivateKeyDer::from_pem_file(&old.key).expect("a key");
        let provider = || Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(&site.brokers.file).expect("a certificate"))
            .expect("an authority");
        let config = rustls::ClientConfig::builder_with_provider(provider());
        let config =
            config.with_safe_default_protocol_versions().expect("versions").with_root_certificates(roots);
        let config = Arc::new(config.with_client_auth_cert(chain(), key()).expect("they fit"));
        let program = rustls::ClientConnection::new(config, "localhost".try_into().expect("a name"));
        let mut socket = TcpStream::connect(site.at[0]).expect("it listens");
        let mut program = program.expect("a connection");
        let answer = rustls::Stream::new(&mut program, &mut socket).read(&mut [0; 100]);
        assert!(answer.expect_err("it is refused").to_string().contains("CertificateExpired"));

        let config = rustls::ServerConfig::builder_with_provider(provider());
        let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        let config = Arc::new(config.with_single_cert(chain(), key()).expect("they fit"));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let authority = Some(site.programs.file.clone());
        let address = listener.local_addr().expect("bound");
        let other = std::thread::spawn(move || {
            let mut socket = listener.accept().expect("it connects").0;
            let mut connection = rustls::ServerConnection::new(config).expect("a connection");
            // the program ends it
            let _ = connection.complete_io(&mut socket);
        });
        let said = refused(Client::connect_tls(&TlsAddress { address, authority, ..site.place(None) }));
        assert!(said.contains("the certificate of the other end has expired"), "{said}");
        other.join().expect("it does not panic");
    });
}

#[test]
fn a_program_shows_its_certificate_at_each_connection() {
    with_tls(broker(), true, |site| {
        let own = site.programs.certify("again", &[]);
        let chain = vec![CertificateDer::from_pem_file(&own.certificate).expect("a certificate")];
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(&site.brokers.file).expect("a certificate"))
            .expect("an authority");
        let config =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let config = config.with_protocol_versions(&[&rustls::version::TLS12]).expect("a version");
        let key = PrivateKeyDer::from_pem_file(&own.key).expect("a key");
        let config = config.with_root_certificates(roots).with_client_auth_cert(chain, key);
        let config = Arc::new(config.expect("they fit"));
        for _ in 0..2 {
            let name = "localhost".try_into().expect("a name");
            let mut program = rustls::ClientConnection::new(Arc::clone(&config), name).expect("a connection");
            let mut socket = TcpStream::connect(site.at[0]).expect("it listens");
            program.complete_io(&mut socket).expect("its certificate is sound");
            assert_eq!(program.handshake_kind(), Some(rustls::HandshakeKind::Full));
        }
    });
}

#[test]
fn files_that_do_not_fit_are_refused_before_anything_listens() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let authority = Authority::new(directory.path(), "a");
    let [one, other] = ["one", "other"].map(|name| authority.certify(name, &["localhost"]));
    let read = |own: CertifiedFiles, client_authority: Option<PathBuf>| {
        let read = TlsService { own, client_authority, revocations: None }
            .read(unisono_broker::Uncertified::Refused);
        read.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(read(one.clone(), Some(authority.file.clone())), Ok(()));
    let mixed = CertifiedFiles { key: other.key, ..one.clone() };
    assert!(read(mixed, None).expect_err("another key").ends_with("the key is not that of the certificate"));
    let swapped = CertifiedFiles { certificate: one.key.clone(), key: one.certificate.clone() };
    assert!(read(swapped, None).expect_err("no certificate").ends_with("it holds no certificate in PEM"));
    let empty = directory.path().join("empty.pem");
    std::fs::write(&empty, "").expect("a scratch directory");
    assert!(read(one, Some(empty)).expect_err("nobody").ends_with("it holds no certificate in PEM"));
}

#[test]
fn an_address_that_others_reach_needs_a_check_of_those_who_come() {
    let directory = tempfile::tempdir().expect("a scratch directory");
    let authority = Authority::new(directory.path(), "a");
    let own = authority.certify("broker", &["localhost"]);
    let any = "0.0.0.0:0".parse().expect("an address");
    let server = |broker, client_authority| {
        let mut server =
            unisono_broker::Server::new(broker, unisono_events_client::ChannelWait::Sleep).expect("a server");
        server
            .use_tls(&TlsService { own: own.clone(), client_authority, revocations: None })
            .expect("the files are sound");
        server
    };
    let said = server(broker(), None).listen_tls(any, Exposure::Loopback).expect_err("nobody is checked");
    assert!(
        said.to_string().contains("give --client-authority or --tokens, or say --insecure"),
        "{said}"
    );
    server(broker(), None).listen_tls(any, Exposure::Anybody).expect("it was asked for");
    server(broker(), Some(authority.file.clone())).listen_tls(any, Exposure::Loopback).expect("certificates");
    let tokens = Tokens::parse(TOKENS, now(), 0).expect("it is sound");
    server(broker().with_tokens(tokens), None).listen_mqtt_tls(any, Exposure::Loopback).expect("tokens");
    let mut without =
        unisono_broker::Server::new(broker(), unisono_events_client::ChannelWait::Sleep).expect("a server");
    let said = without.listen_tls(any, Exposure::Anybody).expect_err("no certificate");
    assert!(said.to_string().contains("give --certificate FILE --key FILE"), "{said}");
}

#[test]
fn a_program_that_reads_nothing_is_paused_and_gets_all_that_its_queue_kept() {
    with_tls(broker(), false, |site| {
        let mut consumer = site.connect(None, None).expect("it listens");
        let spec = SubscriptionSpec {
            full: unisono_events_client::WhenFull::BlockSupplier,
            ..SubscriptionSpec::new("t")
        };
        consumer.subscribe(&spec).expect("it fits");
        let mut supplier = site.connect(None, None).expect("it listens");
        let topic = supplier.advertise(&Advertisement::new("t")).expect("it fits");
        let (told, reads) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let supplier = scope.spawn(move || {
                for number in 0..3000_u32 {
                    let payload = [&number.to_le_bytes()[..], &[0; 4000]].concat();
                    supplier.publish(topic, &EventDraft::new(&payload)).expect("it leaves");
                    if number == 1500 {
                        told.send(()).expect("the other one waits");
                    }
                }
                supplier.flush().expect("it leaves");
                supplier
            });
            // waits until more events are on the way than sockets hold, or until the supplier blocks before
            // that
            let _ = reads.recv_timeout(Duration::from_secs(2));
            for number in 0..3000_u32 {
                assert_eq!(event(&mut consumer).payload.bytes()[..4], number.to_le_bytes());
            }
            supplier.join().expect("it does not panic");
        });
    });
}

#[test]
fn mosquitto_s_clients_speak_tls_with_the_broker() {
    use std::process::{Command, Stdio};
    if Command::new("mosquitto_pub").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: mosquitto_pub is not installed (Debian: mosquitto-clients)");
        return;
    }
    let rules = "[[allow]]\nwho = [\"certificate:line1\"]\npublish = [\"line1/#\"]\n\
                 [[allow]]\nwho = [\"certificate:watcher\"]\nsubscribe = [\"#\"]";
    with_tls(with_rules(rules, None), true, |site| {
        let mut watcher =
            site.connect(Some(site.programs.certify("watcher", &[])), None).expect("it is named");
        watcher.subscribe(&SubscriptionSpec::new("#")).expect("it may");
        let line1 = site.programs.certify("line1", &[]);
        let publish = |authority: &Authority, own: Option<&CertifiedFiles>, topic: &str| {
            let mut command = Command::new("mosquitto_pub");
            command.args([
                "-h",
                "localhost",
                "-p",
                &site.at[2].port().to_string(),
                "-q",
                "1",
                "-V",
                "mqttv5",
            ]);
            command.args(["-t", topic, "-m", "hot", "--cafile"]).arg(&authority.file);
            if let Some(own) = own {
                command.arg("--cert").arg(&own.certificate).arg("--key").arg(&own.key);
            }
            // mosquitto's client ends after an error; without a broker it would try again for ever
            let log = std::fs::File::create(site.directory.path().join("log")).expect("a scratch directory");
            command.stdin(Stdio::null()).stderr(log).status().expect("it is installed").success()
        };
        assert!(publish(&site.brokers, Some(&line1), "line1/heat"));
        let got = event(&mut watcher);
        assert_eq!((&*got.topic, &got.payload.bytes()[..]), ("line1/heat", &b"hot"[..]));
        assert!(!publish(&site.programs, Some(&line1), "line1/heat"), "not the broker's authority");
        assert!(!publish(&site.brokers, None, "line1/heat"), "no certificate");
        assert_eq!(failures(&mut watcher), 2);
    });
}
