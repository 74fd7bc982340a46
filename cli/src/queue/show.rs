//! `unisono queue show`: watches the rate, share and backlog of each class.

use super::group_use::{GroupReading, GroupUses};
use super::side::WantedSides;
use super::socket_use::{self, SocketUse};
use super::unseen::{Passage, PassageWatch};
use super::view::{link_rate, only, table, unknown_class, wait_of};
use super::{disk_show, failure};
use crate::columns::fold;
use crate::exit::Failure;
use crate::live_view::{LiveViewFlags, LiveViewText, body_rows};
use crate::machine_output::{self, CsvFlag, TableForm};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use unisono_enforce::SocketShare;
use unisono_enforce::backends;
use unisono_enforce::interposed::Counters;
use unisono_enforce::journal::{Journal, LinkSide};
use unisono_fairqueue::{LinkFraming, Live, LiveClass, Pace};

/// Watch each class: rates, shares, drops, waiting packets
///
/// The command prints a table at every interval until Ctrl-C. Rates come from two readings. On a terminal the
/// new table replaces the old one, classes that do not fit are left out (the idlest first), and `q` and Esc
/// end the command, too. Columns are left out if they do not fit the terminal, or the exported COLUMNS. The
/// share of a class is its part of the traffic since the last table, also when the link is nearly idle, and
/// no part of the link's rate. The interposed backend, and Unisono's scheduler in the kernel, measure
/// how long packets waited since the policy came into force: min, median, p99, max. The kernel's own classes
/// do not measure it: for them "wait" is an estimate, the bytes that wait now divided by the rate of their
/// class. If the policy has [cpu] or [io], tables show each control group's share of the processors and of
/// the disks, too; and if sockets weigh themselves (`unisono queue guard`), a table shows them with the
/// program, the user and the weight of each.
/// Before it reads, the command cleans up after killed `unisono queue` commands. While a policy is being
/// applied, it says so, and goes on when the policy is in force. After ten seconds, and with
/// --once, it also says when most traffic passes another device or the other direction. With --disk it
/// watches a disk that `unisono queue disk` serves: bytes, waiting requests and times of each class.
/// Where kernel threads of each class receive its packets (`receive = "by-class"`), "receiving" is their
/// processor time in percent of one processor, and "early/s" counts the frames that were dropped before the
/// network stack saw them.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  unisono queue show --dev eth0
  unisono queue show --dev eth0 --once
      print one table
  unisono queue show --dev eth0 --json
      print JSON Lines, one object for each interval
  unisono queue show --disk /run/disk.sock
      watch a served disk")]
pub(crate) struct Args {
    #[command(flatten)]
    sides: WantedSides,
    /// Watch the disk that `unisono queue disk` serves at this socket
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["dev", "direction"])]
    disk: Option<PathBuf>,
    /// Show only this class and the classes below it; may be given several times
    #[arg(long, value_name = "NAME", conflicts_with = "disk")]
    class: Vec<String>,
    #[command(flatten)]
    view: LiveViewFlags,
    /// Print JSON Lines: totals and rates of each class
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    table: CsvFlag,
}

