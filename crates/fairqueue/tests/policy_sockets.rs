//! Tests the key `sockets` of a class: the users whose sockets may have leaves of their own in the class.

use unisono_fairqueue::Policy;

fn with(sockets: &str) -> Result<Policy, String> {
    let text = format!("rate = \"1mbit\"\ndefault = \"rest\"\n[class.video]\n{sockets}\n[class.rest]\n");
    Policy::parse(&text).map_err(|error| error.to_string())
}

#[test]
fn a_class_says_whose_sockets_how_many_and_with_which_weights() {
    let policy =
        with("sockets = { from = [\"alice\", 1000], max = 5, weight = \"0.5..20\" }").expect("sound");
    let id = policy.hierarchy.find("video").expect("a class");
    let sockets = policy.sockets(id).expect("it has some");
    assert_eq!((sockets.from.as_slice(), sockets.max), (&["alice".to_owned(), "1000".to_owned()][..], 5));
    assert_eq!(
        (sockets.min_weight.to_string(), sockets.max_weight.to_string()),
        ("0.5".into(), "20".into())
    );
    assert!(policy.sockets(policy.default).is_none());
    let policy = with("[class.video.sockets]\nfrom = [0]").expect("a table of its own is the same");
    let sockets = &policy.sockets[0];
    assert_eq!((sockets.class, sockets.max, sockets.max_weight.to_f64()), (id, 1000, 100.0));
}

#[test]
fn a_mistake_is_named_with_its_place_and_what_to_write() {
    for (sockets, said) in [
        ("sockets = true", "4:11: `sockets` is a table, as in sockets = { from = [\"alice\"]"),
        ("sockets = {}", "4:11: sockets: `from` is missing"),
        ("sockets = { from = [] }", "4:13: sockets: `from` names no user"),
        ("sockets = { from = \"alice\" }", "4:20: `from` is a list, as in [\"alice\", 1000]"),
        ("sockets = { from = [1], most = 3 }", "4:25: sockets: unknown key `most`; "),
        (
            "sockets = { from = [1], max = 0 }",
            "4:31: sockets: `max` is the most sockets of each user",
        ),
        (
            "sockets = { from = [1], weight = 3 }",
            "4:34: `weight` is the lowest and the highest weight",
        ),
        ("sockets = { from = [1], weight = \"3\" }", "4:34: sockets: \"3\" is no range of weights"),
        (
            "sockets = { from = [1], weight = \"3..2\" }",
            "4:34: sockets: the lowest weight 3 is over",
        ),
        ("sockets = { from = [1], weight = \"1..2000\" }", "at most 1000 times the lowest one, 1"),
        ("sockets = { from = [1] }\n[class.video.live]", "4:1: class `video` has children"),
    ] {
        let error = with(sockets).expect_err(sockets);
        assert!(error.contains(said), "{sockets}: {error}");
    }
}
