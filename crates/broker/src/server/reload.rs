//! Reads the broker's files again while it serves: the certificates here, all other files with the caller's
//! reader.
//!
//! ```text
//!   SIGHUP  --ReloadTrigger-+
//!   RELOAD of a program --+--> read all, check all --> listeners, broker, connections
//!                                    |
//!                                    +--> the first error: nothing has changed
//! ```
//! Everything that can fail comes before the first change.

use super::Server;
use crate::broker::{BrokerSettings, CheckedSettings, ReloadAsker, ReloadedFiles};
use crate::task::ClientId;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use unisono_events_wire::ReloadReport;
use unisono_events_wire::tls::{self, TlsCertificates};
use unisono_linux::clock;

/// Reads the files of a broker's settings; the error is for the operator.
pub type SettingsReader = Box<dyn Fn() -> Result<BrokerSettings, String> + Send>;

/// The reader of a server's files, if it has any.
#[derive(Default)]
pub(super) struct ServerSettings {
    reader: Option<SettingsReader>,
    trigger: Arc<ReloadTrigger>,
}

impl fmt::Debug for ServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSettings").field("trigger", &self.trigger).finish_non_exhaustive()
    }
}

/// Makes a serving broker read its files again. It may be used from another thread, or from the `stop` of
/// [`Server::serve`](crate::Server::serve).
#[derive(Debug, Default)]
pub struct ReloadTrigger {
    asked: Mutex<Option<ReloadAsker>>,
}

impl ReloadTrigger {
    /// Asks for a reload in the server's next turn, within a tenth of a second.
    pub fn ask(&self, asker: ReloadAsker) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(asker);
    }

    fn take(&self) -> Option<ReloadAsker> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Server {
    /// Sets the reader of all files except the certificates.
    pub fn set_settings_reader(&mut self, reader: SettingsReader) {
        self.settings.reader = Some(reader);
    }

    /// Returns the trigger that asks for a reload.
    pub fn reload_trigger(&self) -> Arc<ReloadTrigger> {
        Arc::clone(&self.settings.trigger)
    }

    /// Reads the files again if the trigger has asked for it.
    pub(super) fn reload_if_asked(&mut self) {
        if let Some(asker) = self.settings.trigger.take() {
            self.reload(asker);
        }
    }

    /// Reads the files again, and puts all of them in force together.
    pub(super) fn reload(&mut self, asker: ReloadAsker) -> ReloadReport {
        let (settings, certificates, read) = match self.read_settings() {
            Ok(read) => read,
            Err(why) => return self.broker.reload_refused(asker, why),
        };
        if let Some(certificates) = certificates {
            // only UDP listeners can refuse, and they all refuse the same certificates: the first one does
            for listener in &mut self.listeners {
                if let Err(error) = listener.use_certificates(&certificates) {
                    return self.broker.reload_refused(asker, error.to_string());
                }
            }
            if let Some(check) = &certificates.check {
                check.enforce();
            }
            if let Some(service) = &mut self.tls {
                service.certificates = certificates;
            }
        }
        let invalid = self.invalid_certificates();
        let report = self.broker.reload(clock::now(), asker, settings, ReloadedFiles { read, invalid });
        // the size limit in a client's rule may have changed
        for (id, client) in &mut self.clients {
            client.limit_frames(&self.broker, *id);
        }
        report
    }

    /// Reads and checks all settings. Returns them, and the kinds of files that they come from.
    fn read_settings(&self) -> Result<(CheckedSettings, Option<TlsCertificates>, Vec<String>), String> {
        let settings =
            self.settings.reader.as_ref().map_or_else(|| Ok(BrokerSettings::default()), |read| read())?;
        let certificates = self.tls.as_ref().map(|service| {
            service
                .files
                .read_again(&service.certificates, service.uncertified)
                .map_err(|error| error.to_string())
        });
        let certificates = certificates.transpose()?;
        let kinds = [
            (settings.policy.is_some(), "policy"),
            (settings.permissions.is_some(), "permissions"),
            (settings.tokens.is_some(), "tokens"),
            (certificates.is_some(), "certificates"),
        ];
        let read = kinds.iter().filter(|(is, _)| *is).map(|(_, kind)| (*kind).to_owned()).collect();
        let checked = self.broker.check_settings(settings).map_err(|error| format!("the policy: {error}"))?;
        Ok((checked, certificates, read))
    }

    /// Returns the connections whose certificates are not valid any more.
    fn invalid_certificates(&self) -> Vec<(ClientId, String)> {
        let Some(check) = self.tls.as_ref().and_then(|service| service.certificates.check.clone()) else {
            return Vec::new();
        };
        let refused = self.clients.iter().filter_map(|(id, client)| {
            let error = check.check(&client.transport.peer_certificates()?).err()?;
            Some((*id, format!("the certificate is not valid any more: {}", tls::in_words(&error))))
        });
        refused.collect()
    }
}
