//! The fairness, delay and service bounds of start-time fair queuing, as formulas.
//!
//! Weights and shares are plain numbers here, lengths are bytes, rates are bytes a second, times are seconds.
//!
//! Reference: Goyal, Vin, Cheng, "Start-time Fair Queueing", theorems 1, 2 and 4.

/// Returns the bound of `|W_f / r_f - W_m / r_m|`, the difference in normalized service of two siblings, over
/// any interval in which both are backlogged (theorem 1). `longest` holds each sibling's longest packet,
/// `weights` holds their weights `r`.
///
/// ```
/// // two siblings of weights 3 and 1, with packets of at most 1500 bytes
/// assert_eq!(unisono_fairqueue::bounds::fairness([1500.0, 1500.0], [3.0, 1.0]), 2000.0);
/// ```
pub fn fairness(longest: [f64; 2], weights: [f64; 2]) -> f64 {
    longest[0] / weights[0] + longest[1] / weights[1]
}

/// Returns the bound of the time from the expected arrival of a flow's packet until it has left (theorem 4):
/// the time to send one longest packet of each other flow, and the packet itself. The link has a constant
/// rate, and the weights are rates whose sum does not exceed it.
pub fn delay(longest_of_others: &[f64], length: f64, link: f64) -> f64 {
    longest_of_others.iter().sum::<f64>() / link + length / link
}

/// Returns the expected arrival times of a flow's packets: the moments at which they would begin to leave on
/// a link of the flow's own with the flow's rate.
pub fn expected_arrivals(arrivals: &[(f64, f64)], rate: f64) -> Vec<f64> {
    let mut free = f64::NEG_INFINITY;
    let expected = arrivals.iter().map(|(time, length)| {
        let begins = time.max(free);
        free = begins + length / rate;
        begins
    });
    expected.collect()
}

/// Returns the least service that a backlogged class gets in an interval of a busy period in which its parent
/// gets at least `service` bytes: its share of them, after the longest packet of each sibling is subtracted,
/// less its own longest packet (theorem 2, by which classes can nest).
pub fn least_service(
    service: f64,
    weight: f64,
    all_weights: f64,
    longest_of_all: &[f64],
    longest: f64,
) -> f64 {
    (weight / all_weights * (service - longest_of_all.iter().sum::<f64>()) - longest).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_expected_when_the_one_before_it_would_have_ended() {
        assert_eq!(expected_arrivals(&[(0.0, 10.0), (0.1, 10.0), (9.0, 10.0)], 5.0), [0.0, 2.0, 9.0]);
    }
}
