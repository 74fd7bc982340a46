//! Turns the classes that were read into a policy: checks the rules that concern several classes.

use super::Position;
use super::error::{Mistake, wrong};
use super::index::{RuleIndex, SoleCondition};
use super::read::{ClassForm, MAX_DEPTH, Placed, Written, WrittenClass, WrittenDisk, is_name};
use super::shadow::EarlierRules;
use super::{DiskClass, Flows, GroupShare, GroupShares, LeafQueue, Policy, ROOT, Rule, SocketClass};
use crate::hierarchy::{ClassId, ClassSpec, Hierarchy, Order};
use crate::rate::Rate;
use crate::weight::Weight;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use unisono_text::{misspelt, nearest};

/// The name of the default class if the policy names none.
const DEFAULT: &str = "default";
/// The most matches in a policy: twice the number of classes that the kernel has for a device, because most
/// subscribers have an address of each version of IP.
const MAX_RULES: usize = 1 << 17;
/// The most matches with several conditions, or with others than an address, MAC address, mark or VLAN. Each
/// of them is compared with every packet and with the other matches.
const MAX_COMPARED: usize = 4096;
/// The range of weights for processor time; control groups of both versions support it.
const CPU_WEIGHTS: RangeInclusive<f64> = 0.01..=100.0;
/// The range of weights for disks: BFQ has weights from 1 to 1000, of which 100 is the default.
const IO_WEIGHTS: RangeInclusive<f64> = 0.01..=10.0;

pub(super) fn check(
    text: &str,
    written: Written,
    place: &dyn Fn(Position) -> String,
) -> Result<Policy, Mistake> {
    let place_of = |offset| place(Position::at_offset(text, offset));
    let Written { rate, framing, receiving, default, classes, rows, cpu, io, disk } = written;
    let names = names(&place_of, &classes)?;
    let parents = parents(&classes, &names)?;
    let children = children_of(&classes, &parents);
    let is_leaf = |number: usize| children[number].is_empty();
    for (number, class) in classes.iter().enumerate() {
        let name = &class.name.value;
        if is_leaf(number) {
            continue;
        }
        if let Some(matcher) = class.matchers.first() {
            let child = children[number].first().map_or("", |child| classes[*child].name.value.as_str());
            return wrong(
                matcher.at,
                format!(
                    "class `{name}` has children, and packets wait at leaves; move the match to one of them, such as `{child}`"
                ),
            );
        }
        if let Some(order) = class.order.as_ref().filter(|order| order.value == Order::Deadline) {
            return wrong(order.at, format!("class `{name}` has children; say the order at its leaves"));
        }
        let flows = class.flows.as_ref().map(|flows| (flows.value.key(), flows.at));
        let congestion = class.congestion.as_ref().map(|most| ("ecn", most.at));
        let sockets = class.sockets.as_ref().map(|sockets| ("sockets", sockets.at));
        if let Some((key, at)) = flows.or(congestion).or(sockets) {
            return wrong(
                at,
                format!("class `{name}` has children, and packets wait at leaves; say `{key}` there"),
            );
        }
    }
    for class in &classes {
        let is_by_deadline = class.order.as_ref().is_some_and(|order| order.value == Order::Deadline);
        let in_turns = class.flows.as_ref().filter(|flows| flows.value != Flows::Together);
        if let Some(flows) = in_turns.filter(|_| is_by_deadline) {
            let key = flows.value.key();
            return wrong(
                flows.at,
                format!(
                    "packets leave by their deadlines or by turns of their flows; take `order` or `{key}` out"
                ),
            );
        }
    }
    ceilings_fit(&place_of, rate, &classes, &parents)?;
    if let Some(default) = &default {
        default_fits(default, &classes, &names, is_leaf)?;
    }

    let root = ClassSpec::new(ROOT).with(specs(&classes, &children, classes.len()));
    let default = default.unwrap_or_else(|| Placed { value: DEFAULT.to_owned(), at: 0 });
    let refused = |error: crate::HierarchyError| Mistake { at: default.at, what: error.to_string() };
    let hierarchy =
        Hierarchy::new(root).and_then(|tree| tree.with_default(&default.value)).map_err(refused)?;
    let id = |class: &WrittenClass| {
        hierarchy.find(&class.name.value).expect("present because the tree was made of these classes")
    };
    let mut ceilings = vec![None; hierarchy.classes().count()];
    let mut queues = vec![LeafQueue::default(); ceilings.len()];
    let mut forms = vec![ClassForm::Implied; ceilings.len()];
    for class in &classes {
        let id = id(class);
        forms[id.index()] = match class.weight {
            _ if rows.is_none_or(|rows| class.name.at < rows) => ClassForm::Declared,
            Some(_) => ClassForm::PromisedRow,
            None => ClassForm::Row,
        };
        queues[id.index()] = LeafQueue {
            flows: class.flows.as_ref().map_or(Flows::Together, |flows| flows.value),
            congestion: class.congestion.as_ref().map(|most| most.value),
        };
        ceilings[id.index()] = class.ceiling.as_ref().map(|ceiling| ceiling.value);
    }
    let (rules, index) = rules(text, place, &classes, id)?;
    let group_shares = |table, range: &RangeInclusive<f64>, shares: Option<Vec<_>>| {
        shares.map(|shares| check_group_shares(table, range, &shares, &hierarchy, &rules)).transpose()
    };
    let cpu = group_shares("cpu", &CPU_WEIGHTS, cpu)?;
    let io = group_shares("io", &IO_WEIGHTS, io)?;
    let disk = disk.into_iter().map(|written| check_disk(written, &hierarchy)).collect::<Result<_, _>>()?;
    let sockets = classes.iter().filter_map(|class| {
        let written = &class.sockets.as_ref()?.value;
        let (min_weight, max_weight) = written.weights;
        Some(SocketClass {
            class: id(class),
            from: written.from.clone(),
            max: written.max,
            min_weight,
            max_weight,
        })
    });
    let sockets = sockets.collect();
    let default = hierarchy.default_class().expect("present because it was just set");
    Ok(Policy {
        text: text.to_owned(),
        rate,
        framing,
        receiving,
        hierarchy,
        default,
        ceilings,
        forms,
        queues,
        rules,
        index,
        cpu,
        io,
        disk,
        sockets,
    })
}

