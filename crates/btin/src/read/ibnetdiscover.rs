//! The output of `ibnetdiscover`, InfiniBand's list of what is plugged into what.
//!
//! ```text
//! switchguid=0x2c90000000001(2c90000000001)
//! Switch  36 "S-0002c90000000001"  # "leaf 1" enhanced port 0 lid 1 lmc 0
//! [1]     "H-0002c90000000100"[1](2c90000000101)  # "node-1 HCA-1" lid 9 4xEDR
//! [17]    "S-0002c90000000002"[4]                 # "spine 1" lid 2 4xEDR
//! ```
//!
//! Port numbers are the real ones. InfiniBand counts the outer ports of a switch from 1; its port 0 is inside and
//! stays free, so a switch of 36 ports has ports 0 to 36 here. A cable is listed at both of its ends; if the
//! ends disagree the file is wrong. A channel adapter with several cables becomes a node a cable.

use super::draft::{Cable, Draft, Kind, Plug};
use crate::format::ReadError;
use std::collections::HashMap;

/// One line `[port] "who"[port]`.
struct Seen {
    here: usize,
    port: u32,
    far: String,
    far_port: u32,
    at: usize,
}

pub(super) fn read(text: &str) -> Result<Draft, ReadError> {
    let mut draft = Draft::default();
    let mut seen = Vec::new();
    let mut here: Option<(usize, u32)> = None;
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
            let Some((vertex, ports)) = here else {
                return Err(wrong("a port before the first Switch, Ca or Rt".to_owned()));
            };
            let mut cable = port_line(line, vertex).map_err(&wrong)?;
            if cable.port == 0 || cable.port > ports {
                let name = &draft.vertices[vertex].name;
                return Err(wrong(format!("port {} of {name}, which has ports 1 to {ports}", cable.port)));
            }
            cable.at = at;
            seen.push(cable);
            continue;
        }
        let word = line.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        match word {
            "Switch" | "Ca" | "Rt" => {
                let (name, ports) = block(line).map_err(&wrong)?;
                if draft.find(name).is_some() {
                    return Err(ReadError::at(text, at, name, "this block is there twice"));
                }
                let vertex = draft.vertex(name, at);
                draft.vertices[vertex].kind = if word == "Switch" { Kind::Switch } else { Kind::Node };
                if word == "Switch" {
                    draft.vertices[vertex].ports = u16::try_from(ports + 1).ok();
                }
                here = Some((vertex, ports));
            }
            "vendid" | "devid" | "sysimgguid" | "switchguid" | "caguid" | "rtguid" => {}
            _ if line.split_once('=').is_some_and(|(key, _)| key == word) => draft.unknown("key", word),
            "Chassis" | "chassisguid" | "Spine" | "Line" | "Non" => draft.unknown("line", word),
            _ => {
                let problem = "expected Switch, Ca or Rt with a number of ports and a name in quotes, [port] with \
                    the name at the other end, key=value, or # comment";
                return Err(wrong(problem.to_owned()));
            }
        }
    }
    pair(&mut draft, &seen, text)?;
    Ok(draft)
}

/// `Switch 36 "S-..."`: name and ports.
fn block<'a>(line: &'a str) -> Result<(&'a str, u32), String> {
    let word = |text: &'a str| text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let (_kind, rest) = word(line);
    let (ports, rest) = word(rest.trim_start());
    let ports = match ports.parse::<u32>() {
        Ok(ports) if ports < u32::from(u16::MAX) => ports,
        _ => return Err(format!("{ports:?} is no number of ports")),
    };
    let (name, _) = quoted(rest.trim_start())?;
    Ok((name, ports))
}

/// The text in quotes, and what follows.
fn quoted(text: &str) -> Result<(&str, &str), String> {
    let inner = text.strip_prefix('"').ok_or("expected a name in quotes")?;
    inner.split_once('"').ok_or_else(|| "the quotes do not end".to_owned())
}

/// `[17]`, and what follows.
fn bracketed(text: &str) -> Result<(u32, &str), String> {
    let inner = text.strip_prefix('[').ok_or("expected [port]")?;
    let (number, rest) = inner.split_once(']').ok_or("the [ does not end")?;
    Ok((number.trim().parse().map_err(|_| format!("{number:?} is no number of a port"))?, rest))
}

/// Over what may stand behind a port: `(guid)` and `[ext 5]`.
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

fn port_line(line: &str, here: usize) -> Result<Seen, String> {
    let (port, rest) = bracketed(line)?;
    let (far, rest) = quoted(over_extras(rest)?)?;
    let (far_port, rest) = bracketed(rest.trim_start())?;
    let rest = over_extras(rest)?;
    if !rest.is_empty() && !rest.starts_with('#') {
        return Err(format!("{rest:?} after the port at the other end"));
    }
    Ok(Seen { here, port, far: far.to_owned(), far_port, at: 0 })
}

/// Two lines, one from each end, are one cable.
fn pair(draft: &mut Draft, seen: &[Seen], text: &str) -> Result<(), ReadError> {
    let mut at_port: HashMap<(usize, u32), usize> = HashMap::new();
    for (number, line) in seen.iter().enumerate() {
        if at_port.insert((line.here, line.port), number).is_some() {
            let name = &draft.vertices[line.here].name;
            let problem = format!("port {} of {name} is used twice", line.port);
            return Err(ReadError::at(text, line.at, "", problem));
        }
    }
    let (mut one_sided, mut absent) = (0_usize, 0_usize);
    for (number, line) in seen.iter().enumerate() {
        let far = if let Some(far) = draft.find(&line.far) {
            far
        } else {
            // what is named but not described: the first letter says what it is
            absent += 1;
            let vertex = draft.vertex(&line.far, line.at);
            draft.vertices[vertex].kind = if line.far.starts_with("S-") { Kind::Switch } else { Kind::Node };
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
                    continue; // the other line made the cable
                }
            }
            None => one_sided += 1,
        }
        let plug = |vertex, port: u32| Plug { vertex, port: Some(port.to_string()) };
        let cable = Cable { a: plug(line.here, line.port), b: plug(far, line.far_port), at: line.at };
        draft.cables.push(cable);
    }
    if one_sided > 0 {
        draft.notes.push(format!("{one_sided} cables are listed at one end only"));
    }
    if absent > 0 {
        draft.notes.push(format!("{absent} cables lead to something that has no block of its own"));
    }
    Ok(())
}
