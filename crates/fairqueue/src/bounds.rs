//! What may be expected of start-time fair queuing, as formulas.
//!
//! Weights and shares are plain numbers here, lengths bytes, rates bytes a second, times seconds.
//!
//! Reference: Goyal, Vin, Cheng, "Start-time Fair Queueing", theorems 1, 2 and 4.

/// How far the normalised service of two siblings can be apart over any interval in which both always want
/// service: `|W_f / r_f - W_m / r_m|` is at most this (theorem 1). With `l` the longest packet of each and
/// `r` its weight.
pub fn fairness(longest: [f64; 2], weights: [f64; 2]) -> f64 {
    longest[0] / weights[0] + longest[1] / weights[1]
}

/// How much later than its expected arrival time a packet of a flow has left at the latest, on a link of
/// constant rate on which the weights are rates that do not exceed the link's (theorem 4): one longest packet
/// of each other flow, and itself.
pub fn delay(longest_of_others: &[f64], length: f64, link: f64) -> f64 {
    longest_of_others.iter().sum::<f64>() / link + length / link
}

/// The expected arrival time of a flow's packets: when each would begin on a link of its own of the flow's
/// rate.
pub fn expected_arrivals(arrivals: &[(f64, f64)], rate: f64) -> Vec<f64> {
    let mut free = f64::NEG_INFINITY;
    let expected = arrivals.iter().map(|(time, length)| {
        let begins = time.max(free);
        free = begins + length / rate;
        begins
    });
    expected.collect()
}

/// The least service that a class gets of its parent in an interval of a busy period in which it always wants
/// service, when its parent gets at least `service` bytes: its share of them, less what its siblings' longest
/// packets and its own may take (theorem 2, which makes classes of classes possible).
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
