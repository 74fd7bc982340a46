//! Any bytes of a client, in pieces of any length: they become lines, or the connection is closed. A line is
//! refused, or it is a request that is equal after it is written and read again. The permissions refuse every
//! change by an unrelated user.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unisono_gang::service::peers::LineBuffer;
use unisono_gang::service::request::{GangName, ServiceRequest, parse, weight_of};
use unisono_gang::service::state::{AddWish, AskedBy, FoundTarget, ServiceState};

fuzz_target!(|bytes: &[u8]| {
    let mut buffer = LineBuffer::default();
    let (first, second) = bytes.split_at(bytes.len() / 2);
    if buffer.push(first).and_then(|()| buffer.push(second)).is_err() {
        return;
    }
    let mut state = ServiceState::default();
    while let Some(line) = buffer.next_line() {
        let Ok(request) = parse(&line) else { continue };
        let again = serde_json::to_vec(&request).expect("it is written as JSON");
        assert_eq!(parse(&again).as_ref(), Ok(&request));
        match request {
            ServiceRequest::Add { target, name, weight } => {
                let weight = weight_of(weight).expect("the parser has looked");
                let found = FoundTarget {
                    group: "/".into(),
                    owners: [0].into(),
                    group_owner: 0,
                    name: GangName::like("program"),
                };
                assert!(state.add(5, AddWish { target, name, weight, by: AskedBy::Client }, &found).is_err());
            }
            ServiceRequest::Remove { gang } | ServiceRequest::Weight { gang, .. } => {
                assert!(state.removable(5, &gang).is_err());
            }
            ServiceRequest::Slice { .. } => assert!(ServiceState::may_set_slice(5).is_err()),
            ServiceRequest::List {} => {}
        }
    }
});
