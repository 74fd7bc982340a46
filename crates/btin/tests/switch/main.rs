//! Tests the state machine of a switch with the table of its required behavior.

mod cases;

use unisono_btin::{Switch, TurnPoint};

#[test]
fn every_case_of_the_table_comes_out_as_written() {
    for case in cases::all() {
        let mut switch = Switch::new(&case.register, case.turn, case.operation).starting_at(case.first);
        for (number, step) in case.steps.iter().enumerate() {
            let mut out = Vec::new();
            let outcome = switch.take(step.port, step.frame, &mut out);
            assert_eq!((outcome, &out), (step.outcome, &step.out), "{}, step {number}", case.name);
        }
    }
}

#[test]
fn the_table_shows_every_outcome_in_both_ways_to_turn() {
    let mut seen: Vec<String> = cases::all()
        .iter()
        .flat_map(|case| case.steps.iter().map(|step| format!("{:?}", step.outcome)))
        .collect();
    seen.sort();
    seen.dedup();
    let all = [
        "Again",
        "Answered",
        "Arrived",
        "Completed",
        "Dropped(Early)",
        "Dropped(Episode)",
        "Dropped(Kind)",
        "Dropped(Port)",
        "Dropped(Repeated)",
        "Passed",
        "Released",
        "Resent",
    ];
    assert_eq!(seen, all);
    for turn in [TurnPoint::AtNode, TurnPoint::AtSwitch] {
        assert!(cases::all().iter().any(|case| case.turn == turn));
    }
}
