//! Options that several subcommands of `unisono events` share.

use crate::exit::Failure;
use crate::flags::one_of;
use std::path::PathBuf;
use std::time::Duration;
use unisono_events_client::{
    BrokerAddress, CertifiedFiles, ChannelWait, Client, ClientOptions, Error, EventDraft, FieldSet,
    FieldValue, PayloadForm, default_socket,
};
use unisono_linux::read;
use unisono_measure::units;

/// The address of the broker.
#[derive(clap::Args)]
pub(crate) struct BrokerFlag {
    /// The broker: the path of its socket, to share memory with it; unix:PATH, to send everything through the
    /// socket; tcp:HOST:PORT, tls:HOST:PORT or udp:HOST:PORT [default: your own broker, at
    /// $XDG_RUNTIME_DIR/unisono-events or /tmp/unisono-UID/events, or else /run/unisono/events]
    #[arg(long, value_name = "ADDRESS")]
    at: Option<PathBuf>,
    /// This program's name in `events top`, metrics and errors [default: what ps shows, and the number of the
    /// process]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A file that holds a token, for a broker that asks for one over TCP
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// With tls: and udp: the certificate (PEM) of the authority that signed the broker's certificate
    #[arg(long, value_name = "FILE")]
    authority: Option<PathBuf>,
    /// With tls: and udp: this program's certificate (PEM), for a broker that asks for one
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// The key (PEM) of the certificate
    #[arg(long, value_name = "FILE")]
    certificate_key: Option<PathBuf>,
}

/// How a program stays with its broker.
#[derive(clap::Args)]
pub(crate) struct StayFlags {
    /// The time after which the broker takes this program for dead if it is stopped or hangs; at least 300ms.
    /// A stand-by supplier then takes over, the subscribers get a notice, and this program ends with an error
    /// when it goes on
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    pub(super) lease: Option<Duration>,
    /// How it waits for the broker: spinning is fastest, and needs a processor of its own
    #[arg(long, value_name = "HOW", value_parser = one_of(&ChannelWait::ALL), default_value = "sleep")]
    wait: ChannelWait,
}

impl StayFlags {
    fn options(&self) -> ClientOptions {
        let options = ClientOptions::new().waiting(self.wait);
        match self.lease {
            Some(lease) => options.leased(lease),
            None => options,
        }
    }
}

/// The reaction of a program to a broken connection.
#[derive(clap::Args)]
pub(crate) struct ReconnectFlag {
    /// If the connection breaks, connect again, for at most this long [without a time: 1min]
    #[arg(long, value_name = "WITHIN", value_parser = units::duration, num_args = 0..=1, require_equals = true,
          default_missing_value = "1min")]
    pub(super) reconnect: Option<Duration>,
}

impl ReconnectFlag {
    fn apply_to(&self, options: ClientOptions) -> ClientOptions {
        match self.reconnect {
            Some(within) => options.reconnecting(within),
            None => options,
        }
    }
}

