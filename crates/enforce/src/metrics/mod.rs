//! Exports the figures of all classes in the OpenMetrics format, for monitoring programs.
//!
//! ```text
//!   Scrape of each device --> text --> standard output, or the answer to a monitoring program (serve)
//! ```
//! Counters only grow while a policy is in force. When another policy replaces it, the counters of classes
//! with the same name continue as far as the backend can keep them; all others begin at zero. Units are
//! seconds, bytes, and bits a second for rates of links. A class with children counts the sum of all classes
//! below it: for totals, sum the classes whose label `parent` is empty.
//!
//! Cost: one request to the backend for each device and scrape. When not to use it: to watch rates (`unisono
//! queue show`). Reference: the OpenMetrics specification 1.0,
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

mod scrape_server;

pub use scrape_server::{NameOwned, PageAnswer, PageRequest, ScrapeListener, serve_pages, serve_scrapes};

use crate::interposed::Counters;
use crate::journal::LinkSide;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType::{self, Counter, Gauge};
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use unisono_fairqueue::{GroupShare, Live, LiveClass, ReceivingFigures};

/// A control group with a share, and its counter. `None`: the group does not exist.
type CountedShare = (GroupShare, Option<u64>);

#[derive(Clone, Debug)]
pub struct Scrape {
    pub side: LinkSide,
    /// The backend's counters, or `None` if the backend did not answer.
    pub figures: Option<(Live, Option<Counters>)>,
    /// The processor time that each control group in `[cpu]` has used, in nanoseconds, or `None` for a group
    /// that does not exist.
    pub processor_time: Vec<(GroupShare, Option<u64>)>,
    /// The bytes that each control group in `[io]` has read from disks and written to them, or `None` for a
    /// group that does not exist.
    pub disk_bytes: Vec<(GroupShare, Option<u64>)>,
}

pub fn openmetrics(readings: Vec<Scrape>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrapes(readings)));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("because no value here fails to be written to memory");
    text
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// The value of a sample.
enum SampleValue {
    Whole(u64),
    Real(f64),
}

use SampleValue::{Real, Whole};

/// A value with the labels that identify it in its family of metrics.
type Sample<'a> = (Labels<'a>, SampleValue);

/// A counter of the interposed backend: its name, its help text, and its value.
type FrameCounter = (&'static str, &'static str, fn(&Counters) -> u64);

#[derive(Debug)]
struct Scrapes(Vec<Scrape>);

impl prometheus_client::collector::Collector for Scrapes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let families = &mut Families(&mut encoder);
        self.devices(families)?;
        self.classes(families)?;
        self.receiving(families)?;
        self.delays(families)?;
        self.frames(families)?;
        self.processors(families)?;
        self.disks(families)
    }
}

impl Scrapes {
    fn devices(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let is_up = |reading: &Scrape| Whole(reading.figures.is_some().into());
        let answers = self.0.iter().map(|reading| (reading.labels(), is_up(reading)));
        let what = "Whether the place that enforces the device's policy answered";
        families.add(Gauge, ("up", None, what), answers.collect())?;
        let places = self.answered().map(|(live, _)| {
            let labels = labels_of_link(live).into_iter().chain([("backend", live.backend.as_str())]);
            (labels.collect(), Whole(1))
        });
        let what = "The place that enforces the device's policy";
        families.add(Gauge, ("backend", None, what), places.collect())?;
        let rate = |live: &Live| Whole(live.rate.bits_per_second());
        let rates = self.answered().map(|(live, _)| (labels_of_link(live), rate(live)));
        let what = "What the policy says the link carries";
        families.add(Gauge, ("link_rate", Some(bits_per_second()), what), rates.collect())
    }

    fn answered(&self) -> impl Iterator<Item = &(Live, Option<Counters>)> {
        self.0.iter().filter_map(|reading| reading.figures.as_ref())
    }

