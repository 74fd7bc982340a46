//! What each class gets while all send, compared with a reference that pours the link's rate into the classes
//! in small portions.

use proptest::prelude::*;
use unisono_fairqueue::{ClassId, Policy};

const LINK: u64 = 100_000_000;
const PORTIONS: f64 = 5_000.0;

#[derive(Clone, Debug)]
struct Shape {
    weight: u32,
    /// The ceiling as a percentage of the one above, if the class has any.
    ceiling: Option<u64>,
    children: Vec<Shape>,
}

fn shape() -> impl Strategy<Value = Shape> {
    let own = || (1..100_u32, prop::option::of(1..=100_u64));
    let leaf = own().prop_map(|(weight, ceiling)| Shape { weight, ceiling, children: Vec::new() }).boxed();
    leaf.prop_recursive(3, 12, 4, move |inner| {
        (own(), prop::collection::vec(inner, 1..4)).prop_map(|((weight, ceiling), children)| Shape {
            weight,
            ceiling,
            children,
        })
    })
}

fn write(shape: &Shape, path: &str, above: u64, text: &mut String) {
    let ceiling = shape.ceiling.map_or(above, |percent| (above * percent / 100).max(1000));
    text.push_str(&format!("[class.{path}]\nweight = {}\n", shape.weight));
    if shape.ceiling.is_some() {
        text.push_str(&format!("ceiling = \"{ceiling}bit\"\n"));
    }
    for (at, child) in shape.children.iter().enumerate() {
        let name = path.rsplit('.').next().unwrap_or(path);
        write(child, &format!("{path}.{name}{at}"), ceiling, text);
    }
}

/// Pours a portion into a class that has `rates`; returns how much of it the class took.
fn pour(policy: &Policy, class: ClassId, portion: f64, rates: &mut [f64]) -> f64 {
    let portion = portion.min(policy.ceiling(class).bits_per_second() as f64 - rates[class.index()]).max(0.0);
    let children = &policy.hierarchy.class(class).children;
    let taken = if children.is_empty() {
        portion
    } else {
        let open: Vec<ClassId> = children
            .iter()
            .copied()
            .filter(|child| pour(policy, *child, 1.0, &mut rates.to_vec()) > 0.5)
            .collect();
        let weight = |child: &ClassId| policy.hierarchy.class(*child).weight.to_f64();
        let all: f64 = open.iter().map(weight).sum();
        open.iter().map(|child| pour(policy, *child, portion * weight(child) / all, rates)).sum()
    };
    rates[class.index()] += taken;
    taken
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_a_class_may_not_take_goes_to_its_siblings_by_weight(shapes in prop::collection::vec(shape(), 1..4)) {
        let mut text = format!("rate = \"{LINK}bit\"\ndefault = \"rest\"\n[class.rest]\nceiling = \"5mbit\"\n");
        for (at, shape) in shapes.iter().enumerate() {
            write(shape, &format!("c{at}"), LINK, &mut text);
        }
        let policy = Policy::parse(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let guarantees = policy.guarantees();
        let mut rates = vec![0.0; guarantees.len()];
        let portion = LINK as f64 / PORTIONS;
        while pour(&policy, ClassId::ROOT, portion, &mut rates) > 1.0 {}
        for (id, class) in policy.hierarchy.classes() {
            let (computed, poured) = (guarantees[id.index()], rates[id.index()]);
            prop_assert!((computed - poured).abs() < 8.0 * portion, "{}: {computed}, poured {poured}\n{text}", class.name);
            let below: f64 = class.children.iter().map(|child| guarantees[child.index()]).sum();
            prop_assert!(class.children.is_empty() || (below - computed).abs() < 1.0, "{}\n{text}", class.name);
        }
    }
}

#[test]
fn a_light_class_beside_a_ceiling_gets_all_that_the_ceiling_leaves() {
    let text =
        "rate = \"100mbit\"\ndefault = \"rest\"\n[class.a]\nweight = 9\nceiling = \"10mbit\"\n[class.rest]\n";
    let policy = Policy::parse(text).expect("it is sound");
    let rate = |name: &str| policy.guarantee(policy.hierarchy.find(name).expect("it is there"));
    assert!((rate("a") - 10e6).abs() < 1.0 && (rate("rest") - 90e6).abs() < 1.0);
}
