//! A table of the required behavior of a switch: registers, frames in, frames out.
//!
//! It is written by hand from Table 1 of the paper and from the rules in [`unisono_btin::switch`], not made
//! by the state machine. So it tests every implementation: the one here, and the program in the Linux
//! kernel.

use unisono_btin::{
    BarrierFrame, Dropped, FrameOutcome, GroupId, MessageKind, Port, ReductionOperator, Register,
    SyncMessage, TurnPoint,
};

/// One switch and a sequence of frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SwitchCase {
    pub name: &'static str,
    pub register: Register,
    pub turn: TurnPoint,
    pub operation: ReductionOperator,
    pub first: u16,
    pub steps: Vec<CaseStep>,
}

/// One frame into the switch, and its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CaseStep {
    pub port: Port,
    pub frame: BarrierFrame,
    /// The frames that go out, ascending by port.
    pub out: Vec<(Port, BarrierFrame)>,
    pub outcome: FrameOutcome,
}

/// The group of every frame of the table.
pub(crate) const GROUP: GroupId = GroupId(9);

pub(crate) fn all() -> Vec<SwitchCase> {
    let mut cases = of_table_1();
    cases.extend(of_repetition());
    cases.extend(of_drops());
    cases.extend(of_data());
    cases
}

use FrameOutcome::{Again, Answered, Arrived, Completed, Passed, Released, Resent};

fn of_table_1() -> Vec<SwitchCase> {
    vec![
        case("a leaf switch sends the last arrival up and the release to its nodes", (7, &[], &[0, 2]))
            .step(0, up(0, 0), &[], Arrived)
            .step(2, up(0, 0), &[(7, up(0, 0))], Completed)
            .step(7, down(0, 0), &[(0, down(0, 0)), (2, down(0, 0))], Released),
        case("an intermediate switch waits for children and nodes alike", (1, &[4, 0], &[3]))
            .step(4, up(0, 0), &[], Arrived)
            .step(3, up(0, 0), &[], Arrived)
            .step(0, up(0, 0), &[(1, up(0, 0))], Completed)
            .step(1, down(0, 0), &[(0, down(0, 0)), (3, down(0, 0)), (4, down(0, 0))], Released),
        case("an intermediate switch without members passes its child's", (5, &[6], &[]))
            .step(6, up(0, 0), &[(5, up(0, 0))], Completed)
            .step(5, down(0, 0), &[(6, down(0, 0))], Released),
        case(
            "a root switch hands the last arrival to the root node and takes its distribution",
            (4, &[0, 1], &[5]),
        )
        .step(1, up(0, 0), &[], Arrived)
        .step(0, up(0, 0), &[], Arrived)
        .step(5, up(0, 0), &[(4, up(0, 0))], Completed)
        .step(4, down(0, 0), &[(0, down(0, 0)), (1, down(0, 0)), (5, down(0, 0))], Released),
        case("a root switch that turns counts the root node and releases by itself", (4, &[0, 1], &[5]))
            .turning()
            .step(1, up(0, 0), &[], Arrived)
            .step(4, up(0, 0), &[], Arrived)
            .step(0, up(0, 0), &[], Arrived)
            .step(
                5,
                up(0, 0),
                &[(0, down(0, 0)), (1, down(0, 0)), (4, down(0, 0)), (5, down(0, 0))],
                Released,
            ),
        case("a root switch that turns for one node alone", (2, &[], &[]))
            .turning()
            .step(2, up(0, 0), &[(2, down(0, 0))], Released)
            .step(2, up(1, 0), &[(2, down(1, 0))], Released),
        case("episodes follow each other and wrap around", (3, &[], &[0]))
            .beginning(65535)
            .step(0, up(65535, 0), &[(3, up(65535, 0))], Completed)
            .step(3, down(65535, 0), &[(0, down(65535, 0))], Released)
            .step(0, up(0, 0), &[(3, up(0, 0))], Completed)
            .step(0, up(65535, 0), &[(0, down(65535, 0))], Answered)
            .step(3, down(0, 0), &[(0, down(0, 0))], Released),
    ]
}

