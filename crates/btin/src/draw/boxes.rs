//! Draws every switch as a box: columns are depths, and the leaves of the tree are one below the other.

use super::{DrawnTree, TreeCanvas};
use crate::{Port, SwitchId};
use std::collections::{BTreeMap, BTreeSet};

const COLUMN: f64 = 176.0;
const ROW: f64 = 44.0;
const WIDTH: f64 = 112.0;
const HEIGHT: f64 = 34.0;
/// The width of a column of switches outside the tree. These switches are drawn below the tree.
const OUTSIDE: f64 = 72.0;

/// Explains the symbols in the boxes and on the lines.
const WORDS: &str = "\u{2191} parent port, \u{2193} child ports, \u{b7} ports of local members; on a link: port at the \
    parent \u{2192} port at the child";

pub(super) fn draw(shape: &DrawnTree<'_>, notes: &[String]) -> String {
    let (mut canvas, top) = TreeCanvas::new(shape, notes);
    let places = places(shape, top);
    other_links(&mut canvas, shape, &places);
    tree_links(&mut canvas, shape, &places);
    for (switch, place) in &places {
        draw_switch(&mut canvas, shape, *switch, *place);
    }
    legend(&mut canvas);
    canvas.finish(shape)
}

/// Draws a legend in rows below the picture: a sample of each symbol, with its name.
fn legend(canvas: &mut TreeCanvas) {
    const SAMPLE: f64 = 30.0;
    const ENTRY_WIDTH: f64 = 190.0;
    let top = canvas.height + 10.0;
    canvas.text("", 16.0, top + 8.0, "Legend");
    let boxes = [
        ("key box root", "root switch"),
        ("key box", "switch with members"),
        ("key box pass", "passes on, no members"),
        ("key out", "not in the tree"),
    ];
    for ((class, name), column) in boxes.into_iter().zip(0_u8..) {
        let x = 16.0 + f64::from(column) * ENTRY_WIDTH;
        canvas.rect(class, (x, top + 18.0, SAMPLE, 14.0), name);
        draw_name(canvas, x, top + 29.0, name);
    }
    let y = top + 48.0;
    canvas.circle("key member", (16.0 + SAMPLE / 2.0, y), 3.2, "member");
    draw_name(canvas, 16.0, y + 4.0, "member");
    canvas.circle("key rootnode", (16.0 + ENTRY_WIDTH + SAMPLE / 2.0, y), 3.2, "root node");
    draw_name(canvas, 16.0 + ENTRY_WIDTH, y + 4.0, "root node");
    for ((class, name), column) in
        [("key edge", "link of the tree"), ("key other", "other link")].into_iter().zip(2_u8..)
    {
        let x = 16.0 + f64::from(column) * ENTRY_WIDTH;
        canvas.path(class, &format!("M{x:.0} {y:.0}L{:.0} {y:.0}", x + SAMPLE));
        draw_name(canvas, x, y + 4.0, name);
    }
    canvas.text("soft", 16.0, top + 70.0, WORDS);
    canvas.reach(16.0 + WORDS.chars().count() as f64 * 5.0, top + 70.0);

    fn draw_name(canvas: &mut TreeCanvas, x: f64, y: f64, name: &str) {
        canvas.text("soft", x + SAMPLE + 8.0, y, name);
        canvas.reach(x + SAMPLE + 8.0 + name.chars().count() as f64 * 5.0, y);
    }
}

/// Returns the upper left corner of each switch's box.
fn places(shape: &DrawnTree<'_>, top: f64) -> BTreeMap<SwitchId, (f64, f64)> {
    let mut rows: BTreeMap<SwitchId, f64> = BTreeMap::new();
    let mut leaves = 0;
    // in the reverse order of the walk, children come before their parent; rows are mirrored afterwards
    for (switch, _) in shape.walk.iter().rev() {
        let below = shape.children.get(switch).map(Vec::as_slice).unwrap_or_default();
        let known: Vec<f64> = below.iter().filter_map(|child| rows.get(child).copied()).collect();
        let row = match (known.first(), known.last()) {
            (Some(first), Some(last)) => (first + last) / 2.0,
            _ => {
                leaves += 1;
                f64::from(leaves - 1)
            }
        };
        rows.insert(*switch, row);
    }
    let last = f64::from((leaves - 1).max(0));
    let mut places = BTreeMap::new();
    for (switch, depth) in &shape.walk {
        let y = top + (last - rows[switch]) * ROW;
        places.insert(*switch, (16.0 + *depth as f64 * COLUMN, y));
    }
    let deepest = shape.walk.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
    let across = (((deepest as f64 + 1.0) * COLUMN / OUTSIDE) as usize).max(4);
    let below = top + (last + 1.0) * ROW + 28.0;
    let outside = shape.topology.network.switches().filter(|switch| !rows.contains_key(switch));
    for (number, switch) in outside.enumerate() {
        let (row, column) = (number / across, number % across);
        places.insert(switch, (16.0 + column as f64 * OUTSIDE, below + row as f64 * ROW));
    }
    places
}

