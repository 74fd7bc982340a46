//! Fuzzes the reader of btin-tree-1, and the checker with the tree that it read.
#![no_main]

use std::sync::LazyLock;
use unisono_btin::check::{Rules, check};
use unisono_btin::generate::{NetworkOptions, generate};
use unisono_btin::{NetworkFile, Tree};

static NETWORK: LazyLock<NetworkFile> = LazyLock::new(|| {
    let options = NetworkOptions { switches: 6, ports: 4, nodes: 8, members: 5, ..NetworkOptions::default() };
    generate(&options).expect("it fits")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(tree) = Tree::from_json(text) else { return };
    assert_eq!(Tree::from_json(&tree.to_json()).as_ref(), Ok(&tree));
    for rules in [Rules::Sound, Rules::Optimal] {
        if let Err(broken) = check(&NETWORK.network, &NETWORK.groups[0], &tree, rules) {
            let place = tree.locate(text, broken.place, broken.to_string());
            assert!(place.line >= 1 && place.column >= 1);
        }
    }
});
