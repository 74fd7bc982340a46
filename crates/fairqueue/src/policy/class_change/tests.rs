use super::*;
use crate::policy::SubscribersFile;
use proptest::prelude::*;
use std::fmt::Write as _;

const HEAD: &str =
    "rate = \"1gbit\"\nsubscribers = \"s.csv\"\n[class.tower]\nweight = 400\n[class.rest]\nweight = 400\n";

/// Returns the text of a policy with this table, or the reason to refuse it.
fn whole(table: &str) -> Result<String, String> {
    let key = SubscribersFile::in_policy(HEAD).expect("it is sound").expect("it is there");
    let whole = key.insert(HEAD, table).map_err(|error| error.to_string())?;
    whole.parse().map(|policy| policy.text).map_err(|error| error.to_string())
}

fn change(class: &str, weight: Option<&str>, rate: Option<&str>, ceiling: Option<&str>) -> TermsChange {
    let rate_of = |text: &str| text.parse().expect("it is a rate");
    TermsChange {
        weight: weight.map(|text| text.parse().expect("it is a weight")),
        rate: rate.map(rate_of),
        ceiling: ceiling.map(rate_of),
        ..TermsChange::for_class(class)
    }
}

/// The rate and the ceiling of a row, in kbit/s.
type RowTerms = (Option<u64>, Option<u64>);

fn table(rows: &[RowTerms]) -> String {
    let mut table = String::from("Name,Addresses,Rate,Ceiling,Parent\n");
    for (number, (rate, ceiling)) in rows.iter().enumerate() {
        let field = |kbit: &Option<u64>| kbit.map_or_else(String::new, |kbit| format!("{kbit}kbit"));
        let parent = if number % 2 == 0 { "tower" } else { "" };
        let addresses = format!("\"10.0.{number}.0/24, 10.1.0.{number}\"");
        let _ = writeln!(table, "s{number},{addresses},{},{},{parent}", field(rate), field(ceiling));
    }
    table
}

proptest! {
    #[test]
    fn a_change_of_a_row_is_what_the_changed_table_says(
        rows in prop::collection::vec((prop::option::of(1..30_000_u64), prop::option::of(1..900_000_u64)), 2..12),
        changed: prop::sample::Index,
        (rate, ceiling) in (prop::option::of(1..300_000_u64), prop::option::of(1..1_200_000_u64)),
    ) {
        let Ok(text) = whole(&table(&rows)) else { return Ok(()) };
        let number = changed.index(rows.len());
        let mut then = rows.clone();
        then[number] = (rate.or(rows[number].0), ceiling.or(rows[number].1));
        let kbit = |kbit: u64| Rate::new(kbit * 1000).expect("positive");
        let change = TermsChange {
            rate: rate.map(kbit),
            ceiling: ceiling.map(kbit),
            ..TermsChange::for_class(&format!("s{number}"))
        };
        match (change.apply_to(&text), whole(&table(&then))) {
            (Ok(changed), Ok(expected)) => {
                let all = Policy::parse(&expected).expect("it is sound");
                let mut in_memory = Policy::parse(&text).expect("it is sound");
                prop_assert_eq!(in_memory.change_terms(&change), Ok(changed.terms));
                for changed in [&changed.policy, &in_memory] {
                    prop_assert_eq!(&changed.text, &expected);
                    prop_assert_eq!(changed.guarantees(), all.guarantees());
                    prop_assert_eq!(&changed.ceilings, &all.ceilings);
                }
                let mut replayed = text;
                prop_assert_eq!(change.write_into(&mut replayed), Ok(()));
                prop_assert_eq!(replayed, expected);
            }
            (Err(error), Err(_)) => {
                let mut in_memory = Policy::parse(&text).expect("it is sound");
                let before = in_memory.guarantees();
                prop_assert_eq!(in_memory.change_terms(&change), Err(error));
                prop_assert_eq!((in_memory.guarantees(), in_memory.text), (before, text));
            }
            (Ok(_), Err(error)) => prop_assert!(false, "the table is refused: {error}"),
            (Err(error), Ok(_)) => prop_assert!(false, "the change is refused: {error}"),
        }
    }
}

