//! Rounds, medians and ratios.

use std::time::Instant;

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Rounds of baseline and ours in turn.
    pub rounds: usize,
    /// Sequential calls in a round.
    pub calls: usize,
}

impl Effort {
    /// Enough to see where things stand.
    pub const QUICK: Effort = Effort { rounds: 5, calls: 2_000 };
    /// For the record.
    pub const FULL: Effort = Effort { rounds: 15, calls: 10_000 };
}

/// Medians over all rounds.
pub struct Compared {
    /// Ours.
    pub ours: f64,
    /// The baseline's.
    pub baseline: f64,
    /// The median of the rounds' ratios, which is not the ratio of the medians.
    pub ratio: f64,
}

/// Runs baseline and ours in turn. The first round warms up and does not count.
pub async fn compare(
    effort: Effort,
    mut baseline: impl AsyncFnMut() -> anyhow::Result<f64>,
    mut ours: impl AsyncFnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<Compared> {
    let (mut all_ours, mut all_baseline, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=effort.rounds {
        let (b, o) = (baseline().await?, ours().await?);
        if round > 0 {
            all_ours.push(o);
            all_baseline.push(b);
            ratios.push(o / b);
        }
    }
    Ok(Compared { ours: median(all_ours), baseline: median(all_baseline), ratio: median(ratios) })
}

/// Runs ours alone: the median over all rounds but the first.
pub async fn alone(
    effort: Effort,
    mut ours: impl AsyncFnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    ours().await?;
    let mut all = Vec::new();
    for _ in 0..effort.rounds {
        all.push(ours().await?);
    }
    Ok(median(all))
}

/// Microseconds of the median of `count` sequential calls.
pub async fn p50(count: usize, mut call: impl AsyncFnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        call().await?;
        all.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(all))
}

/// Seconds that `work` takes.
pub async fn seconds(mut work: impl AsyncFnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    work().await?;
    Ok(start.elapsed().as_secs_f64())
}

/// The middle one of some values; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_in_size() {
        assert_eq!(median(vec![9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn the_first_round_does_not_count() {
        let run = compare(
            Effort { rounds: 3, calls: 1 },
            {
                let mut next = [1000.0, 2.0, 4.0, 8.0].into_iter();
                async move || Ok(next.next().unwrap())
            },
            {
                let mut next = [1.0, 6.0, 4.0, 16.0].into_iter();
                async move || Ok(next.next().unwrap())
            },
        );
        let compared = actix::System::new().block_on(run).unwrap();
        assert_eq!((compared.ours, compared.baseline, compared.ratio), (6.0, 4.0, 2.0));
    }
}
