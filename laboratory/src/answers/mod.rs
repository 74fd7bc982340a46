//! The report's answers about the laboratory's studies: the claims of the papers, the lessons of the
//! middleware studies, and the maps of simulated gangs. [`unisono_report::extension`] adds them to the page.

mod claims;
mod maps;
mod middleware;

use unisono_report::LessonSummary;
use unisono_report::extension::{ClaimsFormat, ReportExtension, ScreenTopic, Study, strongest_answer};

static TOPICS: [ScreenTopic; 3] = [
    ScreenTopic {
        topic: "gang-map",
        name: "Gangs",
        command: "unisono gang simulate --cores 64 --programs 64x50us,64x0us",
        does: "Predicts your programs on that many cores",
        answer: maps::topic_answer,
        long: None,
    },
    ScreenTopic {
        topic: "monitor",
        name: "Monitor",
        command: "unisono fit -- PROGRAM",
        does: "Starts PROGRAM with the threads that it can really have",
        answer: strongest_answer,
        long: None,
    },
    ScreenTopic {
        topic: middleware::TOPIC,
        name: "Events",
        command: "unisono events serve",
        does: "Serves topics with deadlines and shares",
        answer: middleware::topic_answer,
        long: Some(middleware::html),
    },
];

pub(crate) fn extension() -> ReportExtension {
    ReportExtension { topics: &TOPICS, section: claims::html, lessons, claims: document }
}

fn lessons(studies: &[Study<'_>]) -> Vec<LessonSummary> {
    let all = middleware::lessons(studies).into_iter();
    all.map(|lesson| LessonSummary { name: lesson.name, found: lesson.found }).collect()
}

fn document(studies: &[Study<'_>], format: ClaimsFormat) -> String {
    match format {
        ClaimsFormat::Markdown => claims::markdown(studies),
        ClaimsFormat::Json => {
            let claims = claims::claims(studies);
            serde_json::json!({ "format": "unisono-report-claims-1", "claims": claims }).to_string()
        }
    }
}
