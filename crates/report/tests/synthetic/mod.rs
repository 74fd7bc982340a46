//! Records in a study's format, for situations that a test cannot wait for: plain Linux in two modes; gangs
//! that win, lose or change nothing; variants skipped and failed; a study interrupted.
//!
//! The figures are made up after the shapes seen on a two-core machine; a report of them proves nothing.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use unisono_measure::record::{
    Better, Chart, ChartKind, Distribution, FORMAT, Figure, HostFacts, Line, Outcome, Paper, PaperPoint,
    PointsAre, Question, Reference, RunLine, Scale, StudyLine, Verdict,
};

/// The situation that the records describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Situation {
    /// Gangs win at fine grain, as on a quiet two-core machine.
    Win,
    /// Gangs lose everywhere.
    Lose,
    /// No difference.
    Same,
    /// The host cannot run gangs.
    Skipped,
    /// Stopped after two repetitions.
    Interrupted,
}

impl Situation {
    pub(crate) const ALL: [Situation; 5] =
        [Situation::Win, Situation::Lose, Situation::Same, Situation::Skipped, Situation::Interrupted];
}

/// A small generator of its own, so that a situation always gives the same bytes (splitmix64).
struct Dice(u64);

impl Dice {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a value around `value`, within `share` of it.
    fn about(&mut self, value: f64, share: f64) -> f64 {
        value * (1.0 + share * (self.unit() + self.unit() - 1.0))
    }
}

/// Collects lines.
struct Book {
    lines: Vec<Line>,
    dice: Dice,
    sequence: u32,
    situation: Situation,
}

impl Book {
    fn study(&mut self, study: StudyLine) {
        self.lines.push(Line::Study(Box::new(StudyLine { format: FORMAT.into(), ..study })));
    }

    fn repetitions(&self) -> u32 {
        if self.situation == Situation::Interrupted { 2 } else { 10 }
    }

    fn run(&mut self, study: &str, variant: &str, repetition: u32, parameters: Value, figures: Vec<Figure>) {
        let line = self.blank(study, variant, repetition, parameters);
        self.lines.push(Line::Run(Box::new(RunLine { figures, ..line })));
    }

    fn absent(&mut self, study: &str, variant: &str, outcome: Outcome, reason: &str) {
        let line = self.blank(study, variant, 0, json!({}));
        let line = RunLine { outcome, reason: Some(reason.into()), elapsed_s: 0.0, ..line };
        self.lines.push(Line::Run(Box::new(line)));
    }

    fn blank(&mut self, study: &str, variant: &str, repetition: u32, parameters: Value) -> RunLine {
        let sequence = self.sequence;
        self.sequence += 1;
        let parameters: BTreeMap<String, Value> =
            parameters.as_object().map(|map| map.clone().into_iter().collect()).unwrap_or_default();
        let load = if sequence % 29 == 7 { 0.21 } else { 0.004 };
        let host = HostFacts {
            kernel: "6.18.0".into(),
            cpu: "Example Processor 3000 @ 2.5 GHz".into(),
            cpus: 2,
            virtualization: Some("virtual machine".into()),
            root: true,
            foreign_load: Some(load),
            foreign_load_during: None,
            steal: Some(0.001),
            background: None,
        };
        RunLine {
            format: FORMAT.into(),
            study: study.into(),
            topic: "barrier".into(),
            variant: variant.into(),
            parameters,
            repetition,
            sequence,
            seed: 1000 + u64::from(sequence),
            outcome: Outcome::Measured,
            started: format!("2026-11-21T08:{:02}:{:02}Z", sequence / 60 % 60, sequence % 60),
            elapsed_s: 0.25,
            warnings: unisono_measure::noise::run_warnings(host.foreign_load, host.steal),
            host,
            commit: "0123456789abcdef".into(),
            ..RunLine::default()
        }
    }
}

