//! A file of an MQTT session, with any bytes: it is refused with the number of a line, or describes a session
//! that is the same when its file is written anew.
#![no_main]

use unisono_broker::log::SavedSession;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (session, whole) = match SavedSession::read(bytes) {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err((line, _)) => return assert!(line <= 1 + bytes.iter().filter(|byte| **byte == b'\n').count()),
    };
    assert!(whole <= bytes.len());
    let lines = session.lines();
    let (again, length) = SavedSession::read(&lines).expect("it was written here").expect("it is whole");
    assert_eq!(length, lines.len());
    assert_eq!(again.lines(), lines);
    assert_eq!((again.flights(), again.first()), (session.flights(), session.first()));
    assert_eq!((&again.subscriptions, &again.arrived), (&session.subscriptions, &session.arrived));
});
