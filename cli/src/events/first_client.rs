//! The line that a broker prints first: how a program connects to it, and which programs it would refuse.

use std::net::{IpAddr, SocketAddr};
use unisono_events_client::{BrokerAddress, HOST_SOCKET, TlsAddress, default_socket};
use unisono_text::shell_word;

/// The conditions under which a broker accepts a client.
#[derive(Clone, Copy, Default)]
pub(super) struct AccessConditions {
    /// The permission bits of the Unix sockets.
    pub(super) mode: u32,
    /// A client over TCP needs a token; a client over TLS needs a token or a certificate.
    pub(super) asks_token: bool,
    /// A client over TLS needs a certificate, or a token if `asks_token` is set, too.
    pub(super) asks_certificate: bool,
    /// A client that no rule of the permissions names is refused.
    pub(super) has_permissions: bool,
}

impl AccessConditions {
    /// Returns the command of a first client, and the reason why some clients would be refused.
    pub(super) fn native(&self, address: &BrokerAddress) -> String {
        let at = at(address);
        match address {
            BrokerAddress::Shared(_) | BrokerAddress::Unix(_) => {
                self.sentence(&subscriber(&at), self.users())
            }
            BrokerAddress::Tcp(_) if self.asks_token => self
                .sentence(&subscriber(&format!("{at} --token-file FILE")), Some("programs without a token")),
            BrokerAddress::Tcp(_) => self.sentence(&subscriber(&at), None),
            BrokerAddress::Tls(_) | BrokerAddress::Udp(_) => {
                let (own, refused) = self.credentials();
                let command = subscriber(&format!("{at} --authority CA.pem{own}"));
                self.sentence(&command, refused)
            }
        }
    }

    /// Returns the same as [`Self::native`], for an MQTT client.
    pub(super) fn mqtt(&self, address: SocketAddr, is_encrypted: bool) -> String {
        let host = if address.ip().is_unspecified() { "HOST".to_owned() } else { address.ip().to_string() };
        let mut command = format!("mosquitto_sub -h {host} -p {} -t '#'", address.port());
        let mut refused = self.asks_token.then_some("clients without a token");
        if is_encrypted {
            command.push_str(" --cafile CA.pem");
            if self.asks_certificate && !self.asks_token {
                command.push_str(" --cert FILE --key FILE");
                refused = Some("clients without a certificate");
            }
        }
        if self.asks_token {
            command.push_str(" -u NAME -P TOKEN");
        }
        self.sentence(&command, refused)
    }

    /// Returns the options that give a TLS client its own credentials, and the clients that are refused
    /// without them.
    fn credentials(&self) -> (&'static str, Option<&'static str>) {
        match (self.asks_certificate, self.asks_token) {
            (true, false) => {
                (" --certificate FILE --certificate-key FILE", Some("programs without a certificate"))
            }
            (true, true) => (" --token-file FILE", Some("programs without a token or a certificate")),
            (false, true) => (" --token-file FILE", Some("programs without a token")),
            (false, false) => ("", None),
        }
    }

    fn users(&self) -> Option<&'static str> {
        match (self.mode & 0o006, self.mode & 0o060) {
            (0o006, _) => None,
            (_, 0o060) => Some("users outside its group (see --mode)"),
            _ => Some("other users (see --mode)"),
        }
    }

    fn sentence(&self, command: &str, refused: Option<&str>) -> String {
        let rules = self.has_permissions.then_some("clients without a rule in --permissions");
        let refused: Vec<&str> = refused.into_iter().chain(rules).collect();
        let refused = if refused.is_empty() { "nothing".to_owned() } else { refused.join(", and ") };
        format!("first client: {command}; refused: {refused}")
    }
}

fn subscriber(at: &str) -> String {
    format!("unisono events subscribe '#'{at}")
}

/// Returns the option that names the broker; empty if clients find this address without an option.
fn at(address: &BrokerAddress) -> String {
    let tls = |scheme: &str, tls: &TlsAddress| {
        let host = tls.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
        let host = if host { "HOST" } else { &tls.host };
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        format!(" --at {scheme}:{host}:{}", tls.address.port())
    };
    match address {
        BrokerAddress::Shared(path) | BrokerAddress::Unix(path)
            if *path == default_socket() || path.as_os_str() == HOST_SOCKET =>
        {
            String::new()
        }
        BrokerAddress::Shared(_) | BrokerAddress::Unix(_) => {
            format!(" --at {}", shell_word(&address.to_string()))
        }
        BrokerAddress::Tcp(tcp) if tcp.ip().is_unspecified() => format!(" --at tcp:HOST:{}", tcp.port()),
        BrokerAddress::Tcp(_) => format!(" --at {address}"),
        BrokerAddress::Tls(address) => tls("tls", address),
        BrokerAddress::Udp(address) => tls("udp", address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(conditions: AccessConditions, address: &str) -> String {
        conditions.native(&address.parse().expect("an address"))
    }

    #[test]
    fn a_broker_says_how_a_first_client_connects_and_what_refuses_it() {
        let open = AccessConditions { mode: 0o666, ..AccessConditions::default() };
        let mine = AccessConditions { mode: 0o600, ..open };
        let all = "first client: unisono events subscribe '#' --at";
        let expected = [
            (mine, "/tmp/bus", "/tmp/bus; refused: other users (see --mode)"),
            (
                AccessConditions { mode: 0o660, ..open },
                "/a b",
                "'/a b'; refused: users outside its group (see --mode)",
            ),
            (open, "tcp:127.0.0.1:7400", "tcp:127.0.0.1:7400; refused: nothing"),
            (open, "tcp:0.0.0.0:7400", "tcp:HOST:7400; refused: nothing"),
            (
                AccessConditions { asks_token: true, has_permissions: true, ..open },
                "tcp:127.0.0.1:1",
                "tcp:127.0.0.1:1 --token-file FILE; refused: programs without a token, and clients without a \
                 rule in --permissions",
            ),
            (
                AccessConditions { asks_certificate: true, ..open },
                "tls:0.0.0.0:7401",
                "tls:HOST:7401 --authority CA.pem --certificate FILE --certificate-key FILE; refused: programs \
                 without a certificate",
            ),
        ];
        for (conditions, address, rest) in expected {
            assert_eq!(native(conditions, address), format!("{all} {rest}"));
        }
        assert_eq!(
            native(mine, HOST_SOCKET),
            "first client: unisono events subscribe '#'; refused: other users (see --mode)"
        );
    }

    #[test]
    fn an_mqtt_client_is_told_its_host_its_port_and_its_credentials() {
        let asks = AccessConditions { asks_token: true, ..AccessConditions::default() };
        let address = "0.0.0.0:1883".parse().expect("an address");
        assert_eq!(
            asks.mqtt(address, true),
            "first client: mosquitto_sub -h HOST -p 1883 -t '#' --cafile CA.pem -u NAME -P TOKEN; refused: clients \
             without a token"
        );
        assert_eq!(
            AccessConditions::default().mqtt(address, false),
            "first client: mosquitto_sub -h HOST -p 1883 -t '#'; refused: nothing"
        );
    }
}