impl BrokerFlag {
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        self.connect(ClientOptions::new())
    }

    /// Connects, and asks the broker for the types of topics.
    pub(super) fn with_types(&self, again: &ReconnectFlag) -> anyhow::Result<Client> {
        self.connect(again.apply_to(ClientOptions::new().with_types()))
    }

    /// Connects with a lease and a way of waiting.
    pub(super) fn staying(&self, stay: &StayFlags) -> anyhow::Result<Client> {
        self.connect(stay.options())
    }

    /// Connects with a lease and a way of waiting, and again whenever the connection breaks.
    pub(super) fn lasting(&self, stay: &StayFlags, again: &ReconnectFlag) -> anyhow::Result<Client> {
        self.connect(again.apply_to(stay.options()))
    }

    fn connect(&self, mut options: ClientOptions) -> anyhow::Result<Client> {
        let address = self.address().map_err(Failure::Usage)?;
        if let Some(name) = &self.name {
            options = options.named(name);
        }
        if self.at.is_none() && self.token_file.is_none() {
            return options.connect_default().map_err(in_words);
        }
        match (&address, &self.token_file) {
            (BrokerAddress::Tcp(_), Some(path)) => {
                let read = read::text(path, read::HAND_WRITTEN).map_err(|error| {
                    Failure::Usage(format!("cannot read the token {}: {error}", path.display()))
                });
                options = options.with_token(read?.trim());
            }
            (other @ (BrokerAddress::Unix(_) | BrokerAddress::Shared(_)), Some(_)) => {
                let what =
                    format!("{other} needs no token: the kernel says who you are; leave --token-file out");
                return Err(Failure::Usage(what).into());
            }
            _ => {}
        }
        options.connect(&address).map_err(in_words)
    }

    fn address(&self) -> Result<BrokerAddress, String> {
        let at = self.at.clone().unwrap_or_else(default_socket);
        let text = at.to_string_lossy();
        let mut address: BrokerAddress = text.parse().map_err(|error| format!("{error}"))?;
        let own = CertifiedFiles::new(self.certificate.as_deref(), self.certificate_key.as_deref());
        let own = own.map_err(|error| error.to_string())?;
        match &mut address {
            BrokerAddress::Tls(place) | BrokerAddress::Udp(place) => {
                place.authority = self.authority.clone().or(place.authority.take());
                place.own = own.or(place.own.take());
                place.token = self.token_file.clone().or(place.token.take());
            }
            _ if self.authority.is_some() || own.is_some() => {
                return Err(format!(
                    "--authority, --certificate and --certificate-key are for tls:HOST:PORT and udp:HOST:PORT; {text} is none"
                ));
            }
            _ => {}
        }
        Ok(address)
    }
}

/// Whether events may go through shared memory without the broker.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DirectChoice {
    /// where both ends share memory with the broker, and no option in use needs the broker in between
    Yes,
    No,
}

/// The parts of an event beside its payload.
#[derive(clap::Args)]
pub(crate) struct EventFlags {
    /// The instance that the event is about, if a topic has events of several (a key of DDS), such as a
    /// sensor's number
    #[arg(long, value_name = "KEY", default_value = "")]
    key: String,
    /// A field for filters; true, false and numbers are read as such, all else is a text
    #[arg(long = "field", value_name = "NAME=VALUE", value_parser = field)]
    fields: Vec<(String, FieldValue)>,
    /// The content type of the payload, such as application/cbor, told to consumers as the field
    /// content_type, and to MQTT clients as their Content Type
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// The name of the payload's schema, such as a message of protobuf, told as the field schema
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,
    /// Time from its publication to its deadline
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    deadline: Option<Duration>,
    /// Severity of losing the event, from 0 to 255: a full queue drops the least critical events first
    #[arg(long, value_name = "N", default_value_t = 0)]
    criticality: u8,
}

impl EventFlags {
    pub(super) fn draft<'a>(&'a self, payload: &'a [u8]) -> EventDraft<'a> {
        let mut fields = FieldSet::new();
        for (name, value) in &self.fields {
            fields.set(name.as_str(), value.clone());
        }
        let form = PayloadForm { content_type: self.content_type.clone(), schema: self.schema.clone() };
        let fields = form.complete(fields);
        let draft = EventDraft::new(payload).keyed(&self.key).with_fields(fields).critical(self.criticality);
        match self.deadline {
            Some(deadline) => draft.due_in(deadline),
            None => draft,
        }
    }
}

fn field(text: &str) -> Result<(String, FieldValue), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, as in celsius=81.5")?;
    let number =
        || value.parse::<i64>().map(FieldValue::from).or_else(|_| value.parse::<f64>().map(FieldValue::from));
    let value = match value {
        "true" => true.into(),
        "false" => false.into(),
        text => number().unwrap_or_else(|_| text.into()),
    };
    Ok((name.to_owned(), value))
}

/// Converts an error of the client library: an error in the user's request becomes bad input, every other
/// error a failure.
pub(crate) fn in_words(error: Error) -> anyhow::Error {
    match error {
        Error::Refused(_)
        | Error::Rejected(_)
        | Error::TooLong { .. }
        | Error::Options(_)
        | Error::Tls(_)
        | Error::TokenFile { .. } => Failure::Usage(error.to_string()).into(),
        Error::Nobody { .. }
        | Error::NobodyHere { .. }
        | Error::NobodyThere { .. }
        | Error::NobodyServes { .. }
        | Error::ForeignService { .. }
        | Error::NoGreeting { .. }
        | Error::SilentServer { .. } => Failure::Host(error.to_string()).into(),
        other => other.into(),
    }
}
