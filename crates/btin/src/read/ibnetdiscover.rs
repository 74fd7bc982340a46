//! Reads the output of `ibnetdiscover`, InfiniBand's list of cables and their ends.
//!
//! ```text
//! switchguid=0x2c90000000001(2c90000000001)
//! Switch  36 "S-0002c90000000001"  # "leaf 1" enhanced port 0 lid 1 lmc 0
//! [1]     "H-0002c90000000100"[1](2c90000000101)  # "node-1 HCA-1" lid 9 4xEDR
//! [17]    "S-0002c90000000002"[4]                 # "spine 1" lid 2 4xEDR
//! ```
//!
//! Port numbers are the hardware's. InfiniBand counts the outer ports of a switch from 1; port 0 is inside
//! the switch and stays free. So a switch of 36 ports has ports 0 to 36 here. A cable is listed at both of
//! its ends; if the ends disagree the file is wrong. A channel adapter with several cables becomes one node
//! for each cable.
//!
//! The reader accepts three dialects: the plain output; the grouped output (`-g`), with headings such as
//! *Non-Chassis Nodes* and two lists for the switches of a chassis; and the files of the simulator ibsim,
//! where an adapter is called `Hca`, `[1]` at the far end is left out, and options such as `w=4` follow it.
//! It also accepts a file into which standard error was written. The notes then say that cables may be
//! missing.

use super::draft::{Draft, DraftCable, Plug};
use super::words::VertexKind;
use crate::format::ReadError;
use std::collections::HashMap;
use unisono_text::counted;

/// A line `[port] "far end"[port]`.
struct PortLine {
    here: usize,
    port: u32,
    far: String,
    far_port: u32,
    /// The description of the far end, from the comment.
    label: String,
    /// Whether the line is in the second block of a switch that a grouped output lists twice.
    again: bool,
    at: usize,
}

/// The block being read: its vertex and the number of its ports.
#[derive(Clone, Copy)]
struct OpenBlock {
    vertex: usize,
    ports: u32,
    again: bool,
}

/// Keys that this reader skips: they repeat data of the blocks, or do not matter to a network.
const KEYS: [&str; 9] =
    ["vendid", "devid", "sysimgguid", "switchguid", "caguid", "rtguid", "hcaguids", "width", "speed"];

/// Returns whether a line identifies this kind of file: the start of a block, an identifier, or a heading of
/// grouped output.
pub(super) fn is_telling(line: &str) -> bool {
    let word = first_word(line);
    let is_block = matches!(word, "Switch" | "Ca" | "Rt" | "Hca") && block(line).is_ok();
    let is_key = KEYS[..6].contains(&word) && line[word.len()..].trim_start().starts_with('=');
    is_block || is_key || line == "Non-Chassis Nodes"
}

