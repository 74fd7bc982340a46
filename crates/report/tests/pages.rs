//! Tests of whole pages: their statements in each situation, and that no record can break them.

mod synthetic;

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use synthetic::Situation;
use unisono_measure::record::{
    Better, Chart, ChartKind, FORMAT, Figure, HostFacts, Line, Outcome, Paper, PaperPoint, PointsAre,
    Question, Reference, RunLine, Scale, StudyLine, Verdict,
};

fn page(situation: Situation) -> String {
    unisono_report::html(&synthetic::records(situation))
}

/// Returns the text of the first screen and of the answer about gangs, without markup.
fn opening(situation: Situation) -> String {
    opening_of(&synthetic::records(situation))
}

fn opening_of(records: &[Line]) -> String {
    let page = unisono_report::html(records);
    let body = page.split_once("<body>").expect("a body").1;
    let first = body.split_once("<nav").expect("links to the topics").0;
    let gangs = body.split_once("id=\"topic-gang\"").map_or("", |(_, gangs)| gangs);
    let gangs = gangs.split_once("<section class=\"study\"").map_or(gangs, |(answer, _)| answer);
    let summary = format!("{first}<p{gangs}");
    let mut text = String::new();
    let mut inside = false;
    for c in summary.chars() {
        match c {
            '<' => inside = true,
            '>' => inside = false,
            c if !inside => text.push(c),
            _ => {}
        }
    }
    let text = text.replace('\u{a0}', " ");
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_opening_says_for_whom_gangs_win() {
    insta::assert_snapshot!(opening(Situation::Win));
}

#[test]
fn the_opening_says_that_gangs_lose() {
    insta::assert_snapshot!(opening(Situation::Lose));
}

#[test]
fn the_opening_says_that_there_is_no_difference() {
    insta::assert_snapshot!(opening(Situation::Same));
}

#[test]
fn the_opening_says_that_gangs_could_not_be_measured_and_why() {
    insta::assert_snapshot!(opening(Situation::Skipped));
}

#[test]
fn the_opening_claims_nothing_after_two_repetitions() {
    insta::assert_snapshot!(opening(Situation::Interrupted));
}

#[test]
fn the_opening_says_no_only_where_most_comparisons_are_decided() {
    let mut records = synthetic::records(Situation::Lose);
    assert!(opening_of(&records).contains("No: gangs were never better than pinned threads"));
    let is_kept = |line: &Line| match line {
        Line::Run(run) => run.repetition < 2 || run.study == "imbalance",
        Line::Study(_) => true,
    };
    records.retain(is_kept);
    let opening = opening_of(&records);
    assert!(opening.contains("Not decided for most"), "{opening}");
    assert!(opening.contains("comparisons could be decided"), "{opening}");
    assert!(!opening.contains("No: gangs"), "{opening}");
}

#[test]
fn the_page_is_one_file_that_needs_nothing_else() {
    for situation in Situation::ALL {
        let page = page(situation);
        for outside in
            ["<script", "http:", "https:", "url(", " src=", "@import", "<object", "<iframe", "onload"]
        {
            assert!(!page.contains(outside), "{situation:?}: {outside}");
        }
    }
}

#[test]
fn every_drawing_has_a_title_a_description_and_an_id_of_its_own() {
    let page = page(Situation::Win);
    // the bars of the first screen have their names and values beside them
    let bars = page.matches(" aria-hidden=\"true\" class=\"bar ").count();
    let marks = page.matches("<svg class=\"marks\"").count();
    let drawings = page.matches("<svg").count() - bars - marks;
    assert_eq!(marks, 1, "the shapes of markers");
    assert!(bars >= 2, "{bars}");
    assert!(drawings >= 12, "{drawings}");
    assert_eq!(page.matches(" aria-labelledby=").count(), drawings);
    // if a chart is drawn twice, the phone's drawing has the title, and the wide drawing refers to it
    let wide = page.matches("<svg class=\"chart wide\"").count();
    assert_eq!(page.matches("<desc id=").count(), drawings - wide);
    assert_eq!(page.matches("<svg class=\"chart phone\"").count(), wide);
    let named = page.split(" href=\"#_").skip(1).filter_map(|rest| rest.split_once('"'));
    for (name, _) in named {
        assert!(page.contains(&format!(" id=\"_{name}\"")), "no marker _{name}");
    }
    let mut ids: Vec<&str> =
        page.split(" id=\"").skip(1).filter_map(|rest| rest.split_once('"').map(|(id, _)| id)).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id occurs twice");
}

#[test]
fn the_same_records_give_the_same_page() {
    assert_eq!(page(Situation::Win), page(Situation::Win));
}

#[test]
fn a_page_is_written_beside_its_records_and_summed_up() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (records, html) = (directory.path().join("records.jsonl"), directory.path().join("report.html"));
    let text = synthetic::text(Situation::Skipped);
    std::fs::write(&records, &text[..text.len() - 40]).expect("a file");
    let summary = unisono_report::render(&records, &html).expect("a report");
    assert_eq!(summary.cut_off_line, Some(text.lines().count()));
    assert!(summary.skipped > 0 && summary.failed > 0 && summary.measured > 100);
    let page = std::fs::read_to_string(&html).expect("a page");
    assert!(page.contains("in the middle of line"));
    assert_eq!(
        std::fs::read_dir(directory.path()).expect("a directory").count(),
        2,
        "no half-written file"
    );
}