/// Returns the children of each class, in the order of the file. The last element has the children of the
/// root.
fn children_of(classes: &[WrittenClass], parents: &[Option<usize>]) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); classes.len() + 1];
    for (child, parent) in parents.iter().enumerate() {
        children[parent.unwrap_or(classes.len())].push(child);
    }
    for children in &mut children {
        children.sort_by_key(|child| classes[*child].name.at);
    }
    children
}

fn names<'a>(
    place_of: &dyn Fn(usize) -> String,
    classes: &'a [WrittenClass],
) -> Result<HashMap<&'a str, usize>, Mistake> {
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (number, class) in classes.iter().enumerate() {
        let name = class.name.value.as_str();
        if let Some(other) = names.insert(name, number) {
            let (first, second) = (classes[other].name.at, class.name.at);
            return wrong(
                first.max(second),
                format!(
                    "class `{name}` is there twice, first at {}; names are unique in the whole tree: rename one",
                    place_of(first.min(second))
                ),
            );
        }
    }
    Ok(names)
}

/// Returns the parent of each class. Fails if a class is its own ancestor.
fn parents(classes: &[WrittenClass], names: &HashMap<&str, usize>) -> Result<Vec<Option<usize>>, Mistake> {
    let mut parents = Vec::new();
    for class in classes {
        parents.push(match &class.parent {
            None => class.within,
            Some(parent) if parent.value == ROOT => None,
            Some(parent) => match names.get(parent.value.as_str()) {
                Some(number) => Some(*number),
                None => return wrong(parent.at, format!("parent: {}", no_class(&parent.value, names))),
            },
        });
    }
    for start in 0..classes.len() {
        let mut line = vec![start];
        let mut at = start;
        while let Some(parent) = parents[at] {
            if parent == start {
                let names: Vec<&str> =
                    line.iter().chain([&start]).map(|class| classes[*class].name.value.as_str()).collect();
                let places = line.iter().filter_map(|class| classes[*class].parent.as_ref());
                let at = places.map(|parent| parent.at).min().unwrap_or(classes[start].name.at);
                return wrong(
                    at,
                    format!("the parents make a cycle: {}; take one `parent` out", names.join(" is below ")),
                );
            }
            if line.contains(&parent) {
                break; // a cycle that does not include `start`; the search from one of its classes reports it
            }
            line.push(parent);
            at = parent;
        }
        if line.len() > MAX_DEPTH {
            let class = &classes[start].name;
            return wrong(
                class.at,
                format!("`{}`: classes are nested more than {MAX_DEPTH} deep", class.value),
            );
        }
    }
    Ok(parents)
}