    /// Returns one sample for each class of each device.
    fn of_classes(&self, of: fn(&LiveClass) -> SampleValue) -> Vec<Sample<'_>> {
        let all = self.answered().flat_map(|(live, _)| live.classes.iter().map(move |class| (live, class)));
        all.map(|(live, class)| (labels_of(live, class), of(class))).collect()
    }

    fn classes(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let sure = self.of_classes(|class| Real(class.guarantee));
        let what = "What the class gets at least, while all others want more";
        families.add(Gauge, ("class_guarantee", Some(bits_per_second()), what), sure)?;
        let packets = self.of_classes(|class| Whole(class.packets));
        families.add(Counter, ("class_packets", None, "Packets that have left"), packets)?;
        let bytes = self.of_classes(|class| Whole(class.bytes));
        let what = "Bytes of the packets that have left";
        families.add(Counter, ("class_sent", Some(Unit::Bytes), what), bytes)?;
        let dropped = self.of_classes(|class| Whole(class.dropped));
        families.add(Counter, ("class_dropped_packets", None, "Packets that were dropped"), dropped)?;
        let waiting = self.of_classes(|class| Whole(class.backlog.packets));
        families.add(Gauge, ("class_waiting_packets", None, "Packets that wait now"), waiting)?;
        let waiting = self.of_classes(|class| Whole(class.backlog.bytes));
        let what = "Bytes of the packets that wait now";
        families.add(Gauge, ("class_waiting", Some(Unit::Bytes), what), waiting)
    }

    /// Returns one sample for each class that kernel threads receive for.
    fn of_receiving(&self, of: fn(ReceivingFigures) -> SampleValue) -> Vec<Sample<'_>> {
        let all = self.answered().flat_map(|(live, _)| live.classes.iter().map(move |class| (live, class)));
        all.filter_map(|(live, class)| Some((labels_of(live, class), of(class.receiving?)))).collect()
    }

    fn receiving(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let ran = self.of_receiving(|figures| seconds(figures.ran_ns));
        let what = "Processor time of the kernel threads that receive for the class";
        families.add(Counter, ("class_receiving", Some(Unit::Seconds), what), ran)?;
        let frames = self.of_receiving(|figures| Whole(figures.frames));
        let what = "Frames that have arrived for the class";
        families.add(Counter, ("class_arrived_frames", None, what), frames)?;
        let accepted = self.of_receiving(|figures| Whole(figures.accepted));
        let what = "Frames that its threads have taken; the others were dropped early, or still wait";
        families.add(Counter, ("class_accepted_frames", None, what), accepted)
    }

    fn delays(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let mut samples = Vec::new();
        for (live, _) in self.answered() {
            for class in &live.classes {
                let Some(delay) = class.delay else { continue };
                for (figure, nanos) in [
                    ("min", delay.min_ns),
                    ("median", delay.median_ns),
                    ("mean", delay.mean_ns),
                    ("p99", delay.p99_ns),
                    ("max", delay.max_ns),
                ] {
                    let mut labels = labels_of(live, class);
                    labels.push(("figure", figure));
                    samples.push((labels, seconds(nanos)));
                }
            }
        }
        let what = "How long packets have waited since the policy holds, where the place counts it";
        families.add(Gauge, ("class_delay", Some(Unit::Seconds), what), samples)
    }

    fn frames(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let kinds: [FrameCounter; 6] = [
            ("received_frames", "Frames that came to the interposed queue", |of| of.received),
            ("malformed_frames", "Frames dropped because they contradict themselves", |of| of.malformed),
            ("stranger_frames", "Frames dropped because they did not come from the device", |of| {
                of.strangers
            }),
            ("overrun_frames", "Frames dropped because more came than there was room for", |of| {
                of.overrun
            }),
            ("unsent_frames", "Frames lost because the device did not take them", |of| of.unsent),
            ("merged_frames", "Frames handed to the device as parts of larger ones", |of| of.merged),
        ];
        for (name, what, of) in kinds {
            let samples = self
                .answered()
                .filter_map(|(live, counters)| Some((labels_of_link(live), Whole(of(counters.as_ref()?)))));
            families.add(Counter, (name, None, what), samples.collect())?;
        }
        Ok(())
    }

    /// Returns one sample for each control group of each device: its share and its counter.
    fn of_groups(
        &self,
        of: fn(&Scrape) -> &[CountedShare],
    ) -> impl Iterator<Item = (Labels<'_>, &GroupShare, Option<u64>)> {
        self.0.iter().flat_map(move |reading| {
            of(reading).iter().map(|(share, used)| {
                let labels =
                    vec![("device", reading.side.device.as_str()), ("cgroup", share.cgroup.as_str())];
                (labels, share, *used)
            })
        })
    }

    fn processors(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let groups = || self.of_groups(|reading| &reading.processor_time);
        let weights = groups().map(|(labels, share, _)| (labels, Real(share.weight.to_f64())));
        families.add(
            Gauge,
            ("cpu_weight", None, "Weight of the control group in [cpu]"),
            weights.collect(),
        )?;
        let used = groups().filter_map(|(labels, _, used)| Some((labels, seconds(used?))));
        let what = "Processor time that the control group has used";
        families.add(Counter, ("cpu", Some(Unit::Seconds), what), used.collect())
    }

    fn disks(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let groups = || self.of_groups(|reading| &reading.disk_bytes);
        let weights = groups().map(|(labels, share, _)| (labels, Real(share.weight.to_f64())));
        families.add(Gauge, ("io_weight", None, "Weight of the control group in [io]"), weights.collect())?;
        let bytes = groups().filter_map(|(labels, _, bytes)| Some((labels, Whole(bytes?))));
        let what = "Bytes that the control group has read from disks and written to them";
        families.add(Counter, ("io", Some(Unit::Bytes), what), bytes.collect())
    }
}

fn bits_per_second() -> Unit {
    Unit::Other("bits_per_second".to_owned())
}

fn seconds(nanos: u64) -> SampleValue {
    Real(nanos as f64 / 1e9)
}

fn labels_of<'a>(live: &'a Live, class: &'a LiveClass) -> Labels<'a> {
    let parent = class.parent.as_deref().unwrap_or_default();
    labels_of_link(live).into_iter().chain([("class", class.name.as_str()), ("parent", parent)]).collect()
}

fn labels_of_link(live: &Live) -> Labels<'_> {
    vec![("device", live.device.as_str()), ("direction", live.direction.name())]
}

impl Scrape {
    fn labels(&self) -> Labels<'_> {
        vec![("device", self.side.device.as_str()), ("direction", self.side.direction.name())]
    }
}

/// Writes families of metrics, each with its samples. Leaves out a family without samples.
struct Families<'a, 'e>(&'a mut DescriptorEncoder<'e>);

impl Families<'_, '_> {
    fn add(
        &mut self,
        kind: MetricType,
        (name, unit, what): (&str, Option<Unit>, &str),
        samples: Vec<Sample<'_>>,
    ) -> fmt::Result {
        if samples.is_empty() {
            return Ok(());
        }
        let name = format!("unisono_queue_{name}");
        let mut family = self.0.encode_descriptor(&name, what, unit.as_ref(), kind)?;
        for (labels, value) in samples {
            let mut sample = family.encode_family(&labels)?;
            match (kind, value) {
                (Counter, Whole(value)) => sample.encode_counter::<Labels<'_>, _, f64>(&value, None)?,
                (Counter, Real(value)) => sample.encode_counter::<Labels<'_>, _, f64>(&value, None)?,
                (_, Whole(value)) => sample.encode_gauge(&value)?,
                (_, Real(value)) => sample.encode_gauge(&value)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
