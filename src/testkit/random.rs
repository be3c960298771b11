//! Random numbers from a seed: the same ones on every machine.

use std::ops::Range;

/// Random numbers from a seed: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014). Not for secrets.
///
/// ```
/// let (mut a, mut b) = (rref::testkit::Random::new(7), rref::testkit::Random::new(7));
/// assert_eq!(a.below(100), b.below(100));
/// ```
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The numbers that belong to `seed`.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Numbers of their own for `purpose`: drawing more of them changes no others.
    pub fn fork(seed: u64, purpose: &str) -> Random {
        let mut random = Random::new(seed);
        for byte in purpose.bytes() {
            random.state = random.next() ^ u64::from(byte);
        }
        random
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)] // it is no iterator: it does not end
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[7]
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The upper half of a product is as even as 64 bits allow, without a division.
        let product = u128::from(self.next()) * u128::from(limit);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// A number from `range`; its start if it is empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// True so many times out of a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of `items`; none if there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(usize::try_from(self.below(items.len() as u64)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_belong_to_their_seed_and_purpose() {
        let mut random = Random::new(0);
        // The published sequence of seed 0.
        assert_eq!([random.next(), random.next()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
        assert_ne!(Random::fork(1, "a").next(), Random::fork(1, "b").next());
        assert_ne!(Random::fork(1, "a").next(), Random::fork(2, "a").next());
    }

    #[test]
    fn numbers_stay_within_their_range() {
        let mut random = Random::new(3);
        let drawn: Vec<u64> = (0..1000).map(|_| random.within(5..8)).collect();
        assert!((5..8).all(|n| drawn.contains(&n)) && drawn.iter().all(|n| (5..8).contains(n)));
        assert_eq!(random.within(4..4), 4);
        assert_eq!(random.pick::<u8>(&[]), None);
    }
}