/// Compares the example report with a new page. After an intended change, run `unisono report
/// docs/example-report`.
#[test]
fn the_example_report_is_the_page_of_its_records_and_stays_small() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/example-report");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let drawn = directory.path().join("report.html");
    unisono_report::render(&folder.join("records.jsonl"), &drawn).expect("a report");
    let page = |path: &Path| std::fs::read_to_string(path).expect("a page");
    assert!(page(&drawn) == page(&folder.join("report.html")), "draw the example report again");
    let files = std::fs::read_dir(&folder).expect("a folder").map(|file| file?.metadata());
    let bytes: u64 = files.map(|file| file.expect("a file").len()).sum();
    assert!(bytes < 4_000_000, "{bytes} bytes");
}

/// Generates text that would do harm if it reached the page unescaped, and plain text.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("<script>alert(1)</script>".to_owned()),
        Just("\"><img src=x onerror=alert(1)>".to_owned()),
        Just("'/*--></style></svg><b>".to_owned()),
        Just("&lt;already&amp;".to_owned()),
        Just("gang".to_owned()),
        Just("spread".to_owned()),
        Just("interval_us".to_owned()),
        Just(String::new()),
        "\\PC{0,40}",
        any::<String>(),
    ]
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        Just(0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::MAX),
        Just(5e-324),
        -10f64..1e7,
    ]
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        number().prop_map(|v| serde_json::json!(v)),
        hostile().prop_map(serde_json::Value::from),
        Just(serde_json::Value::Null),
        Just(serde_json::json!([1, {"<b>": "</b>"}])),
    ]
}

fn parameters() -> impl Strategy<Value = BTreeMap<String, serde_json::Value>> {
    proptest::collection::btree_map(hostile(), value(), 0..3)
}

fn chart() -> impl Strategy<Value = Chart> {
    let kind = prop_oneof![
        Just(ChartKind::Line),
        Just(ChartKind::Strip),
        Just(ChartKind::Bars),
        Just(ChartKind::Map)
    ];
    let scale = || prop_oneof![Just(Scale::Linear), Just(Scale::Log)];
    (
        (hostile(), kind, proptest::option::of(hostile()), scale(), scale(), any::<bool>()),
        proptest::collection::vec(hostile(), 0..3),
        proptest::option::of((hostile(), number())),
        proptest::collection::vec(hostile(), 0..3),
        proptest::option::of(hostile()),
    )
        .prop_map(|((title, kind, x, x_scale, y_scale, paper), y, reference, variants, y_label)| Chart {
            title,
            kind,
            x_label: x.clone(),
            x,
            x_scale,
            y,
            y_label,
            y_scale,
            variants,
            reference: reference.map(|(label, value)| Reference { label, value }),
            paper,
            ..Chart::default()
        })
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let answers = prop_oneof![Just(None), Just(Some(Question::Ganging)), Just(Some(Question::Unstacking))];
    (
        [hostile(), hostile(), hostile(), hostile(), hostile(), hostile(), hostile()],
        proptest::option::of(hostile()),
        proptest::option::of(number()),
        any::<bool>(),
        answers,
        parameters(),
    )
        .prop_map(
            |([variant, against, figure, words, ours, theirs, more], by, expected, lower, answers, only)| {
                Verdict {
                    words,
                    sides: lower.then_some([ours, theirs]),
                    circumstance: lower.then_some(more),
                    variant,
                    against,
                    figure,
                    by,
                    expected,
                    better: if lower { Better::Lower } else { Better::Higher },
                    answers,
                    only,
                    ..Verdict::default()
                }
            },
        )
}