fn first_word(line: &str) -> &str {
    line.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// Returns whether a line is an error message: `ibwarn: [7] ...`, or a source file and line, as libibnetdisc
/// prints.
fn is_complaint(line: &str) -> bool {
    let by_name = ["ibwarn:", "ibpanic:", "ibdebug:", "ibnetdiscover:"];
    let by_place = line.split_once(".c:").is_some_and(|(file, rest)| {
        !file.contains(char::is_whitespace) && rest.starts_with(|c: char| c.is_ascii_digit())
    });
    by_name.iter().any(|name| line.starts_with(name)) || by_place
}

pub(super) fn read(text: &str) -> Result<Draft, ReadError> {
    let mut draft = Draft::default();
    let mut seen = Vec::new();
    let mut here: Option<OpenBlock> = None;
    let mut has_begun = false;
    let mut complaints: Vec<String> = Vec::new();
    let mut offset = 0;
    for whole in text.split_inclusive('\n') {
        let at = offset + whole.len() - whole.trim_start().len();
        offset += whole.len();
        let line = whole.trim();
        let wrong = |problem: String| ReadError::at(text, at, "", problem);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('[') {
            let Some(OpenBlock { vertex, ports, again }) = here else {
                return Err(wrong("a port before the first Switch, Ca or Rt".to_owned()));
            };
            let mut cable = port_line(line, vertex).map_err(&wrong)?;
            if cable.port == 0 || cable.port > ports {
                let name = &draft.vertices[vertex].name;
                return Err(wrong(format!("port {} of {name}, which has ports 1 to {ports}", cable.port)));
            }
            (cable.at, cable.again) = (at, again);
            seen.push(cable);
            continue;
        }
        let word = first_word(line);
        has_begun |= matches!(word, "Switch" | "Ca" | "Rt" | "Hca") || is_telling(line);
        match word {
            "Switch" | "Ca" | "Rt" | "Hca" if has_begun => {
                here = Some(open(&mut draft, line, word, at).map_err(|problem| {
                    let name = block(line).map(|(name, ..)| name).unwrap_or_default();
                    ReadError::at(text, at, if problem == TWICE { name } else { "" }, problem)
                })?);
            }
            _ if is_complaint(line) => complaints.push(line.to_owned()),
            _ if KEYS.contains(&word) && line.contains('=') => {}
            _ if line.split_once('=').is_some_and(|(key, _)| key == word) => draft.unknown("key", word),
            "Chassis" | "chassisguid" | "Hostname" | "Spine" | "Line" | "Non" | "module" | "do"
            | "pdebug" => {
                draft.unknown("line", word);
            }
            "include" => return Err(wrong("include is not read; put both files into one".to_owned())),
            _ if !has_begun => complaints.push(line.to_owned()),
            _ => {
                let problem = "expected Switch, Ca or Rt with a number of ports and a name in quotes, [port] with \
                    the name at the other end, key=value, or # comment";
                return Err(wrong(problem.to_owned()));
            }
        }
    }
    if let Some(first) = complaints.first() {
        draft.notes.push(format!(
            "{} of standard error left out, the first {first:?}: what is complained about may be missing",
            counted(complaints.len(), "line")
        ));
    }
    pair(&mut draft, &seen, text)?;
    Ok(draft)
}

const TWICE: &str = "this block is there twice, with another number of ports";

/// Begins a block. A switch of a chassis may have two blocks, with the same contents.
fn open(draft: &mut Draft, line: &str, word: &str, at: usize) -> Result<OpenBlock, String> {
    let (name, ports, label) = block(line)?;
    let stated = if word == "Switch" { u16::try_from(ports + 1).ok() } else { None };
    let again = draft.find(name).is_some();
    let vertex = draft.vertex(name, at);
    let known = &mut draft.vertices[vertex];
    let kind = if word == "Switch" { VertexKind::Switch } else { VertexKind::Node };
    if again && (known.kind, known.ports) != (kind, stated) {
        return Err(TWICE.to_owned());
    }
    (known.kind, known.ports) = (kind, stated);
    known.label = label.to_owned();
    Ok(OpenBlock { vertex, ports, again })
}

/// Reads `Switch 36 "S-..." # "leaf 1" ...`. Returns the name, the number of ports, and the description in
/// the comment (empty if there is none).
fn block<'a>(line: &'a str) -> Result<(&'a str, u32, &'a str), String> {
    let word = |text: &'a str| text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (_kind, rest) = word(line);
    let (ports, rest) = word(rest.trim_start());
    let ports = match ports.parse::<u32>() {
        Ok(ports) if ports < u32::from(u16::MAX) => ports,
        _ => return Err(format!("{ports:?} is no number of ports; write one from 0 to 65534")),
    };
    let (name, rest) = quoted(rest.trim_start())?;
    Ok((name, ports, label(rest)))
}

/// Returns the description in the comment at the end of a line, such as `leaf 1` in `# "leaf 1" lid 1 4xEDR`.
fn label(rest: &str) -> &str {
    let comment = rest.split_once('#').map_or("", |(_, comment)| comment);
    // an adapter's own number and mask come before the description of the other end
    let from = comment.find('"').unwrap_or(comment.len());
    quoted(&comment[from..]).map_or("", |(label, _)| label.trim())
}

/// Returns the text in quotes, and the rest of the line.
fn quoted(text: &str) -> Result<(&str, &str), String> {
    let inner = text.strip_prefix('"').ok_or("expected a name in quotes")?;
    inner.split_once('"').ok_or_else(|| "the quotes do not end".to_owned())
}

/// Returns the number in `[17]`, and the rest of the line.
fn bracketed(text: &str) -> Result<(u32, &str), String> {
    let inner = text.strip_prefix('[').ok_or("expected [port]")?;
    let (number, rest) = inner.split_once(']').ok_or("the [ does not end")?;
    Ok((number.trim().parse().map_err(|_| format!("{number:?} is no number of a port"))?, rest))
}

