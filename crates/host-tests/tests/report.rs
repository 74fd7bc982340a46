//! Tests the report in a real browser, at the width of a phone, a tablet and a desktop, in light and dark
//! colours.
//!
//! Headless Chromium opens the page in a frame of that width. A script in the page around the frame looks for
//! labels that overlap, for text that is too small, too pale or off the page, and for network requests. The
//! network is not used: Chromium is told to resolve no host name.

#[path = "../../report/tests/synthetic/mod.rs"]
#[allow(dead_code, reason = "the report's own tests use all of it")]
mod synthetic;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use synthetic::Situation;
use unisono_host_tests::{Skipped, TestOutcome, host_tests, one_in};

const PROBE: &str = include_str!("browser/probe.js");
const WIDTHS: [u32; 3] = [360, 768, 1280];

/// Returns the first browser of the Chromium family on `PATH`.
pub(crate) fn browser() -> Result<PathBuf, Skipped> {
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
    found
        .into_iter()
        .find(|file| file.is_file())
        .ok_or_else(|| Skipped::because("no chromium on PATH; apt-get install chromium"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Light {
    Day,
    Night,
}

/// What the browser printed: the final page, and its log.
struct Opened {
    page: String,
    log: String,
}

fn open(file: &Path, light: Light) -> Result<Opened, Skipped> {
    let profile = tempfile::tempdir().expect("a temporary directory");
    let mut chromium = Command::new(browser()?);
    chromium
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-extensions", "--disable-breakpad", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1400,2000", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", profile.path().display()));
    if light == Light::Night {
        chromium.args(["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]);
    }
    let output =
        chromium.arg("--dump-dom").arg(format!("file://{}", file.display())).output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "the browser failed: {}", text(&output.stderr));
    Ok(Opened { page: text(&output.stdout), log: text(&output.stderr) })
}

fn attribute(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;")
}

/// Opens a page in a frame, and returns the probe's findings.
fn probe(page: &str, width: u32, light: Light) -> Result<Value, Skipped> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let around = format!(
        "<!DOCTYPE html><meta charset=utf-8><body><iframe id=report width={width} height=4000 style=\"border:0\" srcdoc=\"{}\"></iframe><script>{PROBE}</script>",
        attribute(page)
    );
    let file = directory.path().join("around.html");
    std::fs::write(&file, around).expect("a file");
    let opened = open(&file, light)?;
    let answer =
        opened.page.split_once("<pre id=\"answer\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let answer = answer.unwrap_or_else(|| panic!("no answer from the probe: {}", opened.log)).0;
    let answer = answer.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Ok(serde_json::from_str(&answer).expect("the answer is JSON"))
}

fn readable(situation: Situation) -> TestOutcome {
    browser()?;
    let page = unisono_report::html(&synthetic::records(situation));
    for (at, width) in WIDTHS.into_iter().enumerate() {
        // at each width in light or dark colours; in long tests in both
        for light in [Light::Day, Light::Night].into_iter().skip(at % one_in(2)).step_by(one_in(2)) {
            let answer = probe(&page, width, light)?;
            assert_eq!(answer["dark"], light == Light::Night, "the browser took no notice of the light");
            assert!(answer["charts"].as_u64() > Some(4) && answer["texts"].as_u64() > Some(100), "{answer}");
            let found = answer["found"].as_array().expect("a list");
            let list: Vec<&str> = found.iter().filter_map(Value::as_str).collect();
            assert!(list.is_empty(), "{situation:?} at {width} px:\n{}", list.join("\n"));
        }
    }
    Ok(())
}

fn a_report_of_gains_is_readable_at_every_width_by_day_and_night() -> TestOutcome {
    readable(Situation::Win)
}

fn a_report_with_skipped_variants_is_readable_at_every_width_by_day_and_night() -> TestOutcome {
    readable(Situation::Skipped)
}

fn an_interrupted_report_is_readable_at_every_width_by_day_and_night() -> TestOutcome {
    readable(Situation::Interrupted)
}

/// The example's records have every topic of the default study.
fn a_page_of_all_topics_has_at_most_twelve_screens_before_anything_is_unfolded() -> TestOutcome {
    browser()?;
    const SCREEN: u64 = 900;
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/example-report/records.jsonl");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let html = directory.path().join("report.html");
    unisono_report::render(&records, &html).expect("the example's records");
    let answer = probe(&std::fs::read_to_string(&html).expect("a page"), 1280, Light::Day)?;
    let height = answer["height"].as_u64().expect("a number");
    assert!(height > 4 * SCREEN, "the page of {height} px was not drawn");
    assert!(height <= 12 * SCREEN, "{:.1} screens of {SCREEN} px", height as f64 / SCREEN as f64);
    Ok(())
}

fn the_page_opens_without_a_message_or_a_request() -> TestOutcome {
    browser()?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("report.html");
    std::fs::write(&file, unisono_report::html(&synthetic::records(Situation::Win))).expect("a file");
    let opened = open(&file, Light::Day)?;
    assert!(opened.page.contains("</footer>"), "the page did not load");
    let said: Vec<&str> = opened.log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(said.is_empty(), "{}", said.join("\n"));
    Ok(())
}

fn the_probe_finds_what_it_looks_for() -> TestOutcome {
    browser()?;
    let bad = concat!(
        "<!DOCTYPE html><body style='background:#fff'><p style='color:#aaa'>pale</p>",
        "<svg class='chart' viewBox='0 0 700 40' width='350'><title>bad</title>",
        "<text x='10' y='20' font-size='12'>first label</text><text x='30' y='22' font-size='12'>second</text></svg>",
        "<div style='width:500px'>wide</div>"
    );
    let answer = probe(bad, 360, Light::Day)?["found"].to_string();
    for fault in ["too wide", "contrast", "lies on", "px high"] {
        assert!(answer.contains(fault), "{fault} was not found: {answer}");
    }
    Ok(())
}

host_tests![needs Nothing;
    the_probe_finds_what_it_looks_for within 180,
    the_page_opens_without_a_message_or_a_request within 180,
    a_page_of_all_topics_has_at_most_twelve_screens_before_anything_is_unfolded within 180,
    a_report_of_gains_is_readable_at_every_width_by_day_and_night within 300,
    a_report_with_skipped_variants_is_readable_at_every_width_by_day_and_night within 300,
    an_interrupted_report_is_readable_at_every_width_by_day_and_night within 300,
];