fn study() -> impl Strategy<Value = Line> {
    let points_are = prop_oneof![Just(PointsAre::Shape), Just(PointsAre::Ratios), Just(PointsAre::Values)];
    (
        [hostile(), hostile(), hostile(), hostile(), hostile()],
        proptest::option::of(prop_oneof![Just("balanced".to_owned()), hostile()]),
        proptest::collection::vec(chart(), 0..3),
        proptest::collection::vec(verdict(), 0..3),
        proptest::collection::vec((hostile(), number(), number()), 0..4),
        points_are,
        (any::<bool>(), proptest::collection::btree_map(hostile(), hostile(), 0..3)),
    )
        .prop_map(
            |(
                [study, title, question, method, said],
                condition,
                charts,
                verdicts,
                points,
                points_are,
                (waiting, labels),
            )| {
                let points = points.into_iter().map(|(series, x, y)| PaperPoint { series, x, y }).collect();
                Line::Study(Box::new(StudyLine {
                    format: FORMAT.into(),
                    study,
                    title,
                    question,
                    method,
                    condition,
                    paper: Some(Paper {
                        place: said.clone(),
                        statement: said.clone(),
                        points,
                        points_note: Some(said),
                        points_are,
                    }),
                    charts,
                    verdicts,
                    answers: waiting.then_some(Question::Waiting),
                    labels,
                    ..StudyLine::default()
                }))
            },
        )
}

fn run() -> impl Strategy<Value = Line> {
    let outcome = prop_oneof![
        5 => Just(Outcome::Measured),
        1 => Just(Outcome::Disturbed),
        1 => Just(Outcome::Skipped),
        1 => Just(Outcome::Failed),
        1 => Just(Outcome::Interrupted),
    ];
    (
        [hostile(), hostile(), hostile(), hostile(), hostile()],
        parameters(),
        outcome,
        proptest::collection::vec((hostile(), number(), hostile()), 0..3),
        (any::<u32>(), 0u32..4, number()),
        proptest::collection::vec(hostile(), 0..2),
    )
        .prop_map(
            |(
                [study, variant, reason, cpu, commit],
                parameters,
                outcome,
                figures,
                (sequence, repetition, seconds),
                warnings,
            )| {
                let figures =
                    figures.into_iter().map(|(name, value, unit)| Figure::new(name, value, &unit)).collect();
                Line::Run(Box::new(RunLine {
                    format: FORMAT.into(),
                    study,
                    variant,
                    reason: Some(reason),
                    parameters,
                    outcome,
                    figures,
                    sequence,
                    repetition,
                    elapsed_s: seconds,
                    started: commit.clone(),
                    host: HostFacts {
                        kernel: cpu.clone(),
                        virtualization: Some(cpu.clone()),
                        cpu,
                        ..HostFacts::default()
                    },
                    commit,
                    warnings,
                    ..RunLine::default()
                }))
            },
        )
}

/// Whether this crate uses each tag of the page, and each tag is closed.
fn check_markup(page: &str) -> Result<(), TestCaseError> {
    const KNOWN: [&str; 56] = [
        "html",
        "head",
        "meta",
        "link",
        "title",
        "style",
        "body",
        "main",
        "header",
        "p",
        "h1",
        "h2",
        "h3",
        "h4",
        "dl",
        "div",
        "dt",
        "dd",
        "section",
        "ul",
        "ol",
        "li",
        "span",
        "a",
        "b",
        "i",
        "small",
        "nav",
        "cite",
        "code",
        "em",
        "figure",
        "figcaption",
        "svg",
        "desc",
        "line",
        "rect",
        "circle",
        "path",
        "use",
        "defs",
        "g",
        "text",
        "details",
        "summary",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "blockquote",
        "footer",
        "!DOCTYPE",
        "br",
        "hr",
    ];
    // cells and rows have no end tag in this page
    const VOID: [&str; 11] =
        ["meta", "link", "line", "rect", "circle", "!DOCTYPE", "br", "hr", "td", "th", "tr"];
    let (head, body) = page.split_once("</style>").expect("a style");
    prop_assert!(!body.contains("<style"), "{head}");
    let mut open: Vec<&str> = vec!["html", "head"];
    for tag in body.split('<').skip(1) {
        let Some((tag, _)) = tag.split_once('>') else {
            return Err(TestCaseError::fail(format!("a tag without an end: {tag}")));
        };
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        prop_assert!(KNOWN.contains(&name), "unknown tag {tag:?}");
        prop_assert!(tag.matches('"').count().is_multiple_of(2), "an attribute is open in {tag:?}");
        // names of attributes are outside the quotes; a study may well be called "on"
        let outside: String = tag.split('"').step_by(2).collect();
        prop_assert!(!outside.to_ascii_lowercase().contains(" on"), "a handler in {tag:?}");
        if tag.starts_with('/') {
            prop_assert_eq!(open.pop(), Some(name), "at {}", tag);
        } else if !VOID.contains(&name) && !tag.ends_with('/') {
            open.push(name);
        }
    }
    prop_assert!(open.is_empty(), "left open: {open:?}");
    Ok(())
}

