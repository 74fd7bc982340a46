//! Certificates that are revoked while their programs are connected.

use super::Server;
use crate::task::ClientId;
use crate::tls::{self, ClientCertificateCheck};
use std::sync::Arc;
use unisono_linux::clock;

impl Server {
    /// The check of programs' certificates, whose revocation lists another thread, or the `stop` of
    /// [`serve`](Self::serve), may have read again. `None`: programs are not asked for certificates.
    #[must_use]
    pub fn certificate_check(&self) -> Option<Arc<ClientCertificateCheck>> {
        self.tls.as_ref().and_then(|service| service.certificates.check.clone())
    }

    /// After revocation lists were read again: ends the connections whose certificates they name.
    pub(super) fn end_revoked(&mut self) {
        let Some(service) = &mut self.tls else { return };
        let Some(check) = service.certificates.check.clone() else { return };
        let readings = check.readings();
        if std::mem::replace(&mut service.readings, readings) == readings {
            return;
        }
        let refused = self.clients.iter().filter_map(|(id, client)| {
            let chain = client.transport.peer_certificates()?;
            Some((*id, check.check(&chain).err()?))
        });
        let refused: Vec<(ClientId, rustls::Error)> = refused.collect();
        for (id, error) in refused {
            let why = format!("the certificate is not valid any more: {}", tls::in_words(&error));
            self.broker.send_away(clock::now(), id, &why);
        }
    }
}
