//! Tests that the laboratory's studies are valid files, that `unisono study` knows their names, and that
//! their records conform to the schema.
#![allow(missing_docs)]

#[path = "../../cli/tests/sentences/reading.rs"]
mod reading;
#[path = "../../cli/tests/schema/mod.rs"]
mod schema;

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use unisono_laboratory::add_studies;
use unisono_measure::record::Line;
use unisono_report::ClaimsFormat;
use unisono_study::file::StudyFile;
use unisono_study::library;
use unisono_study::profile::Profile;

fn studies() -> Vec<StudyFile> {
    add_studies();
    library::studies().expect("good files")
}

#[test]
fn every_study_has_a_name_and_a_place_in_the_report_of_its_own() {
    let all = studies();
    let ids: BTreeSet<&str> = all.iter().map(|file| file.id.as_str()).collect();
    let orders: BTreeSet<u32> = all.iter().map(|file| file.order).collect();
    assert_eq!((ids.len(), orders.len()), (all.len(), all.len()));
    assert!(ids.contains("middleware-rivals") && ids.contains("granularity"), "{ids:?}");
}

#[test]
fn the_product_knows_the_names_of_all_studies_of_the_laboratory() {
    let known: BTreeSet<(&str, &str)> = unisono_cli::LABORATORY_STUDIES
        .iter()
        .flat_map(|(topic, ids)| ids.iter().map(|id| (*topic, *id)))
        .collect();
    let all = studies();
    let own = all.iter().filter(|file| unisono_laboratory::has_study(&file.id));
    let own: BTreeSet<(&str, &str)> = own.map(|file| (file.topic.as_str(), file.id.as_str())).collect();
    assert_eq!(known, own);
}

#[test]
fn every_sentence_about_the_laboratorys_studies_has_its_nouns_and_every_verdict_its_runs() {
    let all = studies();
    let own: Vec<StudyFile> =
        all.into_iter().filter(|file| unisono_laboratory::has_study(&file.id)).collect();
    assert!(own.len() > 20, "{}", own.len());
    let faults = reading::read_all(&own);
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_study_conforms_to_the_schema() {
    let schema = schema::read("record-schema.json");
    for file in studies() {
        let line = serde_json::to_value(Line::Study(Box::new(file.line(Profile::Smoke)))).expect("JSON");
        schema::validate(&schema, &line).expect("it conforms");
    }
}

#[test]
fn claims_are_an_object_of_the_schema() {
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/example-report");
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono-laboratory"));
    let output = command.arg("report").arg(records).args(["--claims", "--json"]).output().expect("it starts");
    let formats = schema::formats_of(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(formats, ["unisono-report-claims-1"]);
}

#[test]
fn the_laboratory_lists_its_studies_and_shows_their_files() {
    let laboratory = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_unisono-laboratory")).arg("study").args(arguments).output();
        let output = output.expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let listed = laboratory(&["monitor", "queue", "--list", "--json"]);
    let ids: BTreeSet<String> = listed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["study"].to_string())
        .collect();
    let wanted: BTreeSet<String> = studies()
        .iter()
        .filter(|file| file.is_named("monitor") || file.is_named("queue"))
        .map(|file| format!("{:?}", file.id))
        .collect();
    assert_eq!(ids, wanted);
    assert!(laboratory(&["--show", "middleware-web"]).contains("driver = \"service\""));
}

#[test]
fn a_chart_may_be_drawn_over_what_the_driver_has_curves_of() {
    let _all = studies();
    let service = library::study_text("middleware-download").expect("a study");
    assert!(service.contains("x = \"elapsed_s\"") && StudyFile::parse("download", service).is_ok());
    let verdict = "\n[[verdict]]\ncompare = \"local-tcp/local-channel.received_mb@elapsed_s=each\"\n";
    let refused = StudyFile::parse("download", &format!("{service}{verdict}")).expect_err("no parameter");
    assert!(refused.to_string().contains("\"elapsed_s\" is not swept"), "{refused}");
}

#[test]
fn the_page_has_the_claims_and_lessons_of_the_papers() {
    unisono_laboratory::add_studies();
    let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/example-report/records.jsonl");
    let lines = unisono_report::lines(&records).expect("the example's records");
    let page = unisono_report::html(&lines);
    assert!(page.contains("<h2>What the papers say</h2>") && page.contains("14 reproduced, 26 differ"));
    assert!(page.contains("<h3>Middleware, or the operating system?</h3>"));
    let lessons = unisono_report::lessons(&lines);
    assert!(
        lessons.iter().any(|lesson| lesson.name == "Overhead" && lesson.found.len() == 1),
        "{lessons:?}"
    );
    let claims = unisono_report::claims(&lines, ClaimsFormat::Markdown).expect("the laboratory knows claims");
    assert!(claims.contains("14 reproduced, 26 differ"), "{claims}");
}