#[test]
fn the_markup_of_every_situation_is_closed() {
    for situation in Situation::ALL {
        check_markup(&page(situation)).expect("sound markup");
    }
}

#[test]
fn the_check_of_markup_finds_a_handler_and_an_open_tag() {
    let sound = "<html><head><style></style></head><body><p class=\"x on\">a</p></body></html>";
    check_markup(sound).expect("sound markup");
    assert!(check_markup(&sound.replace("<p ", "<p onclick=\"x\" ")).is_err());
    assert!(check_markup(&sound.replace("</p>", "")).is_err());
    assert!(check_markup(&sound.replace(">a<", "><script>a</script><")).is_err());
}

proptest! {
    #[test]
    fn no_records_break_the_page(
        studies in proptest::collection::vec(study(), 0..3),
        runs in proptest::collection::vec(run(), 0..12),
    ) {
        let mut lines = studies;
        // most runs belong to a study with a head, and have variants that it judges
        let heads: Vec<StudyLine> = lines
            .iter()
            .filter_map(|line| if let Line::Study(study) = line { Some((**study).clone()) } else { None })
            .collect();
        for (i, run) in runs.into_iter().enumerate() {
            let Line::Run(mut run) = run else { continue };
            if let Some(head) = heads.get(i % (heads.len() + 1)) {
                run.study.clone_from(&head.study);
                if let Some(verdict) = head.verdicts.first() {
                    run.variant = if i % 2 == 0 { verdict.variant.clone() } else { verdict.against.clone() };
                    if let Some(figure) = run.figures.first_mut() {
                        figure.name.clone_from(&verdict.figure);
                    }
                }
                if let (Some(figure), Some(name)) =
                    (run.figures.last_mut(), head.charts.first().and_then(|chart| chart.y.first()))
                {
                    figure.name.clone_from(name);
                }
            }
            lines.push(Line::Run(run));
        }
        check_markup(&unisono_report::html(&lines))?;
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let records = directory.path().join("records.jsonl");
        std::fs::write(&records, bytes).expect("a file");
        let _ = unisono_report::summarize(&records);
    }
}

/// Runs of one barrier and its rivals with two numbers of threads, with one comparison per rival.
fn field(rivals: usize) -> Vec<Line> {
    let names: Vec<String> = (0..rivals).map(|i| format!("rival-{i}")).collect();
    let verdicts = names.iter().map(|rival| Verdict {
        variant: "ours".into(),
        against: rival.clone(),
        figure: "time_ns".into(),
        better: Better::Lower,
        by: Some("threads".into()),
        sides: Some(["ours", rival].map(str::to_owned)),
        ..Verdict::default()
    });
    let head = StudyLine {
        format: FORMAT.into(),
        study: "field".into(),
        verdicts: verdicts.collect(),
        ..StudyLine::default()
    };
    let mut lines = vec![Line::Study(Box::new(head))];
    for (threads, repetition) in [(2, 0), (2, 1), (2, 2), (4, 0), (4, 1), (4, 2)] {
        for (variant, value) in
            names.iter().map(|name| (name.as_str(), 40.0)).chain([("ours", 10.0 * f64::from(threads))])
        {
            lines.push(Line::Run(Box::new(RunLine {
                format: FORMAT.into(),
                study: "field".into(),
                variant: variant.into(),
                repetition,
                parameters: BTreeMap::from([("threads".to_owned(), threads.into())]),
                figures: vec![Figure::new("time_ns", value, "ns")],
                ..RunLine::default()
            })));
        }
    }
    lines
}

#[test]
fn many_rivals_are_a_table_and_a_few_are_sentences() {
    let many = unisono_report::html(&field(6));
    assert!(many.contains("×: ratio of") && many.contains("Each comparison in words"), "a table");
    assert_eq!(many.matches("<b>0.50\u{d7}</b>").count(), 6, "a cell for each rival at two threads");
    assert_eq!(many.matches("<b>1.000\u{d7}</b>").count(), 6, "and at four");
    let few = unisono_report::html(&field(5));
    assert!(!few.contains("×: ratio of") && !few.contains("Each comparison in words"), "no table");
}
