//! Clusters a stream of points while it arrives: k-median by facility location with local search.
//!
//! ```text
//!   stream  |  chunk of points  |  chunk of points  | ...
//!                |                    |
//!           local search         local search            10 to 20 centers a chunk
//!                |                    |
//!           weighted centers --> weighted centers --> ... kept; a center weighs as much as its points
//!                                     |
//!                                local search            over what is kept: the stream's clusters now
//! ```
//! A center costs z, and a point costs its distance to its center. [`LocalSearch`] opens and closes centers
//! as long as that lowers the sum of the costs, and finds by bisection a z with which 10 to 20 centers
//! remain. [`ClusterTeam`] repeats this for each chunk, with a team of threads that share each chunk's
//! points.
//!
//! The barriers are streamcluster's: each evaluation of a candidate has nine, and nearly all the work is
//! before one barrier. A program that needs only the clusters could use four, but the barriers are the
//! subject of the studies. Three things differ from streamcluster, so that the result depends only on the
//! seed and not on the number of threads: coordinates are integers, each point's random number is a hash of
//! its position, and the points are not shuffled again for each attempt.
//!
//! Cost: an evaluation computes one distance per point. A chunk of 16,000 points takes a few hundred to a few
//! thousand evaluations. When not to use it: with fewer points than centers, or with points that arrive so
//! slowly that they could be clustered one by one.
//!
//! References: Guha, Meyerson, Mishra, Motwani, O'Callaghan: Clustering data streams: theory and practice,
//! IEEE TKDE 15(3), 2003 (local search, chunks folded into weighted centres). Meyerson: Online facility
//! location, FOCS 2001 (the first centres). Bienia, Kumar, Singh, Li: The PARSEC benchmark suite, PACT 2008
//! (the program streamcluster). Written from these descriptions.
//!
//! Read `points` first, then `search`, `evaluation`, `table` and `team`.

mod evaluation;
#[cfg(test)]
mod model_tests;
mod points;
mod search;
mod table;
mod team;

pub use points::{Coordinates, DIMENSIONS, MAX_COORDINATE, WeightedPoints, distance};
pub use search::{CentreRange, LocalSearch};
pub use team::{ClusterTeam, StreamClusters};
