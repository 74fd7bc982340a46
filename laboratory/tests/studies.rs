//! The laboratory's studies are good files, `unisono study` knows their names, and their records conform to
//! the schema.
#![allow(missing_docs)]

#[path = "../../cli/tests/schema/mod.rs"]
mod schema;

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use unisono_laboratory::add_studies;
use unisono_measure::record::Line;
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
fn every_study_conforms_to_the_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/record-schema.json");
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("the schema")).expect("JSON");
    for file in studies() {
        let line = serde_json::to_value(Line::Study(Box::new(file.line(Profile::Smoke)))).expect("JSON");
        schema::validate(&schema, &schema, &line, &file.id).expect("it conforms");
    }
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
    let verdict = "\n[[verdict]]\nvariant = \"local-tcp\"\nagainst = \"local-channel\"\nfigure = \"received_mb\"\nby = \"elapsed_s\"\nwords = \"w\"\n";
    let refused = StudyFile::parse("download", &format!("{service}{verdict}")).expect_err("no parameter");
    assert!(refused.to_string().contains("\"elapsed_s\" is not swept"), "{refused}");
}
