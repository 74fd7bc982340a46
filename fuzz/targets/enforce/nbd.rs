//! Any bytes of a client of a served disk: the handshake ends, never with a class of others, and each request
//! after it is refused or lies within the disk.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::{self, Read, Write};
use std::sync::LazyLock;
use unisono_enforce::disk::handshake::{Export, Exports, negotiate};
use unisono_enforce::disk::nbd::{DiskCommand, ExportFacts, FileAccess, NbdRequest};
use unisono_fairqueue::Policy;

static EXPORTS: LazyLock<Exports> = LazyLock::new(|| {
    let text = "rate = \"1mbit\"\ndefault = \"rest\"\n[class.video]\n[class.secret]\n";
    let policy = Policy::parse(text).expect("a sound policy");
    let tree = &policy.hierarchy;
    let leaves = tree.classes().filter(|(id, _)| tree.is_leaf(*id));
    let export = |(class, facts): (_, &unisono_fairqueue::Class)| Export {
        name: facts.name.clone(),
        class,
        is_permitted: facts.name != "secret",
    };
    Exports {
        facts: ExportFacts { size: 1 << 20, access: FileAccess::Write },
        exports: leaves.map(export).collect(),
        default: policy.default,
    }
});

struct Sent<'a>(&'a [u8]);

impl Read for Sent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Sent<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut client = Sent(bytes);
    if let Ok(Some(class)) = negotiate(&mut client, &EXPORTS, &Vec::<u8>::new) {
        assert!(EXPORTS.exports.iter().any(|export| export.class == class && export.is_permitted));
    }
    let (requests, _) = client.0.as_chunks();
    for request in requests.iter().filter_map(NbdRequest::parse) {
        let has_range = |command| !matches!(command, DiskCommand::Flush | DiskCommand::Disconnect);
        if request.check(EXPORTS.facts).is_ok_and(has_range) {
            let end = u128::from(request.offset) + u128::from(request.length);
            assert!(end <= u128::from(EXPORTS.facts.size));
        }
    }
});