#[test]
fn a_class_of_the_policys_text_is_changed_in_the_form_in_which_it_is_written() {
    let rows = format!("{HEADING}[class.s]\nweight = 5\n\n\nmatch = [{{ address = \"10.0.0.1/32\" }}]\n");
    for (written, expected) in [
        (
            "[class.a]\nweight = 3 # three\nceiling = \"9mbit\"\n",
            "[class.a]\nweight = 7 # three\nceiling = \"8mbit\"\n",
        ),
        (
            "[class.a]\nflows = \"fair\"\n",
            "[class.a]\nceiling = \"8mbit\"\nweight = 7\nflows = \"fair\"\n",
        ),
        ("[class.b.a] # ours\n", "[class.b.a] # ours\nceiling = \"8mbit\"\nweight = 7\n"),
        ("[class.b.a]\n[class.c]\n", "[class.b.a]\nceiling = \"8mbit\"\nweight = 7\n[class.c]\n"),
        (
            "[class]\na = { packets = 9 }\n",
            "[class]\na = { ceiling = \"8mbit\", weight = 7, packets = 9 }\n",
        ),
        (
            "[class.a.b]\n[class.a]\nweight = 2\n",
            "[class.a.b]\n[class.a]\nceiling = \"8mbit\"\nweight = 7\n",
        ),
    ] {
        let at_both = [String::new(), rows.clone()];
        for rows in at_both {
            let text = format!("rate = \"100mbit\"\n{written}{rows}");
            let changed = change("a", Some("7"), None, Some("8mbit")).apply_to(&text).expect(written);
            assert_eq!(changed.policy.text, format!("rate = \"100mbit\"\n{expected}{rows}"));
            let terms = changed.terms;
            assert_eq!((terms.weight, terms.ceiling), (7.0, 8_000_000));
        }
    }
}

#[test]
fn a_change_that_the_policy_could_not_have_is_refused_with_a_reason() {
    let rows = "s,10.0.0.1,5,50,tower\nt,10.0.0.2,5,,tower\n";
    let text = whole(&format!("Name,Addresses,Rate,Ceiling,Parent\n{rows}")).expect("it is sound");
    let dotted = "rate = \"1gbit\"\nclass.a.packets = 5\n".to_owned();
    let implied = "rate = \"1gbit\"\ndefault = \"others\"\n[class.a]\n".to_owned();
    let cell = "rate = \"1gbit\"\n[class.cell]\nceiling = \"60mbit\"\n[class.cell.a]\nceiling = \"50mbit\"\n"
        .to_owned();
    let crowded = "rate = \"1gbit\"\n".to_owned()
        + &(0..30).map(|number| format!("[class.c{number}]\n")).collect::<String>();
    for (text, change, expected) in [
        (
            &text,
            change("S", None, Some("5mbit"), None),
            "the policy in force has no class `S`; did you mean `s`?",
        ),
        (
            &text,
            change("nobody", None, None, Some("5mbit")),
            "the policy in force has no class `nobody`; its classes are tower, s, t, rest, default",
        ),
        (
            &crowded,
            change("nobody", None, None, Some("5mbit")),
            "the policy in force has no class `nobody`; a new subscriber is added",
        ),
        (
            &text,
            change("root", None, None, Some("5mbit")),
            "the policy in force has no class `root`",
        ),
        (
            &text,
            change("s", Some("5"), None, None),
            "`s` is a subscriber, whose weight is the guaranteed rate; say the rate",
        ),
        (
            &text,
            change("rest", None, Some("5mbit"), None),
            "class `rest` is not from a table of subscribers",
        ),
        (
            &text,
            change("s", None, Some("51mbit"), None),
            "`s`: the guaranteed rate 51mbit is above the ceiling 50mbit",
        ),
        (
            &text,
            change("s", None, None, Some("4mbit")),
            "`s`: the guaranteed rate 5mbit is above the ceiling 4mbit",
        ),
        (
            &text,
            change("s", None, None, Some("2gbit")),
            "class `s`: the ceiling 2gbit is over the link's rate",
        ),
        (
            &text,
            change("t", None, Some("600mbit"), None),
            "`t` is promised 600.0 mbit, and gets 495.2 of the 499.4 mbit of `tower`",
        ),
        (
            &text,
            change("rest", Some("90000"), None, None),
            "`s` is promised 5.0 mbit, and gets 2.2 of the 4.4 mbit of `tower`",
        ),
        (&text, change("s", None, Some("1.000001mbit"), Some("3mbit")), ""),
        (
            &text,
            change("t", None, Some("123456.789123mbit"), None),
            "the rate 123.456789123gbit, in Mbit/s: ",
        ),
        (
            &cell,
            change("cell", None, None, Some("40mbit")),
            "class `a`: the ceiling 50mbit is over that of `cell` above it",
        ),
        (
            &dotted,
            change("a", Some("2"), None, None),
            "class `a` is written in a form that cannot be changed alone",
        ),
        (
            &implied,
            change("others", Some("2"), None, None),
            "class `others` is written in a form that cannot be changed alone",
        ),
        (
            &"rate".to_owned(),
            change("a", Some("2"), None, None),
            "the policy in force cannot be read",
        ),
    ] {
        let said = change.apply_to(text).map_or_else(|error| error.to_string(), |_| String::new());
        assert!(said.starts_with(expected), "{change:?}\n  said      {said}\n  expected  {expected}");
        assert_eq!(said.is_empty(), expected.is_empty(), "{change:?}: {said}");
    }
}