fn no_class(name: &str, names: &HashMap<&str, usize>) -> String {
    let mut known: Vec<&str> = names.keys().copied().collect();
    known.sort_unstable();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("there is no class `{name}`; did you mean `{near}`?"),
        None if known.is_empty() => {
            format!("there is no class `{name}`, nor any other; declare [class.{name}]")
        }
        None => format!("there is no class `{name}`; the classes are {}", known.join(", ")),
    }
}

fn default_fits(
    default: &Placed<String>,
    classes: &[WrittenClass],
    names: &HashMap<&str, usize>,
    is_leaf: impl Fn(usize) -> bool,
) -> Result<(), Mistake> {
    let name = default.value.as_str();
    match names.get(name) {
        Some(number) if !is_leaf(*number) => {
            let leaves = classes.iter().enumerate().filter(|(number, _)| is_leaf(*number));
            let leaves: Vec<&str> = leaves.map(|(_, class)| class.name.value.as_str()).collect();
            wrong(
                default.at,
                format!(
                    "the default class `{name}` has children, and packets wait at leaves: {}",
                    leaves.join(", ")
                ),
            )
        }
        Some(_) => Ok(()),
        None if name.is_empty() || name == ROOT => wrong(
            default.at,
            format!("default: {name:?} is no class; name a leaf, as in default = \"rest\""),
        ),
        None => match misspelt(name, names.keys().copied()) {
            Some(near) => wrong(
                default.at,
                format!(
                    "default: there is no class `{name}`; did you mean `{near}`? (for a class of its own write \
                     [class.{name}])"
                ),
            ),
            None if !is_name(name) => wrong(
                default.at,
                format!("default: {name:?} is no name for a class; use 1 to 64 of a-z, A-Z, 0-9, - and _"),
            ),
            None => Ok(()),
        },
    }
}

fn ceilings_fit(
    place_of: &dyn Fn(usize) -> String,
    rate: Rate,
    classes: &[WrittenClass],
    parents: &[Option<usize>],
) -> Result<(), Mistake> {
    for (number, class) in classes.iter().enumerate() {
        let Some(ceiling) = &class.ceiling else { continue };
        if ceiling.value > rate {
            return wrong(
                ceiling.at,
                format!(
                    "the ceiling {} is over the link's rate; write at most \"{rate}\", or leave it out",
                    ceiling.value
                ),
            );
        }
        let mut at = parents[number];
        while let Some(parent) = at {
            if let Some(above) = classes[parent].ceiling.as_ref().filter(|above| above.value < ceiling.value)
            {
                return wrong(
                    ceiling.at,
                    format!(
                        "the ceiling {} is over that of `{}` above it (at {}); write at most \"{}\", or leave it out",
                        ceiling.value,
                        classes[parent].name.value,
                        place_of(above.at),
                        above.value
                    ),
                );
            }
            at = parents[parent];
        }
    }
    Ok(())
}

fn specs(classes: &[WrittenClass], children: &[Vec<usize>], of: usize) -> Vec<ClassSpec> {
    let spec = |child: &usize| {
        let class = &classes[*child];
        ClassSpec {
            name: class.name.value.clone(),
            weight: class.weight.unwrap_or(Weight::ONE),
            order: class.order.as_ref().map_or(Order::Fifo, |order| order.value),
            limit: class.limit,
            children: specs(classes, children, *child),
        }
    };
    children[of].iter().map(spec).collect()
}

/// Returns the rules in the order of the file, and their index. Fails if earlier rules shadow one.
fn rules(
    text: &str,
    place: &dyn Fn(Position) -> String,
    classes: &[WrittenClass],
    id: impl Fn(&WrittenClass) -> ClassId,
) -> Result<(Vec<Rule>, RuleIndex), Mistake> {
    let mut written: Vec<_> = classes
        .iter()
        .flat_map(|class| class.matchers.iter().map(move |matcher| (matcher.at, class, &matcher.value)))
        .collect();
    written.sort_by_key(|(at, _, _)| *at);
    let mut rules = EarlierRules::default();
    let mut compared = 0;
    let mut position = PositionCursor { text, passed: 0, at: Position { line: 1, column: 1 } };
    for (number, (at, class, matcher)) in written.into_iter().enumerate() {
        compared += usize::from(SoleCondition::from_matcher(matcher).is_none());
        if number == MAX_RULES {
            return wrong(
                at,
                format!("there are more than {MAX_RULES} matches; use networks and ranges of ports"),
            );
        }
        if compared > MAX_COMPARED {
            return wrong(
                at,
                format!(
                    "there are more than {MAX_COMPARED} matches of other kinds than one address, MAC address, mark or \
                     VLAN; let nftables set marks, and match these"
                ),
            );
        }
        let shadows = rules.shadows_of(matcher);
        if let Some(first) = shadows.first() {
            let name = |rule: &Rule| {
                let class = classes.iter().find(|class| id(class) == rule.class);
                class.map_or("", |class| class.name.value.as_str())
            };
            let places: Vec<String> = shadows
                .iter()
                .map(|rule| format!("{} of `{}` at {}", rule.matcher, name(rule), place(rule.at)))
                .collect();
            let advice = if first.class == id(class) {
                "take it out"
            } else {
                "move this one before it, or take it out"
            };
            return wrong(
                at,
                format!("this match is shadowed: all its packets go to {}; {advice}", places.join(" and ")),
            );
        }
        rules.push(Rule { class: id(class), matcher: matcher.clone(), at: position.advance_to(at) });
    }
    Ok(rules.into_parts())
}

