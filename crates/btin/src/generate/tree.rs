//! Draws a random tree over switches of k ports. All ways to plug the cables of such trees are equally
//! likely.
//!
//! A labelled tree in which switch i has d(i) links can be plugged in the product of k (k-1) ... (k-d(i)+1)
//! ways, and there are (q-2)! / product of (d(i)-1)! such trees. The product of the two numbers is, up to a
//! constant, the product over all i of C(k-1, d(i)-1). That is the number of ways to draw d(i)-1 balls from
//! the k-1 balls of each switch i. So draw q-2 of all q (k-1) balls without replacement, and read the
//! switches of the drawn balls as the Prüfer sequence.

use rand::Rng;
use rand_pcg::Pcg64Mcg;

/// Returns the q-1 links of such a tree, as pairs of switches.
///
/// Needs at least two ports a switch, unless there are at most two switches.
pub(super) fn draw(switches: u32, ports: u16, random: &mut Pcg64Mcg) -> Vec<(u32, u32)> {
    match switches {
        0 | 1 => Vec::new(),
        2 => vec![(0, 1)],
        _ => decode(switches, &sequence(switches, ports, random)),
    }
}

/// Draws q-2 numbers below q from a bag that holds each number k-1 times, without replacement.
fn sequence(switches: u32, ports: u16, random: &mut Pcg64Mcg) -> Vec<u32> {
    let wanted = switches as usize - 2;
    let each = usize::from(ports) - 1;
    let balls = switches as usize * each;
    // Fisher and Yates's shuffle, stopped after the first q-2 elements
    let mut bag: Vec<u32> = (0..switches).flat_map(|switch| std::iter::repeat_n(switch, each)).collect();
    for at in 0..wanted {
        let other = random.random_range(at..balls);
        bag.swap(at, other);
    }
    bag.truncate(wanted);
    bag
}

/// Decodes a Prüfer sequence in linear time.
fn decode(switches: u32, sequence: &[u32]) -> Vec<(u32, u32)> {
    let mut degree = vec![1_u32; switches as usize];
    for switch in sequence {
        degree[*switch as usize] += 1;
    }
    let mut links = Vec::with_capacity(switches as usize - 1);
    let next_leaf = |from: u32, degree: &[u32]| {
        (from..switches).find(|switch| degree[*switch as usize] == 1).unwrap_or(switches - 1)
    };
    let mut first = next_leaf(0, &degree);
    let mut leaf = first;
    for &switch in sequence {
        links.push((leaf, switch));
        degree[leaf as usize] -= 1;
        degree[switch as usize] -= 1;
        if degree[switch as usize] == 1 && switch < first {
            leaf = switch; // the new leaf has a lower number than all leaves not yet visited
        } else {
            first = next_leaf(first + 1, &degree);
            leaf = first;
        }
    }
    links.push((leaf, switches - 1));
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::HashMap;

    #[test]
    fn prüfer_sequences_of_four_stand_for_the_sixteen_trees() {
        let mut seen = std::collections::BTreeSet::new();
        for a in 0..4 {
            for b in 0..4 {
                let mut links: Vec<_> =
                    decode(4, &[a, b]).into_iter().map(|(x, y)| (x.min(y), x.max(y))).collect();
                links.sort_unstable();
                assert_eq!(links.len(), 3);
                seen.insert(links);
            }
        }
        assert_eq!(seen.len(), 16);
    }

    #[test]
    fn trees_are_drawn_as_often_as_they_can_be_plugged() {
        // 4 switches of 3 ports: 4 stars, plugged in 3! * 3^3 = 162 ways each, and 12 paths, in (3*2)^2 * 3^2
        // = 324 ways each: a star is 648 of 4536 draws
        let mut random = Pcg64Mcg::seed_from_u64(5);
        let mut of_degree: HashMap<usize, u32> = HashMap::new();
        let draws = 45_360;
        for _ in 0..draws {
            let links = draw(4, 3, &mut random);
            let max_degree =
                (0..4).map(|switch| links.iter().filter(|(a, b)| *a == switch || *b == switch).count()).max();
            *of_degree.entry(max_degree.unwrap_or(0)).or_default() += 1;
        }
        let stars = f64::from(of_degree[&3]);
        assert!((stars - 6480.0).abs() < 5.0 * 75.0, "{stars} stars of {draws}, expected 6480 +- 75");
    }
}
