//! One member's part in a round of agreement, without I/O: when all members have arrived, the root decides
//! which barrier is complete.
//!
//! Members may wait in two successive barriers at a time: a faster barrier beside the tree may have released
//! some members and not others ([`super::FastBarrier`]). So a report has the lowest and the highest number of
//! the barriers in which the members of a subtree wait. A member that waits in a barrier has left all earlier
//! ones, and none is left before all have arrived. So if the root's span is one number, this barrier is
//! complete, and otherwise the barrier before the highest. A member that the faster barrier releases after
//! its report withdraws the report; if the withdrawal comes too late, the decision is still true.

/// The lowest and the highest number of the barriers in which the members of a subtree wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) lowest: u64,
    pub(super) highest: u64,
}

/// The message that follows from a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RoundStep {
    Nothing,
    /// To the parent.
    Report(Span),
    /// To the parent.
    Withdraw,
    /// At the root: barriers up to this number are complete.
    Decide(u64),
}

#[derive(Debug)]
pub(super) struct Round {
    /// The number of decisions before this round.
    pub(super) number: u32,
    is_root: bool,
    own: Option<u64>,
    children: Vec<Option<Span>>,
    is_reported: bool,
}

impl Round {
    pub(super) fn first(is_root: bool, children: usize) -> Self {
        Self { number: 0, is_root, own: None, children: vec![None; children], is_reported: false }
    }

    /// Begins the round after the decision with this number.
    pub(super) fn begin(&mut self, number: u32) {
        self.number = number;
        self.own = None;
        self.children.fill(None);
        self.is_reported = false;
    }

    /// This member waits in the barrier with this number.
    pub(super) fn arrive(&mut self, episode: u64) -> RoundStep {
        self.own = Some(episode);
        self.try_report()
    }

    /// This member waits no longer.
    pub(super) fn withdraw(&mut self) -> RoundStep {
        self.own = None;
        self.revoke()
    }

    pub(super) fn take_report(&mut self, child: usize, span: Span) -> RoundStep {
        self.children[child] = Some(span);
        self.try_report()
    }

    pub(super) fn take_withdrawal(&mut self, child: usize) -> RoundStep {
        self.children[child] = None;
        self.revoke()
    }

    fn try_report(&mut self) -> RoundStep {
        let Some(own) = self.own.filter(|_| !self.is_reported) else { return RoundStep::Nothing };
        let mut span = Span { lowest: own, highest: own };
        for child in &self.children {
            let Some(below) = child else { return RoundStep::Nothing };
            span.lowest = span.lowest.min(below.lowest);
            span.highest = span.highest.max(below.highest);
        }
        if self.is_root {
            let is_one = span.lowest == span.highest;
            return RoundStep::Decide(if is_one { span.highest } else { span.highest - 1 });
        }
        self.is_reported = true;
        RoundStep::Report(span)
    }

    fn revoke(&mut self) -> RoundStep {
        if std::mem::take(&mut self.is_reported) { RoundStep::Withdraw } else { RoundStep::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(lowest: u64, highest: u64) -> Span {
        Span { lowest, highest }
    }

    #[test]
    fn a_subtree_is_reported_once_all_of_it_waits_and_taken_back_when_one_does_not() {
        let mut round = Round::first(false, 2);
        assert_eq!(round.take_report(0, span(7, 7)), RoundStep::Nothing);
        assert_eq!(round.arrive(7), RoundStep::Nothing);
        assert_eq!(round.take_report(1, span(7, 8)), RoundStep::Report(span(7, 8)));
        assert_eq!(round.take_withdrawal(0), RoundStep::Withdraw);
        assert_eq!(round.withdraw(), RoundStep::Nothing, "the parent knows it");
        assert_eq!(round.take_report(0, span(8, 8)), RoundStep::Nothing);
        assert_eq!(round.arrive(8), RoundStep::Report(span(7, 8)));
        round.begin(1);
        assert_eq!(round.withdraw(), RoundStep::Nothing);
        assert_eq!(round.arrive(8), RoundStep::Nothing, "the children begin anew as well");
    }

    #[test]
    fn the_root_decides_for_the_barrier_that_all_have_entered() {
        let mut root = Round::first(true, 1);
        root.take_report(0, span(3, 3));
        assert_eq!(root.arrive(3), RoundStep::Decide(3));
        root.begin(1);
        root.take_report(0, span(4, 4));
        assert_eq!(root.arrive(5), RoundStep::Decide(4), "a member that waits in 5 has left 4");
    }
}
