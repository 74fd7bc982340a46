//! The daemon's metrics in the OpenMetrics format.
//!
//! Names of gangs contain only characters that need no escape in a label. Counters begin when a gang is
//! added. Times are in seconds. Reference: the OpenMetrics specification 1.0.

use super::request::{GangState, GangView, ServiceView};
use std::fmt::Write;

/// Returns the text of all metrics, with its end mark.
pub fn openmetrics(view: &ServiceView) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, what: &str, samples: Vec<(String, f64)>| {
        let end = if kind == "counter" { "_total" } else { "" };
        let _ = writeln!(text, "# TYPE unisono_gang_{name} {kind}");
        if let Some(unit) = name.rsplit('_').next().filter(|unit| *unit == "seconds") {
            let _ = writeln!(text, "# UNIT unisono_gang_{name} {unit}");
        }
        let _ = writeln!(text, "# HELP unisono_gang_{name} {what}");
        for (labels, value) in samples {
            let _ = writeln!(text, "unisono_gang_{name}{end}{labels} {value}");
        }
    };
    let single = |value: f64| vec![(String::new(), value)];
    let each = |of: fn(&GangView) -> Option<f64>| {
        let sample =
            |gang: &GangView| Some((format!("{{gang=\"{}\",user=\"{}\"}}", gang.name, gang.user), of(gang)?));
        view.gangs.iter().filter_map(sample).collect::<Vec<_>>()
    };
    family("gangs", "gauge", "Gangs that the daemon has", single(view.gangs.len() as f64));
    family("slice_seconds", "gauge", "Length of a turn of weight 1", single(view.slice_ms / 1e3));
    family(
        "switching_ratio",
        "gauge",
        "Part of the cores' time that switching takes",
        single(view.switching_percent / 100.0),
    );
    family(
        "lengthened",
        "gauge",
        "By how much turns are longer than asked for",
        single(f64::from(view.lengthened)),
    );
    family("switches", "counter", "How often the running gang changed", single(view.switches as f64));
    family(
        "weight",
        "gauge",
        "Slices in a turn of the gang",
        each(|gang| Some(f64::from(gang.weight))),
    );
    family("threads", "gauge", "Threads of the gang", each(|gang| Some(gang.threads as f64)));
    family(
        "width",
        "gauge",
        "Cores that the gang can use at once",
        each(|gang| Some(gang.width as f64)),
    );
    let resting = |gang: &GangView| Some(f64::from(u8::from(gang.state == GangState::Resting)));
    family("resting", "gauge", "Whether the gang takes no turns because it blocks", each(resting));
    family("turns", "counter", "Turns of the gang", each(|gang| Some(gang.turns as f64)));
    family("turn_time_seconds", "counter", "Time of the gang's turns", each(|gang| Some(gang.had_s)));
    family("cpu_seconds", "counter", "Processor time of the gang", each(|gang| gang.cpu_s));
    text + "# EOF\n"
}

#[cfg(test)]
mod tests {
    use super::super::request::{GangName, GangTarget};
    use super::*;

    #[test]
    fn each_family_is_named_once_and_each_gang_has_its_line() {
        let gang = |name: &str, cpu_s| GangView {
            name: GangName::like(name),
            target: GangTarget::Process { number: 7, started: 9 },
            user: 5,
            weight: 2,
            state: GangState::Resting,
            width: 1,
            threads: 3,
            turns: 4,
            had_s: 0.5,
            cpu_s,
        };
        let gangs = vec![gang("a", Some(0.25)), gang("b", None)];
        let (switching_percent, lengthened) = (0.5, 3);
        let view = ServiceView {
            process: 1,
            slice_ms: 20.0,
            cores: 2,
            switches: 8,
            switching_percent,
            lengthened,
            gangs,
        };
        let text = openmetrics(&view);
        for line in [
            "unisono_gang_gangs 2",
            "unisono_gang_slice_seconds 0.02",
            "# UNIT unisono_gang_slice_seconds seconds",
            "unisono_gang_switches_total 8",
            "unisono_gang_switching_ratio 0.005",
            "unisono_gang_lengthened 3",
            "unisono_gang_resting{gang=\"a\",user=\"5\"} 1",
            "unisono_gang_turn_time_seconds_total{gang=\"b\",user=\"5\"} 0.5",
            "unisono_gang_cpu_seconds_total{gang=\"a\",user=\"5\"} 0.25",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("cpu_seconds_total{gang=\"b\""), "what is not known is left out");
        let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let names: std::collections::BTreeSet<&str> = types.iter().copied().collect();
        assert_eq!(types.len(), names.len());
        assert!(text.ends_with("# EOF\n"));
    }
}