const VIEW: LiveViewText = LiveViewText {
    title: "unisono queue show",
    help: "guaranteed: the rate of a class while all classes send. gets: its rate since the last table. share: its part \
           of the traffic since then, also of very little; the bar: its part of the link's rate. drops/s: packets that \
           its queue refused. waiting: bytes in its queue. wait: the time that they need at this rate; min, median, p99 \
           and max: how long packets waited since the policy is in force, 0 where a packet left in the turn in which it \
           was read. receiving: processor time of the threads that receive for the class, in percent of one processor. \
           early/s: frames dropped before the network stack. Columns that do not fit are left out.",
};

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let output = TableForm::chosen(args.json, args.table.csv);
    if let Some(socket) = &args.disk {
        return disk_show::show(socket, &args.view, output);
    }
    let (sides, mut earlier) = first_readings(args)?;
    let mut watch = PassageWatch::start(&lives(&earlier));
    let mut passages: Vec<Passage> = Vec::new();
    let between = if output == TableForm::Text { "\n\n" } else { "\n" };
    args.view.show(output, &VIEW, |width| {
        let readings = match read_all(&sides)? {
            AllReadings::Read(readings) => readings,
            AllReadings::BeingApplied(side) if output == TableForm::Text && !args.view.once => {
                return Ok(being_applied(&side));
            }
            AllReadings::BeingApplied(_) => read_when_in_force(&sides, |_| {})?,
        };
        if watch.is_over() || args.view.once || output == TableForm::Csv {
            passages = watch.judge(&lives(&readings));
            watch = PassageWatch::start(&lives(&readings));
        }
        let paces = |(now, earlier): (&Reading, &Reading)| now.live.paces(&earlier.live);
        let paces: Vec<Vec<Pace>> = readings.iter().zip(&earlier).map(paces).collect();
        let shown = chosen(&readings, &paces, &args.class)?;
        if output == TableForm::Csv {
            let rows = shown.iter().flat_map(|(live, paces)| rows(live, paces));
            return Ok(machine_output::csv(&rows.collect::<Vec<_>>())?);
        }
        let rows = body_rows() / readings.len();
        let texts = readings.iter().zip(&earlier).enumerate().map(|(at, (now, earlier))| {
            let uses = now.group_uses(earlier);
            let ((live, of_shown), all) = (&shown[at], &paces[at]);
            let sockets = now.socket_uses(earlier);
            if output == TableForm::Json {
                let mut object = json(now, (live, of_shown), &uses, passages.get(at));
                object["sockets"] = socket_use::json_of(&sockets).into();
                return machine_output::json("unisono-queue-show-1", &object);
            }
            let note = passages.get(at).filter(|passage| passage.unseen.is_some());
            let note = note.map_or_else(String::new, |passage| format!("\n{}", passage.in_words()));
            let others = others(now, all, &uses, width) + &socket_use::table(&sockets, width);
            let others = fold(&(others + &note), width);
            // an empty line stands between two devices
            let rows =
                if rows == usize::MAX { rows } else { rows.saturating_sub(others.lines().count() + 1) };
            Ok(table(live, of_shown, link_rate(&now.live, all), width, rows) + &others)
        });
        let text = texts.collect::<serde_json::Result<Vec<_>>>()?.join(between);
        earlier = readings;
        Ok(text)
    })
}

