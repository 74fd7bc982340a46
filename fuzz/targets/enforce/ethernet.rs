//! Fuzzes frames. A frame is parsed or refused; its first half gives no other facts than the whole frame; it
//! gets a leaf as its class, or none; its tag is removed; and a run of frames that begins with it has
//! consistent lengths.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use unisono_enforce::interposed::merge::{FrameRun, MAX_HEADERS};
use unisono_enforce::interposed::parse::{ParsedFrame, parse};
use unisono_enforce::interposed::{Classifier, Named, untag};
use unisono_fairqueue::Policy;

static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let text = "rate = \"1mbit\"\n[class.a]\nmatch = [{ cgroup = \"/a\", port = 5 }, { priority = 6 }]\n\
                [class.b]\nflows = \"fair\"\nmatch = [{ address = \"10.0.0.0/8\", protocol = \"udp\" }]\n\
                [class.c]\nmatch = [{ mark = 7 }, { dscp = \"ef\" }, { vlan = 5 }]\n";
    Policy::parse(text).expect("a sound policy")
});

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes);
    if let Ok(ParsedFrame::Ip(shorter)) = parse(&bytes[..bytes.len() / 2]) {
        assert_eq!(whole, Ok(ParsedFrame::Ip(shorter)));
    }
    let mut classifier = Classifier::new(Named::from_policy(&POLICY).expect("a few"));
    if let Ok(class) = classifier.class(&POLICY, bytes) {
        assert!(POLICY.hierarchy.is_leaf(class));
    }
    untag(&mut bytes.to_vec());
    let (first, second) = bytes.split_at(bytes.len() / 2);
    if let Some(mut run) = FrameRun::begin(first) {
        let frames = 1 + usize::from(run.takes(first, second));
        assert_eq!(run.frames(), frames);
        let cut = run.header(first, &mut [0; MAX_HEADERS]);
        assert_eq!((cut.headers, cut.headers + cut.segment), (run.payload(), first.len()));
    }
});
