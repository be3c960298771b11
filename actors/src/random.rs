//! Seeded pseudo-random numbers that are the same on every machine and in every release.
//!
//! Two processes that know a seed derive the same initial weights and the same order of the rows,
//! so neither has to be sent. Not for secrets.

/// The SplitMix64 generator (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
/// 2014). One addition and three mixing steps a number; every seed is a good seed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator whose numbers depend on `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator for part `stream` of the run `seed`: streams of one seed do not resemble each other.
    pub fn stream(seed: u64, stream: u64) -> Self {
        let first = Self::new(seed).next_u64();
        Self::new(first ^ Self::new(stream.wrapping_add(1)).next_u64())
    }

    /// The next number, uniform over all of `u64`.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`, a multiple of 2^-24: exact in `f32`, so it cannot round up to 1.
    pub fn next_f32(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// Uniform in `0..bound`; 0 if `bound` is 0. By multiplication instead of remainder: the bias is
    /// below `bound / 2^64`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }
}

/// The numbers `0..rows` in an order that depends on `seed` and `epoch` (Fisher and Yates).
///
/// The first and the last stage of a pipeline both compute it: that is how the labels at one end stay
/// with the inputs at the other without a word between them.
pub fn shuffled(rows: usize, seed: u64, epoch: u32) -> Vec<usize> {
    let mut random = SplitMix64::stream(seed, u64::from(epoch));
    let mut order: Vec<usize> = (0..rows).collect();
    for last in (1..rows).rev() {
        order.swap(last, random.below(last + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_paper() {
        // Reference values of splitmix64.c (Vigna) for the seed 1234567.
        let mut random = SplitMix64::new(1234567);
        assert_eq!(random.next_u64(), 6457827717110365317);
        assert_eq!(random.next_u64(), 3203168211198807973);
        assert_eq!(random.next_u64(), 9817491932198370423);
    }

    #[test]
    fn floats_stay_below_one_and_average_a_half() {
        let mut random = SplitMix64::new(3);
        let numbers: Vec<f32> = (0..10_000).map(|_| random.next_f32()).collect();
        assert!(numbers.iter().all(|n| (0.0..1.0).contains(n)));
        assert!((numbers.iter().sum::<f32>() / 10_000.0 - 0.5).abs() < 0.02);
    }

    #[test]
    fn a_shuffle_keeps_every_row_once_and_depends_on_seed_and_epoch() {
        let mut sorted = shuffled(100, 7, 1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert_eq!(shuffled(100, 7, 1), shuffled(100, 7, 1));
        assert_ne!(shuffled(100, 7, 1), shuffled(100, 7, 2));
        assert_ne!(shuffled(100, 7, 1), shuffled(100, 8, 1));
        assert!(shuffled(0, 7, 1).is_empty());
    }
}
