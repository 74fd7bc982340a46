//! Clusters a stream of points while it arrives: k-median by facility location with local search.
//!
//! ```text
//!   stream  |  chunk of points  |  chunk of points  | ...
//!                |                    |
//!           local search         local search            10 to 20 centres a chunk
//!                |                    |
//!           weighted centres --> weighted centres --> ... kept; a centre weighs as much as its points
//!                                     |
//!                                local search            over what is kept: the stream's clusters now
//! ```
//! Opening a centre costs z, and a point costs its distance to its centre. [`LocalSearch`] opens and closes
//! centres while that lowers the sum, and finds by bisection a z for which 10 to 20 centres remain.
//! [`ClusterTeam`] does so chunk after chunk, with a team of threads that share each chunk's points.
//!
//! The barriers are streamcluster's: each evaluation of a candidate has nine, of which one follows nearly all
//! the work. A program that only wants the clusters needs four, but the barriers are what studies measure
//! here. Three things differ from streamcluster, so that the result depends on the seed alone and not on the
//! number of threads: coordinates are whole numbers, each point's random number is a hash of its position,
//! and the points are not shuffled again for each attempt.
//!
//! Cost: an evaluation computes one distance for each point. A chunk of 16,000 points takes a few hundred to
//! a few thousand evaluations. When not to use it: with fewer points than centres, or with points that arrive
//! more slowly than they could be clustered one by one.
//!
//! References: Guha, Meyerson, Mishra, Motwani, O'Callaghan: Clustering data streams: theory and practice,
//! IEEE TKDE 15(3), 2003 (local search, chunks folded into weighted centres). Meyerson: Online facility
//! location, FOCS 2001 (the first centres). Bienia, Kumar, Singh, Li: The PARSEC benchmark suite, PACT 2008
//! (the program streamcluster). Written from these descriptions.
//!
//! Read `points` first, then `search`, `evaluation`, `table` and `team`.

mod evaluation;
#[cfg(test)]
mod model;
mod points;
mod search;
mod table;
mod team;

pub use points::{Coordinates, DIMENSIONS, MOST_COORDINATE, WeightedPoints, distance};
pub use search::{CentreRange, LocalSearch};
pub use team::{ClusterTeam, StreamClusters};