/// Returns the links that the tree uses, by number: for each, the parent and its port, and the child and its
/// port.
fn used(shape: &DrawnTree<'_>) -> BTreeMap<u32, (SwitchId, Port, SwitchId, Port)> {
    let children = shape.tree.registers.iter().flat_map(|(switch, register)| {
        register.children.iter().filter_map(|port| {
            let next = shape.topology.network.neighbour_at(*switch, *port)?;
            Some((next.link, (*switch, next.port, next.switch, next.far)))
        })
    });
    children.collect()
}

fn other_links(canvas: &mut TreeCanvas, shape: &DrawnTree<'_>, places: &BTreeMap<SwitchId, (f64, f64)>) {
    let used: BTreeSet<u32> = used(shape).into_keys().collect();
    for (number, link) in (0..).zip(shape.topology.network.links()) {
        if used.contains(&number) {
            continue;
        }
        let centre = |switch: SwitchId| {
            let (x, y) = places[&switch];
            let width = if shape.tree.registers.contains_key(&switch) { WIDTH } else { OUTSIDE - 16.0 };
            (x + width / 2.0, y + HEIGHT / 2.0)
        };
        let ((ax, ay), (bx, by)) = (centre(link.a.switch), centre(link.b.switch));
        // a cable within a column bows to the right, so that it does not cross the boxes between its ends
        let bow = if (ax - bx).abs() < 1.0 { WIDTH * 0.75 } else { 0.0 };
        let (mx, my) = ((ax + bx) / 2.0 + bow, (ay + by) / 2.0);
        canvas.path("other", &format!("M{ax:.0} {ay:.0}Q{mx:.0} {my:.0} {bx:.0} {by:.0}"));
    }
}

fn tree_links(canvas: &mut TreeCanvas, shape: &DrawnTree<'_>, places: &BTreeMap<SwitchId, (f64, f64)>) {
    for (parent, out, child, into) in used(shape).into_values() {
        let ((px, py), (cx, cy)) = (places[&parent], places[&child]);
        let (ax, ay, bx, by) = (px + WIDTH, py + HEIGHT / 2.0, cx, cy + HEIGHT / 2.0);
        let middle = (ax + bx) / 2.0;
        canvas.path(
            "edge",
            &format!("M{ax:.0} {ay:.0}C{middle:.0} {ay:.0} {middle:.0} {by:.0} {bx:.0} {by:.0}"),
        );
        // the parent's port is also written at the child's end, because lines overlap at the parent's end
        canvas.text(
            "soft",
            bx - 30.0,
            by - 4.0,
            &format!(
                "{}\u{2192}{}",
                shape.topology.port_shown(parent, out),
                shape.topology.port_shown(child, into)
            ),
        );
    }
}

fn draw_switch(canvas: &mut TreeCanvas, shape: &DrawnTree<'_>, switch: SwitchId, (x, y): (f64, f64)) {
    let name = shape.topology.switch_shown(switch);
    let short = shape.short(switch);
    let Some(register) = shape.tree.registers.get(&switch) else {
        canvas.rect("out", (x, y, OUTSIDE - 16.0, HEIGHT), &format!("switch {name}: not in the tree"));
        canvas.text("soft", x + 8.0, y + 21.0, &shortened(&short, 7));
        return;
    };
    let members = shape.members(switch);
    let is_root = switch == shape.tree.root_switch;
    let mut class = "box".to_owned();
    class += if is_root { " root" } else { "" };
    class += if members.is_empty() { " pass" } else { "" };
    let called = |port: &Port| shape.topology.port_shown(switch, *port);
    let list = |ports: &[Port]| ports.iter().map(called).collect::<Vec<_>>().join(" ");
    let mut words = Vec::new();
    if let Some(parent) = register.parent {
        words.push(format!("\u{2191}{}", called(&parent)));
    }
    if !register.children.is_empty() {
        words.push(format!("\u{2193}{}", list(&register.children)));
    }
    if !register.locals.is_empty() {
        words.push(format!("\u{b7}{}", list(&register.locals)));
    }
    let title = format!(
        "switch {name}: parent port {}, child ports {}, local ports {}",
        register.parent.map_or_else(|| "none".to_owned(), |port| called(&port)),
        list(&register.children),
        list(&register.locals),
    );
    canvas.rect(&class, (x, y, WIDTH, HEIGHT), &title);
    canvas.text("", x + 7.0, y + 14.0, &shortened(&short, 7));
    canvas.text("soft", x + 7.0, y + 28.0, &shortened(&words.join(" "), 20));
    for (number, node) in members.iter().enumerate() {
        let is_root_node = Some(*node) == shape.tree.root_node;
        let at = (x + WIDTH - 8.0 - 9.0 * (members.len() - 1 - number) as f64, y + 10.0);
        let class = if is_root_node { "rootnode" } else { "member" };
        let role = if is_root_node { "root node" } else { "member" };
        canvas.circle(class, at, 3.2, &format!("{role} {}", shape.topology.node_shown(*node)));
    }
}

fn shortened(text: &str, max_letters: usize) -> String {
    if text.chars().count() <= max_letters {
        return text.to_owned();
    }
    text.chars().take(max_letters - 1).chain(['\u{2026}']).collect()
}