fn one(name: &str, value: f64, unit: &str) -> Vec<Figure> {
    vec![Figure::new(name, value, unit)]
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

const VARIANTS: [(&str, &str); 5] = [
    ("linux", "plain Linux"),
    ("spread", "pinned threads"),
    ("gang", "gangs"),
    ("batch", "one after the other"),
    ("high", "App 2 at nice -20"),
];

/// Returns the records of a situation.
pub(crate) fn records(situation: Situation) -> Vec<Line> {
    let mut book = Book { lines: Vec::new(), dice: Dice(42), sequence: 0, situation };
    waiting(&mut book);
    barriers(&mut book);
    granularity(&mut book);
    imbalance(&mut book);
    several(&mut book);
    batch(&mut book);
    book.lines
}

/// Returns the records as a file's text.
pub(crate) fn text(situation: Situation) -> String {
    let line = |line: &Line| serde_json::to_string(line).expect("records serialize") + "\n";
    records(situation).iter().map(line).collect()
}

fn waiting(book: &mut Book) {
    book.study(StudyLine {
        study: "waiting".into(),
        topic: "barrier".into(),
        title: "What one hand-over costs".into(),
        question: "What does it cost to wait for another thread by spinning, yielding and blocking?".into(),
        method: "Two threads hand a word back and forth, pinned to one processor or to two.".into(),
        paper: Some(Paper {
            place: "section 3".into(),
            statement: "Blocking cost 7.4 us, spinning 40 ns.".into(),
            ..Paper::default()
        }),
        charts: vec![Chart {
            title: "A hand-over, by way of waiting".into(),
            kind: ChartKind::Strip,
            y: vec!["ns_per_hand_over".into()],
            y_label: Some("time a hand-over (ns)".into()),
            y_scale: Scale::Log,
            reference: Some(Reference { label: "the paper's 7.4 us to block".into(), value: 7400.0 }),
            ..Chart::default()
        }],
        order: 1,
        answers: Some(Question::Waiting),
        labels: labels(&[
            ("spin", "spinning"),
            ("yield", "yielding, one processor"),
            ("block-one", "blocking, one processor"),
            ("block-two", "blocking, two processors"),
            ("ns_per_hand_over", "time per hand-over"),
        ]),
        ..StudyLine::default()
    });
    let costs = [
        ("spin", 104.0, 0.05),
        ("yield", 900.0, 0.1),
        ("block-one", 4800.0, 0.1),
        ("block-two", 34_000.0, 0.4),
    ];
    for repetition in 0..book.repetitions() {
        for (variant, cost, scatter) in costs {
            let value = book.dice.about(cost, scatter);
            let distribution = Distribution {
                n: 10_000,
                min: value * 0.8,
                p25: value * 0.95,
                median: value,
                p75: value * 1.1,
                p99: value * 2.0,
                max: value * 9.0,
            };
            let figure =
                Figure { distribution: Some(distribution), ..Figure::new("ns_per_hand_over", value, "ns") };
            book.run("waiting", variant, repetition, json!({}), vec![figure]);
        }
    }
}

fn barriers(book: &mut Book) {
    let peers = [
        ("dissemination-spin", "dissemination, spin", 32.0),
        ("central-adaptive", "central, adaptive", 46.0),
        ("libomp", "LLVM libomp", 160.0),
        ("libgomp", "GNU libgomp", 235.0),
        ("cxx20", "C++20 std::barrier", 2300.0),
        ("pthread", "pthread_barrier", 11_000.0),
    ];
    book.study(StudyLine {
        study: "idle-barrier".into(),
        topic: "barrier".into(),
        title: "Barriers alone".into(),
        question: "How long does a barrier take when each thread has a core of its own?".into(),
        method:
            "Two threads, nothing else running; every variant once a repetition, in an order that changes."
                .into(),
        charts: vec![Chart {
            title: "Time a barrier, two threads, no busy loop".into(),
            kind: ChartKind::Strip,
            y: vec!["ns_per_barrier".into()],
            y_scale: Scale::Log,
            reference: Some(Reference { label: "budget 50 ns".into(), value: 50.0 }),
            ..Chart::default()
        }],
        verdicts: vec![
            Verdict {
                variant: "central-adaptive".into(),
                against: "libomp".into(),
                figure: "ns_per_barrier".into(),
                better: Better::Lower,
                sides: Some(["the adaptive central barrier", "LLVM libomp"].map(str::to_owned)),
                expected: Some(0.5),
                expected_from: Some("this project's budget".into()),
                ..Verdict::default()
            },
            Verdict {
                variant: "central-adaptive".into(),
                against: "dissemination-spin".into(),
                figure: "ns_per_barrier".into(),
                better: Better::Lower,
                sides: Some(["the adaptive central barrier", "pure spinning"].map(str::to_owned)),
                ..Verdict::default()
            },
        ],
        order: 2,
        labels: labels(&peers.map(|(name, label, _)| (name, label))),
        ..StudyLine::default()
    });
    for repetition in 0..book.repetitions() {
        for (variant, _, ns) in peers {
            let value = book.dice.about(ns, 0.12);
            book.run(
                "idle-barrier",
                variant,
                repetition,
                json!({"threads": 2}),
                one("ns_per_barrier", value, "ns"),
            );
        }
    }
    book.absent(
        "idle-barrier",
        "libomp-active",
        Outcome::Skipped,
        "clang is not installed; apt-get install clang libomp-dev",
    );
    book.absent(
        "idle-barrier",
        "rust-std",
        Outcome::Failed,
        "the program exited with signal 9 (killed) after 3.1 s",
    );
}

/// Returns the rate that plain Linux, pinned threads or gangs deliver at an interval, for two BARRIERs.
fn delivered(book: &mut Book, variant: &str, interval_us: f64) -> f64 {
    let ideal = 1e6 / (interval_us + 0.08);
    let gain = 1.0 + 1.5 * (-((interval_us.max(0.01).ln() - 10f64.ln()) / 1.2).powi(2)).exp();
    let gang = match book.situation {
        Situation::Lose => 0.8,
        Situation::Same => 1.0,
        _ => gain,
    };
    let share = match variant {
        "linux" if book.dice.unit() < 0.6 => return book.dice.about(37_000f64.min(ideal), 0.2),
        "linux" => 0.45,
        "gang" => gang / gain.max(1.0),
        _ => 1.0 / gain.max(1.0),
    };
    let share = if book.situation == Situation::Win { share } else { share * 0.4 };
    book.dice.about(ideal * share, 0.03)
}

fn granularity(book: &mut Book) {
    let point = |series: &str, x: f64, y: f64| PaperPoint { series: series.into(), x, y };
    book.study(StudyLine {
        study: "granularity".into(),
        topic: "gang".into(),
        title: "Two programs, finer and coarser".into(),
        question: "From which grain on do gangs stop paying?".into(),
        method: "Two BARRIER programs of two threads each share two cores; the first computes for the interval between barriers, the second not at all.".into(),
        condition: Some("fine-grained".into()),
        paper: Some(Paper {
            place: "ETH TR 745, section 3.2, Figure 2 (upper)".into(),
            statement: "The gain begins to shrink at 40 us and is negligible at the length of a time slice, 15 ms.".into(),
            points: vec![
                point("gang", 0.0, 1.0), point("gang", 40.0, 1.0), point("gang", 1000.0, 0.4), point("gang", 15_000.0, 0.1),
                point("linux", 0.0, 0.2), point("linux", 40.0, 0.22), point("linux", 1000.0, 0.2), point("linux", 15_000.0, 0.1),
            ],
            points_note: Some("Not measured values: the shape as the text describes it; heights are only relative.".into()),
            points_are: PointsAre::Shape,
        }),
        charts: vec![Chart {
            title: "Barriers a second of the first program".into(),
            kind: ChartKind::Line,
            x: Some("interval_us".into()),
            x_label: Some("interval between barriers (us)".into()),
            x_scale: Scale::Log,
            y: vec!["barriers_per_s".into()],
            y_label: Some("barriers per second (1/s)".into()),
            y_scale: Scale::Log,
            paper: true,
            ..Chart::default()
        }],
        verdicts: vec![
            Verdict {
                variant: "gang".into(),
                against: "spread".into(),
                figure: "barriers_per_s".into(),
                by: Some("interval_us".into()),
                sides: Some(["gangs", "pinned threads"].map(str::to_owned)),
                answers: Some(Question::Ganging),
                ..Verdict::default()
            },
            Verdict {
                variant: "spread".into(),
                against: "linux".into(),
                figure: "barriers_per_s".into(),
                by: Some("interval_us".into()),
                sides: Some(["pinned threads", "plain Linux"].map(str::to_owned)),
                answers: Some(Question::Unstacking),
                ..Verdict::default()
            },
        ],
        order: 3,
        labels: labels(&VARIANTS),
        ..StudyLine::default()
    });
    for interval in [0.0, 1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0] {
        for repetition in 0..book.repetitions() {
            for variant in ["linux", "spread", "gang"] {
                if variant == "gang" && book.situation == Situation::Skipped {
                    continue;
                }
                let value = delivered(book, variant, interval);
                let parameters = json!({"interval_us": interval, "threads": 2});
                book.run("granularity", variant, repetition, parameters, one("barriers_per_s", value, "1/s"));
            }
        }
    }
    if book.situation == Situation::Skipped {
        book.absent(
            "granularity",
            "gang",
            Outcome::Skipped,
            "no writable cgroup with a freezer; run as root",
        );
    }
    if book.situation == Situation::Interrupted {
        book.absent("granularity", "gang", Outcome::Interrupted, "stopped by Ctrl-C");
    }
}

fn imbalance(book: &mut Book) {
    book.study(StudyLine {
        study: "imbalance".into(),
        topic: "gang".into(),
        title: "Two programs, balanced or not".into(),
        question: "How uneven may the threads be before gangs waste more than they gain?".into(),
        method: "As before, but each thread computes for a random time up to the variance.".into(),
        condition: Some("balanced".into()),
        charts: vec![Chart {
            title: "Both programs together".into(),
            kind: ChartKind::Line,
            x: Some("variance_us".into()),
            x_scale: Scale::Log,
            y: vec!["barriers_per_s".into()],
            y_scale: Scale::Log,
            ..Chart::default()
        }],
        verdicts: vec![Verdict {
            variant: "gang".into(),
            against: "spread".into(),
            figure: "barriers_per_s".into(),
            by: Some("variance_us".into()),
            sides: Some(["gangs", "pinned threads"].map(str::to_owned)),
            ..Verdict::default()
        }],
        order: 4,
        labels: labels(&VARIANTS),
        ..StudyLine::default()
    });
    for variance in [10.0, 100.0, 1000.0, 10_000.0] {
        for repetition in 0..book.repetitions() {
            let spread = book.dice.about(1e6 / (variance * 0.7), 0.02);
            book.run(
                "imbalance",
                "spread",
                repetition,
                json!({"variance_us": variance}),
                one("barriers_per_s", spread, "1/s"),
            );
            let gain = match (book.situation, variance) {
                (Situation::Skipped, _) => continue,
                (Situation::Win, v) if v < 50.0 => 1.6,
                (Situation::Win, v) if v > 500.0 => 0.85,
                (Situation::Lose, _) => 0.7,
                _ => 1.0,
            };
            let value = book.dice.about(spread * gain, 0.01);
            book.run(
                "imbalance",
                "gang",
                repetition,
                json!({"variance_us": variance}),
                one("barriers_per_s", value, "1/s"),
            );
        }
    }
    if book.situation == Situation::Skipped {
        book.absent("imbalance", "gang", Outcome::Skipped, "no writable cgroup with a freezer; run as root");
    }
}

fn several(book: &mut Book) {
    book.study(StudyLine {
        study: "several".into(),
        topic: "gang".into(),
        title: "Two programs that both matter".into(),
        question: "Is it enough to give one of them priority?".into(),
        method: "Two BARRIERs without interval; ten runs each.".into(),
        condition: Some("several-important".into()),
        charts: vec![Chart {
            title: "Each program and both together".into(),
            kind: ChartKind::Bars,
            y: vec!["app1_barriers_per_s".into(), "app2_barriers_per_s".into(), "barriers_per_s".into()],
            y_label: Some("barriers per second".into()),
            variants: ["linux", "high", "spread", "gang"].map(str::to_owned).to_vec(),
            ..Chart::default()
        }],
        verdicts: vec![Verdict {
            variant: "gang".into(),
            against: "high".into(),
            figure: "app1_barriers_per_s".into(),
            sides: Some(["gangs", "priority for App 2"].map(str::to_owned)),
            ..Verdict::default()
        }],
        order: 5,
        labels: labels(
            &[
                VARIANTS.as_slice(),
                &[
                    ("app1_barriers_per_s", "App 1"),
                    ("app2_barriers_per_s", "App 2"),
                    ("barriers_per_s", "barriers of both"),
                ],
            ]
            .concat(),
        ),
        ..StudyLine::default()
    });
    for repetition in 0..book.repetitions() {
        for (variant, first, second) in [
            ("linux", 1.1e6, 0.9e6),
            ("high", 0.2e6, 12.3e6),
            ("spread", 6.1e6, 6.2e6),
            ("gang", 6.1e6, 6.2e6),
        ] {
            if variant == "gang" && book.situation == Situation::Skipped {
                continue;
            }
            let mode = if variant == "linux" && book.dice.unit() < 0.5 { 0.02 } else { 1.0 };
            let (a, b) = (book.dice.about(first * mode, 0.1), book.dice.about(second * mode, 0.1));
            let figures = [("app1_barriers_per_s", a), ("app2_barriers_per_s", b), ("barriers_per_s", a + b)];
            let figures = figures.iter().flat_map(|(name, value)| one(name, *value, "1/s")).collect();
            book.run("several", variant, repetition, json!({}), figures);
        }
    }
    if book.situation == Situation::Skipped {
        book.absent("several", "gang", Outcome::Skipped, "no writable cgroup with a freezer; run as root");
    }
}

fn batch(book: &mut Book) {
    book.study(StudyLine {
        study: "batch".into(),
        topic: "gang".into(),
        title: "One after the other".into(),
        question: "What does sharing cost against running one job after the other?".into(),
        method: "Five seconds each in turn, or ten seconds together.".into(),
        condition: Some("latency-sensitive".into()),
        charts: vec![Chart {
            title: "Barriers a second of both programs".into(),
            kind: ChartKind::Strip,
            y: vec!["barriers_per_s".into()],
            ..Chart::default()
        }],
        verdicts: vec![Verdict {
            variant: "gang".into(),
            against: "batch".into(),
            figure: "barriers_per_s".into(),
            sides: Some(["gangs", "one after the other"].map(str::to_owned)),
            expected: Some(0.985),
            expected_from: Some("the paper, section 3.4: batch did 1.5 % more".into()),
            ..Verdict::default()
        }],
        order: 6,
        labels: labels(&VARIANTS),
        ..StudyLine::default()
    });
    for repetition in 0..book.repetitions() {
        let value = book.dice.about(12.3e6, 0.01);
        book.run("batch", "batch", repetition, json!({}), one("barriers_per_s", value, "1/s"));
        if book.situation != Situation::Skipped {
            let value = book.dice.about(value * 0.991, 0.004);
            book.run("batch", "gang", repetition, json!({}), one("barriers_per_s", value, "1/s"));
        }
    }
}
