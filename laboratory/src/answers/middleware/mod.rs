//! The answer of the middleware studies: compares each table and figure of Shenoy et al. with our values, and
//! checks the lessons of their section 4 against the recorded data.
//!
//! A lesson states the result of the runs and the paper's number. If the records lack the runs, the lesson
//! states that.

mod paper;

use self::paper::{CONTROL, PAPER, PaperLine};
use askama::Template;
use serde_json::Value;
use unisono_measure::paired::Finding;
use unisono_measure::record::Better;
use unisono_measure::selector::parameter_values;
use unisono_measure::verdict::format_ratio;
use unisono_measure::{Comparison, Selector};
use unisono_report::extension::{
    AnswerPicture, Study, TopicAnswer, capitalized, findings_about_shares, interval_in_words, list, plain,
    quantity, times_sign,
};

pub(super) const TOPIC: &str = "middleware";

/// A number of the paper, and our number to compare with it.
struct PaperRow<'a> {
    line: &'static PaperLine,
    study: &'a Study<'a>,
    native: String,
    middleware: String,
    ratio: String,
}

impl<'a> PaperRow<'a> {
    fn new(studies: &'a [Study<'a>], line: &'static PaperLine) -> Option<Self> {
        let (study, of) = (line.asked(studies)?, &line.compare);
        let (native, middleware) = (of.of_variant(of.against.as_deref()?), of.median(&study.runs)?);
        let native = native.median(&study.runs)?;
        let ratio = study
            .comparison(of)
            .map(|c| format!("{} ({})", times_sign(c.ratio.value), interval_in_words(c)))
            .unwrap_or_else(|| "\u{2013}".to_owned());
        let phrase = |value| quantity(value, &line.unit);
        Some(Self { line, study, native: phrase(native), middleware: phrase(middleware), ratio })
    }
}

impl PaperLine {
    /// Returns the study that has values to compare with this line.
    fn asked<'s, 'r>(&self, studies: &'s [Study<'r>]) -> Option<&'s Study<'r>> {
        studies.iter().find(|study| study.head.study == self.study)
    }

    fn comparison<'s>(&self, studies: &'s [Study<'_>]) -> Option<&'s Comparison> {
        self.asked(studies)?.comparison(&self.compare)
    }
}

/// A lesson of the paper's section 4.
pub(super) struct Lesson {
    pub(super) name: &'static str,
    /// The paper's result, in short.
    paper: &'static str,
    /// The results of these runs, one sentence each.
    pub(super) found: Vec<String>,
}

#[derive(Template)]
#[template(path = "middleware.html")]
struct MiddlewareAnswer<'a> {
    headline: String,
    rows: Vec<PaperRow<'a>>,
    lessons: Vec<Lesson>,
}