/// Skips `(guid)` and `[ext 5]` after a port.
fn over_extras(mut rest: &str) -> Result<&str, String> {
    loop {
        rest = rest.trim_start();
        let end = match () {
            () if rest.starts_with('(') => ')',
            () if rest.starts_with("[ext") => ']',
            () => return Ok(rest),
        };
        rest = rest.split_once(end).ok_or_else(|| format!("{end} is missing"))?.1;
    }
}

fn port_line(line: &str, here: usize) -> Result<PortLine, String> {
    let (port, rest) = bracketed(line)?;
    let (far, rest) = quoted(over_extras(rest)?)?;
    let rest = rest.trim_start();
    // in ibsim's files, a missing port means port 1
    let (far_port, rest) = if rest.starts_with('[') { bracketed(rest)? } else { (1, rest) };
    let rest = over_extras(rest)?;
    let options = rest.split_once('#').map_or(rest, |(options, _)| options);
    let mut words = options.split_whitespace();
    while let Some(word) = words.next() {
        let is_pair = word.split_once('=').is_some_and(|(key, value)| !key.is_empty() && !value.is_empty());
        let is_number =
            matches!(word, "lid" | "lmc") && words.next().is_some_and(|n| n.parse::<u32>().is_ok());
        if !is_pair && !is_number {
            return Err(format!("{rest:?} after the port at the other end"));
        }
    }
    let (far, label) = (far.to_owned(), label(rest).to_owned());
    Ok(PortLine { here, port, far, far_port, label, again: false, at: 0 })
}

/// Makes one cable of each two lines that describe its two ends.
fn pair(draft: &mut Draft, seen: &[PortLine], text: &str) -> Result<(), ReadError> {
    let mut at_port: HashMap<(usize, u32), usize> = HashMap::new();
    let mut repeated = vec![false; seen.len()];
    for (number, line) in seen.iter().enumerate() {
        let before = *at_port.entry((line.here, line.port)).or_insert(number);
        if before == number {
            continue;
        }
        let first = &seen[before];
        repeated[number] = line.again && (&first.far, first.far_port) == (&line.far, line.far_port);
        if !repeated[number] {
            let name = &draft.vertices[line.here].name;
            let problem = format!("port {} of {name} is used twice", line.port);
            return Err(ReadError::at(text, line.at, "", problem));
        }
    }
    let (mut one_sided, mut absent) = (0_usize, 0_usize);
    for (number, line) in seen.iter().enumerate().filter(|(number, _)| !repeated[*number]) {
        let far = if let Some(far) = draft.find(&line.far) {
            far
        } else {
            // the device has no block of its own; the first letter of its name gives its kind
            absent += 1;
            let vertex = draft.vertex(&line.far, line.at);
            draft.vertices[vertex].kind =
                if line.far.starts_with("S-") { VertexKind::Switch } else { VertexKind::Node };
            draft.vertices[vertex].label.clone_from(&line.label);
            vertex
        };
        match at_port.get(&(far, line.far_port)).map(|other| (*other, &seen[*other])) {
            Some((other, back)) => {
                if draft.find(&back.far) != Some(line.here) || back.far_port != line.port {
                    let name = |vertex: usize| &draft.vertices[vertex].name;
                    let problem = format!(
                        "port {} of {} leads to port {} of {}, which leads to port {} of {}",
                        line.port,
                        name(line.here),
                        line.far_port,
                        name(far),
                        back.far_port,
                        back.far,
                    );
                    return Err(ReadError::at(text, line.at, "", problem));
                }
                if other < number {
                    continue; // the line of the other end made the cable
                }
            }
            None => one_sided += 1,
        }
        let plug = |vertex, port: u32| Plug { vertex, port: Some(port.to_string()) };
        let cable = DraftCable { a: plug(line.here, line.port), b: plug(far, line.far_port), at: line.at };
        draft.cables.push(cable);
    }
    if one_sided > 0 {
        draft.notes.push(format!("{} listed at one end only", counted(one_sided, "cable")));
    }
    if absent > 0 {
        draft.notes.push(format!("{} to something that has no block of its own", counted(absent, "cable")));
    }
    Ok(())
}