fn of_repetition() -> Vec<SwitchCase> {
    vec![
        case("an arrival twice is one", (7, &[1], &[0]))
            .step(0, up(0, 0), &[], Arrived)
            .step(0, up(0, 0), &[], Again)
            .step(1, up(0, 0), &[(7, up(0, 0))], Completed),
        case("an arrival after completion is sent up again", (7, &[1], &[0]))
            .step(0, up(0, 0), &[], Arrived)
            .step(1, up(0, 0), &[(7, up(0, 0))], Completed)
            .step(0, up(0, 0), &[(7, up(0, 0))], Resent)
            .step(1, up(0, 0), &[(7, up(0, 0))], Resent),
        case("an arrival after the release is answered on its port alone", (7, &[1], &[0]))
            .step(0, up(0, 0), &[], Arrived)
            .step(1, up(0, 0), &[(7, up(0, 0))], Completed)
            .step(7, down(0, 0), &[(0, down(0, 0)), (1, down(0, 0))], Released)
            .step(1, up(0, 0), &[(1, down(0, 0))], Answered)
            .step(0, up(1, 0), &[], Arrived)
            .step(1, up(0, 0), &[(1, down(0, 0))], Answered)
            .step(1, up(1, 0), &[(7, up(1, 0))], Completed),
        case("a release twice is replicated once", (7, &[], &[0]))
            .step(0, up(0, 0), &[(7, up(0, 0))], Completed)
            .step(7, down(0, 0), &[(0, down(0, 0))], Released)
            .step(7, down(0, 0), &[], dropped(Dropped::Repeated))
            .step(0, up(1, 0), &[(7, up(1, 0))], Completed)
            .step(7, down(0, 0), &[], dropped(Dropped::Repeated)),
        case("a root switch that turns answers by itself", (4, &[0], &[]))
            .turning()
            .step(0, up(0, 0), &[], Arrived)
            .step(0, up(0, 0), &[], Again)
            .step(4, up(0, 0), &[(0, down(0, 0)), (4, down(0, 0))], Released)
            .step(0, up(0, 0), &[(0, down(0, 0))], Answered)
            .step(4, up(0, 0), &[(4, down(0, 0))], Answered),
    ]
}

fn of_drops() -> Vec<SwitchCase> {
    vec![
        case("ports that the register does not name are nobody", (7, &[1], &[0]))
            .step(3, up(0, 0), &[], dropped(Dropped::Port))
            .step(3, down(0, 0), &[], dropped(Dropped::Port))
            .step(7, up(0, 0), &[], dropped(Dropped::Port))
            .step(0, down(0, 0), &[], dropped(Dropped::Port))
            .step(3, failure(0, 0), &[], dropped(Dropped::Port)),
        case("a root switch that turns takes no distribution from anybody", (4, &[0], &[]))
            .turning()
            .step(4, down(0, 0), &[], dropped(Dropped::Port))
            .step(0, down(0, 0), &[], dropped(Dropped::Port)),
        case("a distribution while arrivals are missing releases nobody", (7, &[], &[0, 1]))
            .step(7, down(0, 0), &[], dropped(Dropped::Early))
            .step(0, up(0, 0), &[], Arrived)
            .step(7, down(0, 0), &[], dropped(Dropped::Early))
            .step(1, up(0, 0), &[(7, up(0, 0))], Completed),
        case("before the first episode there is none to answer", (7, &[], &[0]))
            .step(0, up(65535, 0), &[], dropped(Dropped::Episode))
            .step(7, down(65535, 0), &[], dropped(Dropped::Episode)),
        case("episodes ahead and long past are dropped", (7, &[], &[0]))
            .beginning(5)
            .step(0, up(6, 0), &[], dropped(Dropped::Episode))
            .step(7, down(6, 0), &[], dropped(Dropped::Episode))
            .step(0, up(5, 0), &[(7, up(5, 0))], Completed)
            .step(7, down(4, 0), &[], dropped(Dropped::Episode))
            .step(7, down(5, 0), &[(0, down(5, 0))], Released)
            .step(0, up(4, 0), &[], dropped(Dropped::Episode))
            .step(0, failure(5, 1), &[], dropped(Dropped::Episode)),
        case("set-up is no switch's business", (7, &[], &[0])).step(
            0,
            frame(MessageKind::Setup, 0, 0),
            &[],
            dropped(Dropped::Kind),
        ),
        case(
            "a failure goes up from below and down from above, and the barrier may still end",
            (7, &[1], &[0]),
        )
        .step(0, failure(0, 3), &[(7, failure(0, 3))], Passed)
        .step(7, failure(0, 3), &[(0, failure(0, 3)), (1, failure(0, 3))], Passed)
        .step(0, up(0, 0), &[], Arrived)
        .step(1, up(0, 0), &[(7, up(0, 0))], Completed),
        case("a failure turns where the barrier turns", (7, &[1], &[0])).turning().step(
            1,
            failure(0, 3),
            &[(0, failure(0, 3)), (1, failure(0, 3)), (7, failure(0, 3))],
            Passed,
        ),
    ]
}

