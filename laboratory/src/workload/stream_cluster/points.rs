//! Points with weights, in integers.

pub const DIMENSIONS: usize = 128;

/// The maximum coordinate. Differences fit in 16 bits, and the squares of the differences in all dimensions
/// add up to less than 2^27, so that compilers can compute a distance with vectors of 16-bit numbers.
pub const MAX_COORDINATE: i16 = 1023;

/// Coordinates from 0 to [`MAX_COORDINATE`].
pub type Coordinates = [i16; DIMENSIONS];

/// Points with their weights. A weight is the number of points of the stream that a point represents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightedPoints {
    coordinates: Vec<Coordinates>,
    weights: Vec<i64>,
}

impl WeightedPoints {
    pub fn push(&mut self, coordinates: Coordinates, weight: i64) {
        self.coordinates.push(coordinates.map(|c| c.clamp(0, MAX_COORDINATE)));
        self.weights.push(weight.max(1));
    }

    pub fn len(&self) -> usize {
        self.weights.len()
    }

    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    pub fn coordinates(&self, point: usize) -> &Coordinates {
        &self.coordinates[point]
    }

    pub fn weight(&self, point: usize) -> i64 {
        self.weights[point]
    }

    pub fn total_weight(&self) -> i64 {
        self.weights.iter().sum()
    }

    /// Returns the coordinates and the weight of each point.
    pub fn iter(&self) -> impl Iterator<Item = (&Coordinates, i64)> {
        self.coordinates.iter().zip(self.weights.iter().copied())
    }

    pub fn extend(&mut self, others: &Self) {
        self.coordinates.extend_from_slice(&others.coordinates);
        self.weights.extend_from_slice(&others.weights);
    }

    /// Returns the cost of `point` if it is assigned to a center at the position of the point `centre`.
    pub(super) fn cost(&self, point: usize, centre: usize) -> i64 {
        distance(&self.coordinates[point], &self.coordinates[centre]) * self.weights[point]
    }

    /// Halves all weights, so that earlier points count less from now on.
    pub(super) fn halve(&mut self) {
        for weight in &mut self.weights {
            *weight = (*weight / 2).max(1);
        }
    }
}

/// Returns the square of the Euclidean distance, as in streamcluster.
pub fn distance(a: &Coordinates, b: &Coordinates) -> i64 {
    let squares = a.iter().zip(b).map(|(a, b)| {
        let difference = i32::from(a - b);
        difference * difference
    });
    i64::from(squares.sum::<i32>())
}
