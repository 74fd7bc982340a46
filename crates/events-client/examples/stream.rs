//! Sends 25 frames a second through a broker, each with a deadline, and reconnects when the broker dies.
//!
//! ```sh
//! unisono queue broker examples/policies/three-classes.toml --listen /tmp/broker &
//! cargo run --release -p unisono-events-client --example stream -- /tmp/broker video 192.0.2.7:5004 100
//! ```
//! Arguments: the broker's socket, a class of its policy, the destination of the frames (UDP), the number of
//! frames.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;
use unisono_events_client::{Client, Destination, Duration, Error, PathHandle, now};

const PERIOD: Duration = Duration::from_millis(40);
const FRAME: [u8; 8_000] = [0; 8_000];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next =
        |what| arguments.next().ok_or(format!("{what} is missing: SOCKET CLASS ADDRESS:PORT FRAMES"));
    let (socket, class) = (next("SOCKET")?, next("CLASS")?);
    let destination = Destination::udp(next("ADDRESS:PORT")?.parse()?);
    let frames: u32 = next("FRAMES")?.parse()?;

    let (mut broker, mut path) = join(&socket, &class, &destination)?;
    for _ in 0..frames {
        let deadline = now() + PERIOD;
        // waits while the class has used up its share: too many of its bytes are in transit
        if let Err(Error::Broken(why)) = broker.send(path, &FRAME, deadline) {
            eprintln!("the broker is gone ({why}); this frame is lost");
            (broker, path) = again(&socket, &class, &destination)?;
        }
        std::thread::sleep(PERIOD.into());
    }
    broker.flush_path(path)?; // all frames have left
    for class in broker.statistics()?.classes {
        writeln!(std::io::stdout(), "{}: {} messages have left", class.name, class.messages)?;
    }
    Ok(())
}

fn join(socket: &str, class: &str, destination: &Destination) -> Result<(Client, PathHandle), Error> {
    let mut broker = Client::connect_unix(Path::new(socket))?;
    let path = broker.open(class, destination.clone())?;
    Ok((broker, path))
}

/// Reconnects when a broker listens again. Tries for at most half a minute.
fn again(socket: &str, class: &str, destination: &Destination) -> Result<(Client, PathHandle), Error> {
    for _ in 0..300 {
        match join(socket, class, destination) {
            Err(Error::Nobody { .. } | Error::Broken(_)) => {
                std::thread::sleep(Duration::from_millis(100).into());
            }
            other => return other,
        }
    }
    join(socket, class, destination)
}