/// The interval of checks whether a policy that is being applied is in force. Each check is some system
/// calls; a person does not notice the delay.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the policies to show, and a reading of each.
fn first_readings(args: &Args) -> anyhow::Result<(Vec<LinkSide>, Vec<Reading>)> {
    loop {
        let (sides, is_restored) = sides_in_force(args)?;
        match read_when_in_force(&sides, |side| failure::warn(&[being_applied(side)])) {
            Ok(readings) => return Ok((sides, readings)),
            // the command that was changing queues was killed: its device has to be restored first
            Err(_) if !is_restored => thread::sleep(POLL_INTERVAL),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the policies to show, and whether the devices of killed commands were restored before. If another
/// command is changing queues, its end is not waited for, unless there is no policy yet: it may take minutes
/// to make thousands of classes.
fn sides_in_force(args: &Args) -> anyhow::Result<(Vec<LinkSide>, bool)> {
    loop {
        let is_locked = Journal::is_locked().map_err(|error| failure::from_error(error.into()))?;
        if !is_locked {
            failure::warn(&unisono_enforce::cpu::recover_all().map_err(failure::from_error)?);
            failure::recover_all()?;
        }
        let sides = args.sides.in_force().map_err(failure::from_error)?;
        if !sides.is_empty() {
            return Ok((sides, !is_locked));
        }
        if !is_locked {
            let what = "no device here has a policy; apply one: unisono queue apply POLICY --dev DEV";
            return Err(Failure::Host(what.to_owned()).into());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// The readings of several policies.
enum AllReadings {
    Read(Vec<Reading>),
    /// The policy of this side is being applied, so that it cannot be read.
    BeingApplied(LinkSide),
}

fn read_all(sides: &[LinkSide]) -> anyhow::Result<AllReadings> {
    let mut readings = Vec::new();
    for side in sides {
        let is_being_changed =
            || Journal::is_being_changed(side).map_err(|error| failure::from_error(error.into()));
        if is_being_changed()? {
            return Ok(AllReadings::BeingApplied(side.clone()));
        }
        match Reading::read(side) {
            Ok(reading) => readings.push(reading),
            // the change has begun meanwhile
            Err(_) if is_being_changed()? => return Ok(AllReadings::BeingApplied(side.clone())),
            Err(error) => return Err(error),
        }
    }
    Ok(AllReadings::Read(readings))
}

/// Reads the policies as soon as all of them are in force. Calls `waits` once if it has to wait for one.
fn read_when_in_force(sides: &[LinkSide], waits: impl FnOnce(&LinkSide)) -> anyhow::Result<Vec<Reading>> {
    let mut waits = Some(waits);
    loop {
        match read_all(sides)? {
            AllReadings::Read(readings) => return Ok(readings),
            AllReadings::BeingApplied(side) => {
                if let Some(waits) = waits.take() {
                    waits(&side);
                }
                thread::sleep(POLL_INTERVAL);
            }
        }
    }
}

fn being_applied(side: &LinkSide) -> String {
    format!("a policy is being applied to {side}; its classes are shown when it is in force")
}

/// The classes of a policy that are shown, and their rates.
type ShownClasses<'a> = (Cow<'a, Live>, Cow<'a, [Pace]>);

/// Returns the classes of each reading that `--class` chooses; all classes if it names none. A class need not
/// be in the policy of every device, so a reading may have none.
fn chosen<'a>(
    readings: &'a [Reading],
    paces: &'a [Vec<Pace>],
    names: &[String],
) -> Result<Vec<ShownClasses<'a>>, Failure> {
    if let Some(why) = unknown_class(&lives(readings), names) {
        return Err(Failure::Usage(why));
    }
    let choose = |(now, paces): (&'a Reading, &'a Vec<Pace>)| match names.is_empty() {
        true => (Cow::Borrowed(&now.live), Cow::Borrowed(paces.as_slice())),
        false => {
            let (live, paces) = only(&now.live, paces, names);
            (Cow::Owned(live), Cow::Owned(paces))
        }
    };
    Ok(readings.iter().zip(paces).map(choose).collect())
}

fn lives(readings: &[Reading]) -> Vec<&Live> {
    readings.iter().map(|reading| &reading.live).collect()
}

/// All counters of a device, read at the same time.
pub(super) struct Reading {
    pub(super) live: Live,
    counters: Option<Counters>,
    groups: GroupReading,
    sockets: Vec<SocketShare>,
    at: Instant,
}

impl Reading {
    pub(super) fn read(side: &LinkSide) -> anyhow::Result<Self> {
        let mut backend = backends::in_force(side).map_err(failure::from_error)?;
        let figures = backend.figures();
        failure::warn(backend.notes());
        let (live, counters) = figures.map_err(failure::from_error)?;
        let sockets = backend.sockets().map_err(failure::from_error)?;
        let groups = GroupReading::read(side).map_err(failure::from_error)?;
        Ok(Self { live, counters, groups, sockets, at: Instant::now() })
    }

    fn group_uses(&self, earlier: &Self) -> GroupUses {
        self.groups.since(&earlier.groups, self.at.duration_since(earlier.at))
    }

    fn socket_uses(&self, earlier: &Self) -> Vec<SocketUse<'_>> {
        socket_use::uses(&self.sockets, &earlier.sockets, self.at.duration_since(earlier.at))
    }
}

/// Returns the counters and rates of a class as JSON.
fn class((class, pace): (&LiveClass, &Pace)) -> Value {
    json!({
        "name": class.name, "parent": class.parent, "guarantee": class.guarantee, "rate": pace.rate,
        "share": pace.share, "dropped_per_s": pace.dropped, "packets": class.packets,
        "bytes": class.bytes, "dropped": class.dropped, "waiting": class.backlog, "queue": class.queue,
        "wait_ns": wait_of(class, pace), "delay": class.delay, "receiving": class.receiving,
    })
}

/// Returns a row of a table for each class, with the device and the direction before its figures.
fn rows(Live { device, direction, classes, .. }: &Live, paces: &[Pace]) -> Vec<Value> {
    let row = |figures: Value| {
        let side = json!({ "device": device, "direction": direction });
        side.as_object()
            .into_iter()
            .chain(figures.as_object())
            .flatten()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    classes.iter().zip(paces).map(class).map(row).collect()
}

fn json(
    reading: &Reading,
    (live, paces): (&Live, &[Pace]),
    uses: &GroupUses,
    passage: Option<&Passage>,
) -> Value {
    let classes: Vec<_> = live.classes.iter().zip(paces).map(class).collect();
    json!({
        "backend": live.backend, "device": live.device, "direction": live.direction, "at_ns": live.at_ns,
        "rate": live.rate, "overhead": live.framing.overhead, "atm": live.framing.atm, "classes": classes,
        "counters": reading.counters, "cpu": uses.cpu_json(), "io": uses.disk_json(), "passage": passage,
    })
}

/// Says in which classes the flows take turns, if that depends on the kernel; otherwise empty.
fn queues(live: &Live) -> String {
    let named = |wanted: fn(&str) -> bool| {
        let classes = live.classes.iter().filter(|class| class.queue.as_deref().is_some_and(wanted));
        classes.map(|class| class.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (fair, plain) = (named(|queue| queue == "fq_codel"), named(|queue| queue != "fq_codel"));
    match (fair.is_empty(), plain.is_empty()) {
        (true, true) => String::new(),
        (false, true) => "\nflows take turns inside of every class (fq_codel)".to_owned(),
        (false, false) => {
            format!("\nflows take turns inside of {fair} (fq_codel), and wait together in {plain}")
        }
        (true, false) => "\nflows wait together inside of every class: fq_codel is not used".to_owned(),
    }
}

/// Returns the link's overhead per packet in words; empty without overhead.
fn framing(framing: LinkFraming) -> String {
    let cells = if framing.atm { ", in ATM cells" } else { "" };
    match framing {
        framing if framing.is_plain() => String::new(),
        LinkFraming { overhead: 0, .. } => format!("\npackets count as on the link{cells}"),
        LinkFraming { overhead, .. } => {
            format!("\npackets count as on the link: {overhead:+} bytes each{cells}")
        }
    }
}

/// Returns the lines below the classes.
fn others(reading: &Reading, paces: &[Pace], uses: &GroupUses, width: usize) -> String {
    let mut text = String::new();
    text.push_str(&framing(reading.live.framing));
    text.push_str(&queues(&reading.live));
    if let Some(Counters { received, malformed, strangers, overrun, unsent, merged, too_long, unattended }) =
        reading.counters
    {
        let _ = write!(
            text,
            "\n{received} frames came; dropped: {malformed} malformed, {strangers} not from the device, {overrun} overrun; \
             {unsent} not taken by the device; {merged} handed to it as parts of larger ones"
        );
        if too_long > 0 {
            let _ = write!(text, "; {too_long} longer than the queue takes passed by it, unscheduled");
        }
        if unattended > 0 {
            let _ = write!(text, "; {unattended} passed by it, unscheduled, while it had no processor");
        }
    }
    text.push_str(&uses.table(&reading.live, paces, width));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_fairqueue::{Backlog, DelayFigures, Rate, TrafficDirection};

    #[test]
    fn each_device_has_its_own_chosen_classes_also_where_it_lacks_one_of_them() {
        let both = || {
            let (first, mut second) = (reading(1000, None), reading(1000, None));
            second.live.device = "eth1".to_owned();
            second.live.classes.retain(|class| class.name == "rest");
            [first, second]
        };
        let [first, second] = both();
        for readings in [both(), [second, first]] {
            let paces: Vec<_> = readings.iter().map(|now| now.live.paces(&now.live)).collect();
            let names = |names: &[&str]| -> Vec<Vec<String>> {
                let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
                let chosen = chosen(&readings, &paces, &names).unwrap_or_else(|error| panic!("{error}"));
                let of = |(live, paces): &ShownClasses<'_>| {
                    assert_eq!(live.classes.len(), paces.len());
                    live.classes.iter().map(|class| format!("{} {}", live.device, class.name)).collect()
                };
                chosen.iter().map(of).collect()
            };
            for (at, of) in names(&["video"]).iter().enumerate() {
                let expected: &[&str] =
                    if readings[at].live.device == "eth0" { &["eth0 video"] } else { &[] };
                assert_eq!(of, expected);
            }
            assert_eq!(names(&["video", "rest"]), names(&[]));
            assert!(chosen(&readings, &paces, &["vidoe".to_owned()]).is_err());
        }
    }

    fn reading(at_ns: u64, delay: Option<DelayFigures>) -> Reading {
        let class = |name: &str, bytes: u64, delay| LiveClass {
            name: name.to_owned(),
            parent: None,
            guarantee: 5e7,
            packets: bytes / 1000,
            bytes,
            dropped: 0,
            backlog: Backlog::default(),
            queue: None,
            delay,
            receiving: None,
        };
        let classes = vec![class("video", at_ns / 1000 * 3, delay), class("rest", at_ns / 1000, None)];
        let (backend, device) = ("interposed".to_owned(), "eth0".to_owned());
        let live = Live {
            backend,
            device,
            direction: TrafficDirection::Out,
            at_ns,
            rate: Rate::new(100_000_000).expect("above zero"),
            framing: LinkFraming::default(),
            classes,
        };
        let counters = delay.map(|_| Counters {
            received: 90,
            malformed: 1,
            strangers: 2,
            overrun: 3,
            unsent: 4,
            merged: 5,
            too_long: 0,
            unattended: 0,
        });
        Reading { live, counters, groups: GroupReading::default(), sockets: Vec::new(), at: Instant::now() }
    }

    #[test]
    fn a_table_says_what_the_place_says() {
        let delay =
            DelayFigures { min_ns: 900, median_ns: 20_000, mean_ns: 1, p99_ns: 3_000_000, max_ns: 4_000_000 };
        let (before, now) = (reading(0, Some(delay)), reading(1_000_000_000, Some(delay)));
        let table = [
            table(&now.live, &now.live.paces(&before.live), 32e6, usize::MAX, usize::MAX),
            others(&now, &[], &GroupUses::default(), usize::MAX),
        ]
        .concat();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].ends_with("      min   median      p99      max"), "{table}");
        assert!(
            lines[1].contains("75.0%  ###  ") && lines[1].ends_with("900 ns  20.0 us   3.0 ms   4.0 ms"),
            "{table}"
        );
        assert_eq!(
            lines[4],
            "90 frames came; dropped: 1 malformed, 2 not from the device, 3 overrun; 4 not taken by the device; \
             5 handed to it as parts of larger ones"
        );
        let json =
            json(&now, (&now.live, &now.live.paces(&before.live)), &GroupUses::default(), None).to_string();
        assert!(json.contains("\"counters\":{\"received\":90,\"malformed\":1,"), "{json}");
        assert!(json.contains("\"min_ns\":900,\"median_ns\":20000,"), "{json}");
    }

    #[test]
    fn where_a_place_does_not_say_how_long_packets_waited_it_is_worked_out_for_those_that_wait() {
        let (before, mut now) = (reading(0, None), reading(1_000_000_000, None));
        now.live.classes[0].backlog = Backlog { packets: 40, bytes: 60_000 };
        let mut paces = now.live.paces(&before.live);
        // the expected wait: 480,000 bits at 24 Mbit/s
        let text = table(&now.live, &paces, 32e6, usize::MAX, usize::MAX);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("waiting     wait"), "{text}");
        assert!(lines[1].ends_with("58.6 KiB  20.0 ms") && lines[2].ends_with("0 B     0 ns"), "{text}");
        assert!(
            json(&now, (&now.live, &paces), &GroupUses::default(), None)
                .to_string()
                .contains("\"wait_ns\":20000000")
        );
        paces[0].rate = 0.0;
        assert!(
            table(&now.live, &paces, 32e6, usize::MAX, usize::MAX)
                .lines()
                .nth(1)
                .is_some_and(|line| line.ends_with("58.6 KiB        -"))
        );
        assert!(
            json(&now, (&now.live, &paces), &GroupUses::default(), None)
                .to_string()
                .contains("\"wait_ns\":null"),
            "nothing leaves"
        );
        assert_eq!(others(&reading(0, None), &[], &GroupUses::default(), usize::MAX), "");
    }

    #[test]
    fn it_says_where_flows_take_turns_if_that_depends_on_the_kernel() {
        let line_for = |queues: [&str; 2]| {
            let mut reading = reading(0, None);
            for (class, queue) in reading.live.classes.iter_mut().zip(queues) {
                class.queue = Some(queue.to_owned());
            }
            assert!(
                json(
                    &reading,
                    (&reading.live, &reading.live.paces(&reading.live)),
                    &GroupUses::default(),
                    None
                )
                .to_string()
                .contains(queues[0])
            );
            others(&reading, &[], &GroupUses::default(), usize::MAX)
        };
        assert_eq!(line_for(["fq_codel"; 2]), "\nflows take turns inside of every class (fq_codel)");
        assert!(
            line_for(["fq_codel", "pfifo"])
                .ends_with("take turns inside of video (fq_codel), and wait together in rest")
        );
        assert!(line_for(["bfifo", "pfifo"]).contains("flows wait together inside of every class"));
    }
}
