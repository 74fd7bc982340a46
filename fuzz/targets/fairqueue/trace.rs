//! Fuzzes the reader of traces, and the simulated link that serves the packets read.
#![no_main]

use unisono_fairqueue::{Scheduler, Trace};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(trace) = Trace::parse(text) else { return };
    let departures = trace.departures(&mut Scheduler::new(trace.hierarchy().clone()));
    // every packet leaves, one after the other, and none before it has arrived
    for pair in departures.windows(2) {
        assert!(pair[0].end.to_f64() <= pair[1].start.to_f64() * (1.0 + 1e-9) + 1e-9);
    }
    let delays = trace.delays(&departures);
    assert_eq!(delays.iter().map(|class| class.packets).sum::<usize>(), departures.len());
});
