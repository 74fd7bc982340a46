//! A file download (section 3.4, Figure 6): bytes received over time.

use super::ServiceScene;
use std::io;
use unisono_linux::{clock, timer};
use unisono_measure::record::Figure;
use unisono_workload::conversation::{Conversations, NextMessage};

pub(super) fn serve(scene: &ServiceScene, conversations: Conversations) -> io::Result<Vec<Figure>> {
    let block = vec![0x5a; scene.ends.message_bytes];
    for mut client in conversations {
        timer::sleep_until(scene.ends.from);
        let mut left = scene.file_bytes;
        while left > 0 {
            let now = left.min(block.len() as u64) as usize;
            client.send(&block[..now])?;
            left -= now as u64;
        }
        // waits until the client leaves, which it does after it has received everything, so that no data in
        // flight are cut off
        client.receive(&mut Vec::new(), scene.ends.until)?;
    }
    Ok(Vec::new())
}

/// The number of parts of the file whose arrival times form the curve; each quarter of the file ends with a
/// part.
const PARTS: u64 = 40;

pub(super) fn fetch(scene: &ServiceScene, conversations: Conversations) -> io::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut block = Vec::new();
    for mut server in conversations {
        let (mut received, mut part) = (0, 1);
        let mut curve = vec![(0.0, 0.0)];
        while received < scene.file_bytes {
            match server.receive(&mut block, scene.ends.until)? {
                NextMessage::Message => received += block.len() as u64,
                NextMessage::Nothing | NextMessage::Gone => {
                    return Err(io::Error::other(format!(
                        "{received} of {} bytes arrived",
                        scene.file_bytes
                    )));
                }
            }
            while received >= scene.file_bytes * part / PARTS && part <= PARTS {
                let seconds = (clock::now() - scene.ends.from).as_secs_f64();
                curve.push((seconds, received as f64 / 1e6));
                if part % (PARTS / 4) == 0 {
                    let name = format!("seconds_to_{}_percent", 100 * part / PARTS);
                    figures.push(Figure::new(name, seconds, "s"));
                }
                if part == PARTS {
                    let megabits = scene.file_bytes as f64 * 8.0 / 1e6;
                    figures.push(Figure::new("download_mbit", megabits / seconds, "Mbit/s"));
                }
                part += 1;
            }
        }
        figures.push(Figure::new("received_mb", received as f64 / 1e6, "MB").with_curve("elapsed_s", curve));
    }
    Ok(figures)
}