/// Finds the positions of ascending offsets in one pass; [`Position::at_offset`] would count each from the
/// start of the text.
struct PositionCursor<'a> {
    text: &'a str,
    passed: usize,
    at: Position,
}

impl PositionCursor<'_> {
    fn advance_to(&mut self, offset: usize) -> Position {
        let passed = &self.text[self.passed..offset];
        let lines = passed.bytes().filter(|byte| *byte == b'\n').count();
        if lines > 0 {
            self.at = Position { line: self.at.line + lines, column: 1 };
        }
        self.at.column += passed[passed.rfind('\n').map_or(0, |end| end + 1)..].chars().count();
        self.passed = offset;
        self.at
    }
}

fn check_group_shares(
    table: &str,
    range: &RangeInclusive<f64>,
    shares: &[(Placed<String>, Weight)],
    hierarchy: &Hierarchy,
    rules: &[Rule],
) -> Result<GroupShares, Mistake> {
    let mut checked: Vec<GroupShare> = Vec::new();
    for (name, weight) in shares {
        let class = class_named(table, name, hierarchy)?;
        if !range.contains(&weight.to_f64()) {
            return wrong(
                name.at,
                format!(
                    "{table}: the kernel knows weights from {} to {}, not {weight}; only their ratios matter",
                    range.start(),
                    range.end()
                ),
            );
        }
        let own = rules.iter().filter(|rule| rule.class == class);
        let cgroups: Vec<&String> = own.filter_map(|rule| rule.matcher.cgroup.as_ref()).collect();
        if cgroups.is_empty() {
            return wrong(
                name.at,
                format!(
                    "{table}: class `{}` has no match by control group, and [{table}] is shared among those; add, say, \
                     {{ cgroup = \"/system.slice/{}.service\" }}",
                    name.value, name.value
                ),
            );
        }
        for cgroup in cgroups {
            if let Some(other) = checked.iter().find(|share| share.cgroup == *cgroup && share.class != class)
            {
                let other = &hierarchy.class(other.class).name;
                return wrong(
                    name.at,
                    format!("{table}: {cgroup} has a share by `{other}` already; name one of them"),
                );
            }
            if !checked.iter().any(|share| share.cgroup == *cgroup) {
                checked.push(GroupShare { class, cgroup: cgroup.clone(), weight: *weight });
            }
        }
    }
    Ok(GroupShares { shares: checked })
}

/// Returns the class that an entry of the table `table` (such as `cpu`) names.
fn class_named(table: &str, name: &Placed<String>, hierarchy: &Hierarchy) -> Result<ClassId, Mistake> {
    let class = hierarchy.find(&name.value).filter(|class| *class != ClassId::ROOT);
    class.map_or_else(
        || {
            let names =
                hierarchy.classes().skip(1).map(|(id, class)| (class.name.as_str(), id.index())).collect();
            wrong(name.at, format!("{table}: {}", no_class(&name.value, &names)))
        },
        Ok,
    )
}

fn check_disk(written: WrittenDisk, hierarchy: &Hierarchy) -> Result<DiskClass, Mistake> {
    let WrittenDisk { name, purpose, deadline, users } = written;
    let class = class_named("disk", &name, hierarchy)?;
    if let Some(child) = hierarchy.class(class).children.first() {
        let child = &hierarchy.class(*child).name;
        let what = format!(
            "disk: class `{}` has children, and requests wait at leaves; name one of them, such as `{child}`",
            name.value
        );
        return wrong(name.at, what);
    }
    Ok(DiskClass { class, purpose, deadline, users })
}
