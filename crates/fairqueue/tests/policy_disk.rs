//! Tests the table `disk` of a policy.

use unisono_fairqueue::{DiskClass, Policy, Purpose};
use unisono_time::Duration;

const CLASSES: &str = "rate = \"800mbit\"\n[class.video]\n[class.office.mail]\n[class.office.web]\n";

fn read(table: &str) -> Result<Policy, String> {
    Policy::parse(&format!("{CLASSES}{table}")).map_err(|error| error.to_string())
}

#[test]
fn a_class_has_a_purpose_or_a_deadline_and_its_users() {
    let text = "[disk.video]\ndeadline = \"10ms\"\nusers = [\"alice\", 1000]\n[disk]\nmail = { purpose = \"interactive\" }\nweb = {}\n";
    // the table `[disk]` may come after `[disk.video]`
    let policy = read(text).expect("it is sound");
    let of = |name: &str| {
        let class = policy.hierarchy.find(name).expect("it is there");
        policy.disk.iter().find(|disk| disk.class == class).expect("it is in the table")
    };
    let users = Some(vec!["alice".to_owned(), "1000".to_owned()]);
    let DiskClass { purpose, deadline, users: found, .. } = of("video");
    assert_eq!((*purpose, *deadline, found), (Purpose::RealTime, Some(Duration::from_millis(10)), &users));
    assert_eq!((of("mail").purpose, of("mail").deadline), (Purpose::Interactive, None));
    assert_eq!((of("web").purpose, &of("web").users), (Purpose::Throughput, &None));
    assert_eq!(read("").expect("it is sound").disk, []);
}

#[test]
fn mistakes_are_refused_with_their_place_and_what_to_write_instead() {
    for (table, expected) in [
        ("[disk]\nvideo = 3", "6:1: disk: `video` is a table, as in [disk.video]"),
        ("[disk.vidoe]", "5:7: disk: there is no class `vidoe`; did you mean `video`?"),
        (
            "[disk.office]",
            "5:7: disk: class `office` has children, and requests wait at leaves; name one of them, such as `mail`",
        ),
        (
            "[disk.video]\npurpos = \"interactive\"",
            "6:1: disk: unknown key `purpos`; did you mean `purpose`?",
        ),
        (
            "[disk.video]\npurpose = \"bulk\"",
            "6:11: purpose: unknown word `bulk`; expected one of interactive, throughput",
        ),
        (
            "[disk.video]\ndeadline = \"0ms\"",
            "6:12: deadline: \"0ms\" is no duration; write a positive number",
        ),
        (
            "[disk.video]\npurpose = \"interactive\"\ndeadline = \"5ms\"",
            "7:1: a class with a `deadline` is served by it",
        ),
        (
            "[disk.video]\nusers = \"alice\"",
            "6:9: `users` is a list, as in [\"alice\", 1000], not the text \"alice\"",
        ),
        (
            "[disk.video]\nusers = [-1]",
            "6:10: a user is a name or a number, as in \"alice\", not the number -1",
        ),
    ] {
        let said = read(table).expect_err(table);
        assert!(said.starts_with(expected), "{table}: {said}");
    }
    let said = Policy::parse("rate = \"1mbit\"\ndisk = 3").expect_err("no table").to_string();
    assert!(said.starts_with("2:8: `disk` is a table of classes"), "{said}");
}