/// Returns the answer as HTML; empty if no study is about middleware.
pub(super) fn html(studies: &[Study<'_>]) -> String {
    let lessons = lessons(studies);
    if lessons.is_empty() {
        return String::new();
    }
    let rows = PAPER.iter().filter_map(|line| PaperRow::new(studies, line)).collect();
    MiddlewareAnswer { headline: headline(studies), rows, lessons }.to_string()
}

/// Returns the answer of the topic: the extreme ratios, or else the first lesson that these records answer,
/// or `None` if there is none.
pub(super) fn topic_answer(studies: &[Study<'_>]) -> Option<TopicAnswer> {
    let Some([_, (line, _)]) = extremes(studies) else {
        let lesson = lessons(studies).into_iter().find_map(|lesson| lesson.found.into_iter().next());
        return lesson.map(|words| TopicAnswer::new(words, None));
    };
    let picture = line.asked(studies).and_then(|study| {
        let of = line.compare.clone();
        let place = of.place(&study.runs)?;
        let words = study.place_in_words(place.iter().map(|(name, value)| (name.as_str(), value)));
        let variants = of.against.into_iter().chain(of.variants).collect();
        AnswerPicture::new(study, &Selector { variants, against: None, ..of }, Better::Lower, &words)
    });
    Some(TopicAnswer::new(headline(studies), picture))
}

/// Returns the lessons; none if no study is about middleware.
pub(super) fn lessons(studies: &[Study<'_>]) -> Vec<Lesson> {
    if !studies.iter().any(|study| study.head.topic == TOPIC) {
        return Vec::new();
    }
    let of = |id: &str, say: fn(&Study<'_>) -> Option<String>| {
        studies.iter().find(|study| study.head.study == id).and_then(say)
    };
    vec![
        Lesson { name: "Overhead", paper: "TAO costs applications 5 % to 400 %", found: overheads(studies) },
        Lesson {
            name: "Effectiveness",
            paper: "for many applications the middleware's mechanisms do as well as the kernel's",
            found: [of("middleware-streaming", streams), of(CONTROL, console)]
                .into_iter()
                .flatten()
                .collect(),
        },
        Lesson {
            name: "Isolation",
            paper: "the kernel keeps a legacy program's harm below 30 %, the middleware does not",
            found: of("middleware-web", beside_web).into_iter().collect(),
        },
        Lesson {
            name: "Programming effort",
            paper: "abstractions help once they are learnt; sockets need additional code",
            found: of("middleware-effort", effort).into_iter().collect(),
        },
        Lesson {
            name: "The same scheduler in each place",
            paper: "the comparison that the paper wished for: identical mechanisms in the kernel and in a lightweight middleware",
            found: ["queue-shares", "queue-isolation"]
                .iter()
                .flat_map(|id| findings_about_shares(studies, id))
                .collect(),
        },
    ]
}

/// Returns the ratios of the decided comparisons in the paper's table; of all that these records have runs
/// for, if none is decided.
fn ratios(studies: &[Study<'_>]) -> Vec<(&'static PaperLine, f64)> {
    let found = PAPER.iter().filter_map(|line| Some((line, line.comparison(studies)?)));
    let found: Vec<_> =
        found.filter(|(line, found)| line.unit != "%" && found.ratio.value.is_finite()).collect();
    let is_decided = |found: &Comparison| found.finding(Better::Lower) != Finding::Undecided;
    let is_any_decided = found.iter().any(|(_, found)| is_decided(found));
    let kept = found.into_iter().filter(|(_, found)| is_decided(found) || !is_any_decided);
    kept.map(|(line, found)| (line, found.ratio.value)).collect()
}

fn extremes(studies: &[Study<'_>]) -> Option<[(&'static PaperLine, f64); 2]> {
    let mut ratios = ratios(studies);
    ratios.sort_by(|a, b| a.1.total_cmp(&b.1));
    Some([*ratios.first()?, *ratios.last()?])
}

fn headline(studies: &[Study<'_>]) -> String {
    let Some([(_, least), (most_of, most)]) = extremes(studies) else {
        return "Not answered: these records compare no application over both.".to_owned();
    };
    if most / least < 1.005 {
        let (what, times) = (lower(&most_of.measure), format_ratio(most));
        let tao = match most_of.paper[2].as_str() {
            "below 1" => "took less time than sockets".to_owned(),
            times => format!("{times} times"),
        };
        return format!(
            "The event channel takes {times} times as long as sockets for {what}; TAO in the paper {tao}. It is worth \
             that for deadlines, shares and subscriptions, not for speed."
        );
    }
    format!(
        "The event channel takes {} to {} times as long as sockets, the most for {}; TAO in the paper 0.95 to 5 times. It \
         is worth that for deadlines, shares and subscriptions, not for speed.",
        format_ratio(least),
        format_ratio(most),
        lower(&most_of.measure)
    )
}

/// Writes, for example, `Table 1, null RPC` as `null RPC (table 1)`.
fn lower(measure: &str) -> String {
    let (place, what) = measure.split_once(", ").unwrap_or(("", measure));
    format!("{what} ({})", place.to_lowercase())
}

fn overheads(studies: &[Study<'_>]) -> Vec<String> {
    let phrase = |line: &'static PaperLine| {
        let found = line.comparison(studies)?;
        Some(format!(
            "{}: {} times as long ({}); the paper {}.",
            capitalized(&lower(&line.measure)),
            format_ratio(found.ratio.value),
            interval_in_words(found),
            line.paper[2]
        ))
    };
    let is_overhead = |line: &&PaperLine| line.study != CONTROL && line.unit != "%";
    PAPER.iter().filter(is_overhead).filter_map(phrase).collect()
}

/// Returns the values of a parameter in the runs, ascending.
fn values(study: &Study<'_>, parameter: &str) -> Vec<u64> {
    parameter_values(&study.runs, parameter).into_iter().filter_map(Value::as_u64).collect()
}

fn streams(study: &Study<'_>) -> Option<String> {
    /// The percentage of rounds with late frames in the paper's QLinux with 4 viewers.
    const PAPER_LATE: f64 = 6.0;
    let viewers = values(study, "clients");
    let whole_up_to = |variant: &str| {
        let is_whole = |viewers: &&u64| {
            let late = study.median(&format!("{variant}.late_rounds_percent@clients={viewers}"));
            late.is_some_and(|late| late < PAPER_LATE)
        };
        viewers.iter().take_while(is_whole).last()
    };
    let phrase = |(variant, name): (&str, &str)| {
        let up_to = whole_up_to(variant);
        Some(up_to.map_or_else(|| format!("to none {name}"), |n| format!("up to {n} viewers {name}")))
            .filter(|_| study.never_measured_reason(variant).is_none())
    };
    let kept: Vec<String> = [
        ("tcp", "over TCP"),
        ("udp", "over UDP"),
        ("tcp-kernel", "over TCP with the kernel\u{2019}s shares"),
        ("tcp-tun", "over TCP with the interposed place\u{2019}s shares"),
        ("channel", "over the event channel"),
    ]
    .into_iter()
    .filter_map(phrase)
    .collect();
    let most = viewers.last()?;
    let late = |variant| {
        let late = study.median(&format!("{variant}.late_rounds_percent@clients={most}"));
        late.map(|late| quantity(late, "%"))
    };
    Some(format!(
        "Streams with late frames in fewer than 6 % of the rounds: {}. At {most} viewers {} of the rounds are late over TCP, {} over the \
         event channel.",
        list(&kept)?,
        late("tcp")?,
        late("channel")?
    ))
}

fn console(study: &Study<'_>) -> Option<String> {
    let of = |variant: &str, figure: &str, sensor: bool| {
        study.median(&format!("{variant}.{figure}@sensor={sensor}")).map(|us| quantity(us, "us"))
    };
    let phrase = |variant: &str, name: &str| {
        Some(format!(
            "{name} a command takes {} alone and {} beside the sensor, with a jitter of {}",
            of(variant, "response_us", false)?,
            of(variant, "response_us", true)?,
            of(variant, "jitter_us", true)?
        ))
    };
    Some(format!(
        "{}.",
        list(&[phrase("tcp", "Over TCP")?, phrase("channel", "over the event channel")?])?
    ))
}

fn beside_web(study: &Study<'_>) -> Option<String> {
    let connections = values(study, "web_connections");
    let most = connections.last().filter(|most| **most > 0)?;
    let phrase = |(variant, name): &(&str, &str)| {
        let at = |variant: &str, figure, connections| {
            study.median(&format!("{variant}.{figure}@web_connections={connections}"))
        };
        let late = quantity(at(variant, "late_rounds_percent", *most)?, "%");
        let round = at(variant, "round_ms", *most)?;
        // the undisturbed value: from a run without requests, or from the variant without a web server
        let alone = at(variant, "round_ms", 0);
        let alone = alone.or_else(|| at(&format!("{variant}-alone"), "round_ms", *most));
        let alone = alone.filter(|alone| *alone > 0.0);
        let longer = alone.map(|alone| format!(", a round {:+.0} %", 100.0 * (round / alone - 1.0)));
        Some(format!("{late} under {name}{}", longer.unwrap_or_default()))
    };
    let places: Vec<String> = [
        ("kernel", "the kernel (HTB)"),
        ("tun", "the interposed place over TUN"),
        ("af-xdp", "the interposed place over AF_XDP"),
        ("channel", "the event channel alone"),
        ("none", "sockets without a policy"),
    ]
    .iter()
    .filter_map(phrase)
    .collect();
    let places = list(&places)?;
    Some(format!(
        "Beside a web server that knows no policy, with {most} requests in flight, late rounds are {places}."
    ))
}

fn effort(study: &Study<'_>) -> Option<String> {
    let lines = |variant| study.median(&format!("{variant}.communication_lines"));
    Some(format!(
        "To communicate, the applications need {} lines over TCP, {} over UDP, {} over the event channel and {} by its request and reply; the {} lines of \
         the applications are the same in each.",
        plain(lines("tcp")?),
        plain(lines("udp")?),
        plain(lines("channel")?),
        plain(lines("reply")?),
        plain(study.median("tcp.application_lines")?)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use unisono_measure::record::{Better, Figure, Line, RunLine, StudyLine, Verdict};

    /// A variant, its parameters, and its figures.
    type Measured<'a> = (&'a str, Value, &'a [(&'a str, f64)]);

    fn study(id: &str, verdict: Option<Verdict>, runs: &[Measured<'_>]) -> Vec<Line> {
        let verdicts = verdict.into_iter().collect();
        let head = StudyLine { study: id.into(), topic: TOPIC.into(), verdicts, ..StudyLine::default() };
        let mut lines = vec![Line::Study(Box::new(head))];
        for (variant, parameters, figures) in runs {
            let figure = |(name, value): &(&str, f64)| Figure::new(*name, *value, "us");
            lines.extend((0..3).map(|repetition| {
                Line::Run(Box::new(RunLine {
                    study: id.into(),
                    variant: (*variant).into(),
                    repetition,
                    parameters: serde_json::from_value(parameters.clone()).expect("an object"),
                    figures: figures.iter().map(figure).collect(),
                    ..RunLine::default()
                }))
            }));
        }
        lines
    }

    fn page(lines: &[Line]) -> String {
        html(&unisono_report::extension::studies(lines)).replace(['\u{2009}', '\u{202f}', '\u{a0}'], " ")
    }

    #[test]
    fn a_number_of_the_paper_stands_beside_ours_with_the_ratio() {
        let verdict = Verdict {
            variant: "channel-tcp".into(),
            against: "tcp".into(),
            figure: "one_way_us".into(),
            better: Better::Lower,
            ..Verdict::default()
        };
        let runs: &[Measured<'_>] = &[
            ("tcp", json!({}), &[("one_way_us", 20.0)]),
            ("channel-tcp", json!({}), &[("one_way_us", 30.0)]),
        ];
        let phrase = page(&study("middleware-events", Some(verdict), runs));
        assert!(phrase.contains("<td>1279 us</td><td>3134 us</td><td>2.45</td><td>20 us</td>"), "{phrase}");
        assert!(phrase.contains("Delay of 1 KB (table 2): 1.50 times as long"), "{phrase}");
        assert!(phrase.contains("The event channel takes 1.50 times as long as sockets for delay of 1 KB (table 2); TAO in the paper 2.45 times."), "{phrase}");
    }

    #[test]
    fn isolation_says_who_keeps_the_streams_and_by_how_much_a_round_grows() {
        let at = |connections: u32| json!({ "web_connections": connections });
        let alone: &[(&str, f64)] = &[("late_rounds_percent", 0.0), ("round_ms", 200.0)];
        let kept: &[(&str, f64)] = &[("late_rounds_percent", 0.0), ("round_ms", 210.0)];
        let spoilt: &[(&str, f64)] = &[("late_rounds_percent", 80.0), ("round_ms", 900.0)];
        let runs = [
            ("kernel", at(0), alone),
            ("kernel", at(64), kept),
            ("channel", at(0), alone),
            ("channel", at(64), spoilt),
        ];
        let phrase = page(&study("middleware-web", None, &runs));
        assert!(phrase.contains("with 64 requests in flight"), "{phrase}");
        assert!(phrase.contains("0 % under the kernel (HTB), a round +5 %"), "{phrase}");
        assert!(phrase.contains("80 % under the event channel alone, a round +350 %"), "{phrase}");
    }

    #[test]
    fn isolation_takes_the_round_alone_from_runs_without_a_web_server() {
        let at = json!({ "web_connections": 64 });
        let figures = |round_ms| [("late_rounds_percent", 0.0), ("round_ms", round_ms)];
        let (alone, beside) = (figures(200.0), figures(206.0));
        let runs = [("tun-alone", at.clone(), &alone[..]), ("tun", at, &beside[..])];
        let phrase = page(&study("middleware-web", None, &runs));
        assert!(phrase.contains("0 % under the interposed place over TUN, a round +3 %"), "{phrase}");
    }

    #[test]
    fn a_lesson_without_runs_says_that_it_is_not_answered() {
        let phrase = page(&study("middleware-effort", None, &[]));
        assert_eq!(phrase.matches("Not answered by these runs").count(), 5, "{phrase}");
        assert_eq!(page(&[]), "");
    }
}
