//! Draws a report for each made-up situation into a directory, for inspection by eye: `cargo run -p
//! unisono-report --example situations -- DIR`.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let into = PathBuf::from(std::env::args().nth(1).ok_or("usage: situations DIR")?);
    for situation in synthetic::Situation::ALL {
        let name = format!("{situation:?}").to_lowercase();
        std::fs::create_dir_all(into.join(&name))?;
        let records = into.join(&name).join("records.jsonl");
        std::fs::write(&records, synthetic::text(situation))?;
        unisono_report::render(&records, &into.join(&name).join("report.html"))?;
    }
    Ok(())
}
