//! The addresses of a server: each kind of listener, and the state of listeners with TLS.

use super::Server;
use super::inherited::SocketOrigin;
use super::listen::{self, Exposure, ServeError};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{AddressFamily, sockopt};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use unisono_events_wire::memory::LocalListener;
use unisono_events_wire::tls::{TlsCertificates, TlsService, Uncertified};
use unisono_events_wire::transport::{
    DatagramListener, Framing, StreamListener, TransportListener, WebOrigins,
};
use unisono_events_wire::{BrokerAddress, TlsAddress};
use unisono_linux::local_socket::SocketName;

/// The upper half of a listener's key in epoll.
pub(super) const LISTENER: u64 = 1 << 32;

/// Whether WebSockets have TLS below them (`wss:`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WebEncryption {
    None,
    Tls,
}

/// The state that all listeners with TLS share.
#[derive(Clone, Debug)]
pub(super) struct EncryptedService {
    pub(super) files: TlsService,
    pub(super) uncertified: Uncertified,
    pub(super) certificates: TlsCertificates,
    /// Whether every program that connects has to show a certificate or a token.
    asks: bool,
}

impl Server {
    /// Listens at `path` for programs of this host, which speak through shared memory or by frames over the
    /// socket; `mode` is the socket's file mode ([`OWNER`](crate::OWNER)) and decides which users may
    /// connect. The socket of a killed broker is replaced.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn listen_unix(&mut self, path: &Path, mode: u32) -> Result<(), ServeError> {
        let socket = match self.inherited.unix(path) {
            Some((socket, SocketOrigin::ServiceManager)) => socket,
            Some((socket, SocketOrigin::Predecessor)) => {
                // the file's new change time also shows that the name is not the predecessor's any more
                listen::set_mode_of(path, mode)?;
                socket
            }
            None => {
                let socket = listen::unix(path, mode)?;
                self.names.push(SocketName::from_path(path));
                socket
            }
        };
        self.add(Box::new(LocalListener::new(socket, self.broker.limits().largest_frame())?))
    }

    /// Listens at a TCP address; returns the address with the port that the kernel chose for 0.
    ///
    /// # Errors
    /// The address is in use, or other hosts reach it and `exposure` does not allow that.
    pub fn listen_tcp(&mut self, address: SocketAddr, exposure: Exposure) -> Result<SocketAddr, ServeError> {
        self.listen_framed(address, exposure, Framing::Length)
    }

    /// Listens for MQTT clients at a TCP address; returns the address with the port that the kernel chose for
    /// 0.
    ///
    /// # Errors
    /// As [`listen_tcp`](Self::listen_tcp).
    pub fn listen_mqtt(&mut self, address: SocketAddr, exposure: Exposure) -> Result<SocketAddr, ServeError> {
        self.listen_framed(address, exposure, Framing::Mqtt)
    }

    /// Listens at a socket that systemd has opened; the unit's author decides which users may connect.
    ///
    /// # Errors
    /// The descriptor is not a listening socket, or the kernel refuses to wait for it.
    pub(super) fn listen_inherited(&mut self, socket: OwnedFd) -> Result<(), ServeError> {
        // accept(2) would fail for ever, and the broker would try again for ever
        if !sockopt::socket_acceptconn(&socket).unwrap_or(false) {
            return Err(ServeError::NoListener);
        }
        let largest = self.broker.limits().largest_frame();
        if sockopt::socket_domain(&socket)? == AddressFamily::UNIX {
            return self.add(Box::new(LocalListener::new(socket, largest)?));
        }
        self.add(Box::new(StreamListener::new(socket, largest)?))
    }

    /// Reads the certificates that [`listen_tls`](Self::listen_tls) needs. If the broker has tokens, they
    /// must be added to it before this call.
    ///
    /// # Errors
    /// A file cannot be read, or its contents are not valid.
    pub fn use_tls(&mut self, service: &TlsService) -> Result<(), ServeError> {
        let tokens = self.broker.has_tokens();
        let uncertified = if tokens { Uncertified::Heard } else { Uncertified::Refused };
        let certificates = service.read(uncertified)?;
        self.tls = Some(EncryptedService {
            files: service.clone(),
            uncertified,
            certificates,
            asks: tokens || service.client_authority.is_some(),
        });
        Ok(())
    }

    /// Listens at a TCP address for programs that speak TLS.
    ///
    /// # Errors
    /// The address is in use, [`use_tls`](Self::use_tls) was not called, or other hosts reach the address,
    /// the broker asks for neither certificates nor tokens, and `exposure` does not allow that.
    pub fn listen_tls(&mut self, address: SocketAddr, exposure: Exposure) -> Result<SocketAddr, ServeError> {
        self.listen_encrypted(address, exposure, Framing::Length)
    }

    /// Listens at a TCP address for MQTT clients that speak TLS.
    ///
    /// # Errors
    /// As [`listen_tls`](Self::listen_tls).
    pub fn listen_mqtt_tls(
        &mut self,
        address: SocketAddr,
        exposure: Exposure,
    ) -> Result<SocketAddr, ServeError> {
        self.listen_encrypted(address, exposure, Framing::Mqtt)
    }

    /// Listens for MQTT clients over WebSocket, with or without TLS: for programs, and for pages that this
    /// host or one of `origins` has served.
    ///
    /// # Errors
    /// As [`listen_tcp`](Self::listen_tcp), or with TLS as [`listen_tls`](Self::listen_tls).
    pub fn listen_mqtt_websocket(
        &mut self,
        address: SocketAddr,
        exposure: Exposure,
        (encryption, origins): (WebEncryption, WebOrigins),
    ) -> Result<SocketAddr, ServeError> {
        let certificates = match encryption {
            WebEncryption::Tls => Some(self.encrypted_service("wss", address, exposure)?.certificates),
            WebEncryption::None => {
                listen::check_exposure(address, exposure)?;
                None
            }
        };
        let (mut listener, bound) = self.tcp_listener(address, Framing::Mqtt)?;
        if let Some(certificates) = certificates {
            listener = listener.encrypted(certificates);
        }
        self.add(Box::new(listener.for_websockets(origins)))?;
        Ok(bound)
    }

    /// Listens at a UDP address for programs.
    ///
    /// # Errors
    /// As [`listen_tls`](Self::listen_tls).
    pub fn listen_udp(&mut self, address: SocketAddr, exposure: Exposure) -> Result<SocketAddr, ServeError> {
        let service = self.encrypted_service("udp", address, exposure)?;
        let largest = self.broker.limits().largest_frame();
        let (idle, inherited) = (self.broker.limits().peer_timeout.into(), self.inherited.udp(address));
        let listener = match inherited {
            Some(socket) => DatagramListener::at(socket, largest, &service.certificates, idle),
            None => DatagramListener::bind(address, largest, &service.certificates, idle),
        };
        let listener = listener.map_err(|source| ServeError::ListenUdp { address, source })?;
        let bound = listener.address();
        self.add(Box::new(listener))?;
        Ok(bound)
    }

    fn encrypted_service(
        &self,
        scheme: &'static str,
        address: SocketAddr,
        exposure: Exposure,
    ) -> Result<EncryptedService, ServeError> {
        let service = self.tls.clone().ok_or(ServeError::NoCertificate { scheme, address })?;
        if !service.asks && listen::check_exposure(address, exposure).is_err() {
            return Err(ServeError::ExposedToAll { address });
        }
        Ok(service)
    }

    fn listen_encrypted(
        &mut self,
        address: SocketAddr,
        exposure: Exposure,
        framing: Framing,
    ) -> Result<SocketAddr, ServeError> {
        let service = self.encrypted_service("tls", address, exposure)?;
        let (listener, bound) = self.tcp_listener(address, framing)?;
        self.add(Box::new(listener.encrypted(service.certificates)))?;
        Ok(bound)
    }

    fn listen_framed(
        &mut self,
        address: SocketAddr,
        exposure: Exposure,
        framing: Framing,
    ) -> Result<SocketAddr, ServeError> {
        listen::check_exposure(address, exposure)?;
        let (listener, bound) = self.tcp_listener(address, framing)?;
        self.add(Box::new(listener))?;
        Ok(bound)
    }

    fn tcp_listener(
        &mut self,
        address: SocketAddr,
        framing: Framing,
    ) -> Result<(StreamListener, SocketAddr), ServeError> {
        let largest = self.broker.limits().largest_frame();
        listen::tcp(address, (largest, framing), self.inherited.tcp(address))
    }

    /// Listens at an address of any kind; returns the address with the port that the kernel chose for 0.
    ///
    /// # Errors
    /// As [`listen_unix`](Self::listen_unix), [`listen_tcp`](Self::listen_tcp),
    /// [`listen_tls`](Self::listen_tls) and [`listen_udp`](Self::listen_udp).
    pub fn listen(
        &mut self,
        address: &BrokerAddress,
        mode: u32,
        exposure: Exposure,
    ) -> Result<BrokerAddress, ServeError> {
        match address {
            BrokerAddress::Shared(path) | BrokerAddress::Unix(path) => {
                self.listen_unix(path, mode)?;
                Ok(BrokerAddress::Shared(path.clone()))
            }
            BrokerAddress::Tcp(address) => self.listen_tcp(*address, exposure).map(BrokerAddress::Tcp),
            BrokerAddress::Tls(place) => {
                let address = self.listen_tls(place.address, exposure)?;
                Ok(BrokerAddress::Tls(TlsAddress { address, ..place.clone() }))
            }
            BrokerAddress::Udp(place) => {
                let address = self.listen_udp(place.address, exposure)?;
                Ok(BrokerAddress::Udp(TlsAddress { address, ..place.clone() }))
            }
        }
    }

    /// Gives the listeners' sockets to a user, before this process becomes that user.
    ///
    /// # Errors
    /// The kernel refuses, because only root may change the owner.
    pub fn change_owner(&self, user: u32, group: u32) -> Result<(), ServeError> {
        self.listeners.iter().try_for_each(|listener| listener.change_owner(user, group))?;
        Ok(())
    }

    /// Adds a listener of another transport.
    ///
    /// # Errors
    /// The kernel refuses to wait for the listener.
    pub fn add(&mut self, listener: Box<dyn TransportListener>) -> Result<(), ServeError> {
        let data = EventData::new_u64(LISTENER | self.listeners.len() as u64);
        epoll::add(&self.epoll, &*listener, data, EventFlags::IN)?;
        self.listeners.push(listener);
        Ok(())
    }
}
