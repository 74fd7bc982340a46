//! What several subcommands of `unisono events` take.

use crate::exit::Failure;
use std::path::PathBuf;
use std::time::Duration;
use unisono_broker::{BrokerAddress, Client, Error, EventDraft, FieldSet, FieldValue, default_socket};
use unisono_linux::read;
use unisono_measure::units;

/// Which broker is meant.
#[derive(clap::Args)]
pub(crate) struct BrokerFlag {
    /// The broker: the path of its socket, shm:PATH, or tcp:HOST:PORT
    #[arg(long, value_name = "ADDRESS", default_value_os_t = default_socket())]
    at: PathBuf,
    /// A file that holds a token, for a broker that asks for one over TCP
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl BrokerFlag {
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let text = self.at.to_string_lossy();
        let address: BrokerAddress = text.parse().map_err(|error| Failure::Usage(format!("{error}")))?;
        let Some(path) = &self.token_file else { return Ok(Client::at(&address)?) };
        let token = read::text(path, read::HAND_WRITTEN)
            .map_err(|error| Failure::Usage(format!("cannot read the token {}: {error}", path.display())))?;
        match address {
            BrokerAddress::Tcp(address) => Ok(Client::connect_tcp_with(address, token.trim())?),
            other => {
                let what =
                    format!("{other} needs no token: the kernel says who you are; leave --token-file out");
                Err(Failure::Usage(what).into())
            }
        }
    }
}

/// What an event carries beside its payload.
#[derive(clap::Args)]
pub(crate) struct EventFlags {
    /// Which of the things that the topic is about
    #[arg(long, value_name = "KEY", default_value = "")]
    key: String,
    /// A field for filters; true, false and numbers are read as such, all else is a text
    #[arg(long = "field", value_name = "NAME=VALUE", value_parser = field)]
    fields: Vec<(String, FieldValue)>,
    /// How long after its publication it is due
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    deadline: Option<Duration>,
    /// How bad it is if it is lost, from 0 to 255: a full queue drops the least critical events first
    #[arg(long, value_name = "N", default_value_t = 0)]
    criticality: u8,
}

impl EventFlags {
    pub(super) fn draft<'a>(&'a self, payload: &'a [u8]) -> EventDraft<'a> {
        let mut fields = FieldSet::new();
        for (name, value) in &self.fields {
            fields.set(name.as_str(), value.clone());
        }
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

/// What the user asked for and cannot have is bad input; all else is a failure.
pub(super) fn in_words(error: Error) -> anyhow::Error {
    match error {
        Error::Refused(_) | Error::Rejected(_) | Error::TooLong { .. } => {
            Failure::Usage(error.to_string()).into()
        }
        other => other.into(),
    }
}
