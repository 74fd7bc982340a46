//! Tests the key `fair` of a class: the hosts that take turns in it.

use unisono_fairqueue::{Facts, Policy};

#[test]
fn a_host_is_the_sender_unless_its_class_names_the_receiver() {
    let text = "rate = \"1mbit\"\ndefault = \"rest\"\n[class.cell]\nfair = \"host\"\nmatch = [{ address = \"10.0.0.0/8\" }]\n\
                [class.rest]\nfair = \"host\"\n[class.down]\nfair = \"receiver\"\nmatch = [{ mark = 1 }]\n\
                [class.flows]\nfair = \"flow\"\nmatch = [{ mark = 2 }]\n";
    let policy = Policy::parse(text).expect("it is sound");
    let host = |source: &str, destination: &str, mark| {
        let (source, destination) = (source.parse().ok(), destination.parse().ok());
        let facts = Facts { source, destination, mark, ..Facts::default() };
        policy.host(policy.class_of(&facts), &facts).map(|host| host.to_string())
    };
    let (inside, outside) = ("10.1.2.3", "192.0.2.1");
    for (source, destination, mark, found) in [
        (inside, outside, None, Some(inside)),
        (outside, inside, None, Some(inside)),
        (inside, "10.9.9.9", None, Some(inside)),
        (outside, "192.0.2.2", None, Some(outside)),
        (outside, "192.0.2.2", Some(1), Some("192.0.2.2")),
        (outside, "192.0.2.2", Some(2), None),
    ] {
        assert_eq!(host(source, destination, mark).as_deref(), found, "{source} {destination} {mark:?}");
    }
    assert_eq!(policy.class_of_hosts(), Some("cell"));
    let mistake = |class: &str| {
        Policy::parse(&format!("rate = \"1mbit\"\n[class.a]\n{class}")).expect_err("a mistake").to_string()
    };
    assert!(mistake("fair = \"hosts\"").contains("fair: unknown word `hosts`; did you mean `host`"));
    assert!(mistake("flows = \"fair\"\nfair = \"host\"").starts_with("4:1: `flows` and `fair` say the same"));
    assert!(mistake("fair = \"host\"\norder = \"deadline\"").contains("take `order` or `fair` out"));
    assert!(mistake("fair = \"host\"\n[class.a.b]").contains("say `fair` there"));
}
