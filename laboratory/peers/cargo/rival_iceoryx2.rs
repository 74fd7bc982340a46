//! The ends for iceoryx2: events in shared memory without a broker. The subscriber spins, as in iceoryx2's
//! own benchmarks. A slow subscriber loses the oldest events.

mod rival;

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use rival::{Failed, Rival, STAMP, now, stamp};

/// The number of bytes of events that may wait at a subscriber. In containers, shared memory has only 64 MB.
const WAITING: usize = 8 << 20;
/// A subscriber spins for this time, in nanoseconds, between two readings of the clock.
const SPIN_NS: u64 = 1_000_000;

type IceoryxService = iceoryx2::service::port_factory::publish_subscribe::PortFactory<ipc::Service, [u8], ()>;

struct Iceoryx2;

/// A port with its service and node. The node must live as long as the port.
type IceoryxPort<P> = (P, IceoryxService, Node<ipc::Service>);

fn service(address: &str, bytes: usize) -> Result<(IceoryxService, Node<ipc::Service>), Failed> {
    set_log_level(LogLevel::Error);
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let service = node
        .service_builder(&ServiceName::new(address)?)
        .publish_subscribe::<[u8]>()
        .max_publishers(1)
        .max_subscribers(2)
        .history_size(0)
        .subscriber_max_buffer_size((WAITING / bytes).clamp(1, 64))
        .enable_safe_overflow(true)
        .open_or_create()?;
    Ok((service, node))
}

impl Rival for Iceoryx2 {
    type Publisher = IceoryxPort<Publisher<ipc::Service, [u8], ()>>;
    type Subscriber = IceoryxPort<Subscriber<ipc::Service, [u8], ()>>;

    fn publisher(address: &str, bytes: usize) -> Result<Self::Publisher, Failed> {
        let (service, node) = service(address, bytes)?;
        let publisher = service.publisher_builder().initial_max_slice_len(bytes).create()?;
        Ok((publisher, service, node))
    }

    fn subscriber(address: &str, bytes: usize) -> Result<Self::Subscriber, Failed> {
        let (service, node) = service(address, bytes)?;
        let subscriber = service.subscriber_builder().create()?;
        Ok((subscriber, service, node))
    }

    fn publish((publisher, _, _): &mut Self::Publisher, event: &[u8]) -> Result<(), Failed> {
        publisher.loan_slice_uninit(event.len())?.write_from_slice(event).send()?;
        Ok(())
    }

    fn receive((subscriber, _, _): &mut Self::Subscriber) -> Result<Option<(usize, [u8; STAMP])>, Failed> {
        let until = now() + SPIN_NS;
        loop {
            if let Some(event) = subscriber.receive()? {
                return Ok(Some((event.payload().len(), stamp(event.payload()))));
            }
            if now() > until {
                return Ok(None);
            }
            std::hint::spin_loop();
        }
    }

    fn close(_: Self::Publisher) -> Result<(), Failed> {
        Ok(())
    }
}

fn main() -> std::process::ExitCode {
    rival::run::<Iceoryx2>()
}