fn of_data() -> Vec<SwitchCase> {
    let combined = [
        ("or", ReductionOperator::Or, 0b1_1011),
        ("and", ReductionOperator::And, 0b0_0010),
        ("min", ReductionOperator::Min, 0b0_1010),
        ("max", ReductionOperator::Max, 0b1_0011),
        ("sum", ReductionOperator::Sum, 0b1_1101),
    ];
    let mut cases: Vec<_> = combined
        .into_iter()
        .map(|(name, operation, both)| {
            case(name, (7, &[1], &[0]))
                .combining(operation)
                .step(0, up(0, 0b0_1010), &[], Arrived)
                .step(0, up(0, 0b0_1010), &[], Again)
                .step(1, up(0, 0b1_0011), &[(7, up(0, both))], Completed)
                .step(0, up(0, 0b0_1010), &[(7, up(0, both))], Resent)
                .step(7, down(0, 33), &[(0, down(0, 33)), (1, down(0, 33))], Released)
                .step(0, up(0, 0b0_1010), &[(0, down(0, 33))], Answered)
                .step(0, up(1, 7), &[], Arrived)
                .step(1, up(1, 7), &[(7, up(1, operation.combine(7, 7)))], Completed)
        })
        .collect();
    cases.push(
        case("a sum beyond the six bits stays at the greatest value", (4, &[0, 1], &[]))
            .turning()
            .combining(ReductionOperator::Sum)
            .step(0, up(0, 40), &[], Arrived)
            .step(1, up(0, 40), &[], Arrived)
            .step(4, up(0, 1), &[(0, down(0, 63)), (1, down(0, 63)), (4, down(0, 63))], Released)
            .step(1, up(0, 40), &[(1, down(0, 63))], Answered),
    );
    cases
}

fn case(name: &'static str, (parent, children, locals): (u16, &[u16], &[u16])) -> SwitchCase {
    let sorted = |ports: &[u16]| {
        let mut ports: Vec<_> = ports.iter().copied().map(Port).collect();
        ports.sort_unstable();
        ports
    };
    let register =
        Register { parent: Some(Port(parent)), children: sorted(children), locals: sorted(locals) };
    SwitchCase {
        name,
        register,
        turn: TurnPoint::AtNode,
        operation: ReductionOperator::Or,
        first: 0,
        steps: vec![],
    }
}

impl SwitchCase {
    fn turning(self) -> Self {
        Self { turn: TurnPoint::AtSwitch, ..self }
    }

    fn combining(self, operation: ReductionOperator) -> Self {
        Self { operation, ..self }
    }

    fn beginning(self, first: u16) -> Self {
        Self { first, ..self }
    }

    fn step(
        mut self,
        port: u16,
        frame: BarrierFrame,
        out: &[(u16, BarrierFrame)],
        outcome: FrameOutcome,
    ) -> Self {
        let out = out.iter().map(|(port, frame)| (Port(*port), *frame)).collect();
        self.steps.push(CaseStep { port: Port(port), frame, out, outcome });
        self
    }
}

fn frame(kind: MessageKind, episode: u16, data: u8) -> BarrierFrame {
    BarrierFrame { message: SyncMessage::new(kind, GROUP, data), episode }
}

fn up(episode: u16, data: u8) -> BarrierFrame {
    frame(MessageKind::Reduction, episode, data)
}

fn down(episode: u16, data: u8) -> BarrierFrame {
    frame(MessageKind::Distribution, episode, data)
}

fn failure(episode: u16, data: u8) -> BarrierFrame {
    frame(MessageKind::Failure, episode, data)
}

fn dropped(why: Dropped) -> FrameOutcome {
    FrameOutcome::Dropped(why)
}
