//! The models: M1 to M8, at two sizes.

use super::setup::{Hit, Setup};
use super::world::{Budget, uid};
use rref_core::ObjectId;

/// How large the models are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Seconds in all: for `cargo test`.
    Small,
    /// Minutes in all.
    Large,
}

/// All models, M1 to M8, with the situations that each must meet. Some have several parts.
pub fn all(size: Size) -> Vec<(Setup, Vec<Hit>)> {
    let large = size == Size::Large;
    let pick = |small: u8, big: u8| if large { big } else { small };
    let base = |name| Setup { start: vec![(1, 0)], ..Setup::new(name) };
    let budget = Budget::default();
    vec![
        // B (0) owns, A (1) introduces, C (2) receives; X (3) is a second owner or a fourth node.
        (
            Setup {
                owners_let_go: false,
                start: vec![(0, 0)],
                stamps: true,
                budget: Budget { gives: pick(3, 5), ..budget.clone() },
                ..base("M1 lanes")
            },
            vec![Hit::Guard],
        ),
        (
            Setup {
                batch: true,
                budget: Budget { gives: pick(3, 5), ..budget.clone() },
                start: vec![(0, 0)],
                ..base("M1 batches")
            },
            vec![Hit::Guard],
        ),
        (
            Setup {
                nodes: 4,
                budget: Budget { gives: pick(2, 4), ..budget.clone() },
                ..base("M1 four nodes")
            },
            vec![Hit::Chain],
        ),
        (
            Setup {
                start: vec![(1, 0), (1, 0)],
                pairs: true,
                budget: Budget { gives: pick(1, 3), ..budget.clone() },
                ..base("M1 two objects")
            },
            vec![],
        ),
        (
            Setup {
                nodes: 4,
                start: vec![(1, 0), (1, 0)],
                // Forwards: among the holders.
                givers: vec![(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)],
                budget: Budget { gives: pick(2, 3), ..budget.clone() },
                ..base("M1 three holders, two objects")
            },
            vec![Hit::Chain],
        ),
        (
            Setup {
                chunks: true,
                budget: Budget { gives: pick(2, 4), ..budget.clone() },
                ..base("M1 chunks")
            },
            vec![],
        ),
        (
            Setup {
                flight: true,
                stamps: true,
                budget: Budget { gives: pick(1, 2), breaks: 2, ..budget.clone() },
                ..base("M2 breaks")
            },
            vec![Hit::AnswerLost],
        ),
        (
            Setup {
                flight: true,
                timed: true,
                crashers: vec![1],
                budget: Budget { gives: pick(1, 2), breaks: 2, crashes: 1, ..budget.clone() },
                ..base("M2 breaks and a crash")
            },
            vec![Hit::Fence, Hit::AnswerLost],
        ),
        (
            Setup {
                flight: true,
                timed: true,
                cuts: vec![(0, 1)],
                givers: vec![(1, 2)],
                budget: Budget { gives: 1, breaks: pick(0, 1), cuts: 1, ..budget.clone() },
                ..base("M2 breaks and a fence")
            },
            vec![Hit::Fence, Hit::GiveUp, Hit::Reset, Hit::Relisted],
        ),
        (
            Setup {
                resets: vec![(0, 1), (0, 2)],
                budget: Budget { gives: 2, resets: pick(1, 2), ..budget.clone() },
                ..base("M3 owner reset")
            },
            vec![Hit::Reset, Hit::ResetCrossesClaim, Hit::Relisted],
        ),
        (
            Setup {
                start: vec![(0, 0)],
                owners_let_go: false,
                budget: Budget { gives: pick(2, 3), resets: 1, ..budget.clone() },
                ..base("M3 any reset")
            },
            vec![Hit::Reset],
        ),
        (
            Setup {
                resets: vec![(1, 2)],
                budget: Budget { gives: pick(2, 4), resets: 1, ..budget.clone() },
                ..base("M3 holders reset")
            },
            vec![Hit::Reset],
        ),
        (
            Setup {
                resets: vec![(0, 1)],
                nodes: 2,
                start: vec![(0, 0)],
                owners_let_go: false,
                budget: Budget { gives: pick(2, 4), resets: 2, breaks: 1, ..budget.clone() },
                ..base("M3 two resets")
            },
            vec![Hit::Reset, Hit::ResetByAcceptor, Hit::AnswerLost],
        ),
        (
            Setup {
                start: vec![(0, 0)],
                owners_let_go: false,
                budget: Budget { gives: pick(3, 6), inventories: 1, ..budget.clone() },
                nodes: 2,
                ..base("M3 inventory")
            },
            vec![Hit::Inventory],
        ),
        (
            Setup {
                timed: true,
                ordered_ticks: false,
                crashers: vec![1],
                blockers: vec![2],
                longest_block: pick(5, 6).into(),
                budget: Budget { gives: pick(1, 3), crashes: 1, blocks: 1, ..budget.clone() },
                ..base("M4 crash")
            },
            vec![Hit::Fence],
        ),
        (
            Setup {
                timed: true,

                ordered_ticks: !large,
                slow_mail: true,
                mail_waits: 4,
                nodes: 2,
                blockers: vec![0],
                longest_block: 4,
                runs: 5,
                budget: Budget { blocks: 1, ..budget.clone() },
                ..base("M4 owner blocked")
            },
            vec![],
        ),
        (
            Setup {
                timed: true,
                nodes: 4,
                crashers: vec![1, 2],
                givers: vec![(1, 2), (2, 3)],
                budget: Budget { gives: pick(2, 4), crashes: 2, ..budget.clone() },
                ..base("M4 two crashes")
            },
            vec![Hit::Fence],
        ),
        (
            Setup {
                timed: true,
                ordered_ticks: !large,
                blockers: vec![0],
                sleepers: vec![0],
                longest_block: 5,
                givers: vec![(1, 2)],
                budget: Budget { gives: 1, blocks: 1, ..budget.clone() },
                ..base("M4 owner asleep")
            },
            vec![Hit::GiveUp],
        ),
        (
            Setup {
                timed: true,
                nodes: 4,
                start: vec![(1, 0), (3, 0)],
                crashers: vec![1, 3],
                blockers: vec![2],
                longest_block: pick(4, 7).into(),
                givers: vec![(1, 2)],
                budget: Budget { gives: 1, crashes: 2, blocks: 1, ..budget.clone() },
                ..base("M4 crash by crash")
            },
            vec![Hit::Fence],
        ),
        (
            Setup {
                timed: true,
                crashers: vec![0],
                budget: Budget { gives: pick(1, 4), crashes: 1, ..budget.clone() },
                ..base("M4 owner crash")
            },
            vec![Hit::GiveUp],
        ),
        (
            Setup {
                timed: true,
                leavers: vec![1],
                budget: Budget { gives: pick(1, 4), leaves: 1, ..budget.clone() },
                ..base("M4 leave")
            },
            vec![Hit::Leave, Hit::Fence],
        ),
        (
            Setup {
                timed: true,
                ordered_ticks: false,
                // From as far behind as it may be to as far ahead a node makes six ticks: TTL + grace is
                // longer.
                skew: 2,
                ttl: 4,
                grace: 3,
                crashers: vec![1],
                budget: Budget { gives: pick(1, 2), crashes: 1, ..budget.clone() },
                ..base("M4 clocks apart, crash")
            },
            vec![Hit::Fence],
        ),
        (
            Setup {
                timed: true,
                ordered_ticks: !large,
                skew: 1,
                ttl: 3,
                cuts: vec![(0, 2)],
                givers: vec![(1, 2)],
                budget: Budget { gives: 1, cuts: 1, ..budget.clone() },
                ..base("M4 clocks apart, cut")
            },
            vec![Hit::Fence, Hit::GiveUp, Hit::Reset, Hit::Relisted],
        ),
        (
            Setup {
                timed: true,
                // The owner's clock is half as fast again as the others'.
                periods: vec![2, 3, 3],
                crashers: vec![1],
                cuts: vec![(0, 2)],
                budget: Budget { gives: 1, crashes: 1, cuts: pick(0, 1), ..budget.clone() },
                ..base("M4 owner's clock fast")
            },
            vec![Hit::Fence],
        ),
        (
            Setup {
                timed: true,
                periods: vec![3, 2, 2],
                crashers: vec![1],
                cuts: vec![(0, 2)],
                budget: Budget { gives: 1, crashes: 1, cuts: pick(0, 1), ..budget.clone() },
                ..base("M4 owner's clock slow")
            },
            vec![Hit::Fence],
        ),
        (
            Setup {
                start: vec![],
                creators: vec![(1, 0)],
                failing: true,
                budget: Budget { gives: 1, creates: pick(1, 2), calls: 1, ..budget.clone() },
                ..base("M5 create")
            },
            vec![Hit::Park],
        ),
        (
            Setup {
                start: vec![],
                creators: vec![(1, 0), (2, 0)],
                resets: vec![(0, 1)],
                budget: Budget { gives: 1, creates: 2, resets: pick(0, 1), ..budget.clone() },
                ..base("M5 two creators")
            },
            vec![Hit::Park],
        ),
        (
            Setup {
                start: vec![],
                creators: vec![(1, 0), (1, 2)],
                timed: true,
                crashers: vec![2],
                pairs: large,
                budget: Budget { gives: 1, creates: 2, crashes: pick(0, 1), ..budget.clone() },
                ..base("M5 one creator, two owners")
            },
            vec![Hit::Park],
        ),
        (
            Setup {
                start: vec![],
                creators: vec![(1, 0)],
                pairs: true,
                parked_limit: 1,
                budget: Budget { gives: 1, creates: 2, calls: pick(0, 1), ..budget.clone() },
                ..base("M5 too many parked")
            },
            vec![Hit::Park, Hit::TooManyParked, Hit::Reset],
        ),
        (
            Setup {
                start: vec![],
                creators: vec![(1, 0)],
                resets: vec![(0, 1)],
                budget: Budget {
                    gives: 1,
                    creates: pick(1, 2),
                    calls: pick(1, 0),
                    resets: 1,
                    ..budget.clone()
                },
                ..base("M5 create, reset")
            },
            vec![Hit::Park, Hit::Reset, Hit::ResetLosesCreate, Hit::NeverComes],
        ),
        (
            Setup {
                start: vec![],
                timed: true,
                creators: vec![(1, 0)],
                crashers: vec![1],
                budget: Budget {
                    gives: pick(1, 3),
                    creates: 1,
                    calls: pick(0, 1),
                    crashes: 1,
                    ..budget.clone()
                },
                ..base("M5 create, crash")
            },
            vec![Hit::Park, Hit::Fence, Hit::NeverComes],
        ),
        (
            Setup {
                start: vec![],
                timed: true,
                creators: vec![(1, 0)],
                crashers: vec![1],
                strangers: vec![(0, 1)],
                budget: Budget { gives: pick(1, 2), creates: 1, calls: 1, crashes: 1, ..budget.clone() },
                ..base("M5 creator unknown")
            },
            vec![Hit::Park, Hit::Fence, Hit::NeverComes],
        ),
        (
            Setup {
                timed: true,
                cuts: vec![(0, 1)],
                budget: Budget { gives: pick(1, 3), cuts: 1, ..budget.clone() },
                ..base("M6 fence and return")
            },
            vec![Hit::Fence, Hit::Reset, Hit::Relisted, Hit::GiveUp],
        ),
        (
            Setup {
                timed: true,
                start: vec![(0, 0)],
                owners_let_go: false,
                cuts: vec![(0, 2)],
                budget: Budget { gives: pick(2, 3), cuts: 1, ..budget.clone() },
                ..base("M6 fence of the receiver")
            },
            vec![Hit::Fence, Hit::Reset],
        ),
        (
            Setup {
                nodes: 4,
                start: vec![(1, 0), (1, 3)],
                pairs: true,
                exceptions: true,
                timed: true,
                heals: false,
                cuts: vec![(2, 3)],
                givers: vec![(1, 2)],
                budget: Budget { gives: pick(1, 2), cuts: 1, ..budget.clone() },
                ..base("M7 two owners")
            },
            vec![Hit::GiveUp, Hit::Exception],
        ),
        (
            Setup {
                start: vec![(2, 0), (1, 2)],
                nested: Some((ObjectId { owner: uid(2), creator: uid(1), create_no: 1 }, 0)),
                budget: Budget { gives: pick(1, 3), ..budget.clone() },
                ..base("M7 nested")
            },
            vec![],
        ),
        (
            Setup {
                timed: true,
                one_way: true,
                ordered_ticks: false,
                cuts: vec![(0, 2)],
                budget: Budget { gives: 1, cuts: 1, ..budget.clone() },
                ..base("M8 one way")
            },
            vec![Hit::GiveUp],
        ),
        (
            Setup {
                timed: true,
                prompt: false,
                crashers: vec![1],
                blockers: vec![2],
                longest_block: 3,
                resets: vec![(0, 2)],
                budget: Budget {
                    gives: pick(1, 2),
                    crashes: 1,
                    blocks: pick(0, 1),
                    resets: 1,
                    ..budget.clone()
                },
                ..base("M8 clear with delay and resets")
            },
            vec![Hit::Fence, Hit::Reset],
        ),
        (
            Setup {
                timed: true,
                crashers: vec![1],
                blockers: vec![2],
                longest_block: 6,
                strangers: vec![(0, 2)],
                budget: Budget { gives: pick(1, 2), crashes: 1, blocks: 1, ..budget.clone() },
                ..base("M8 unknown member")
            },
            vec![Hit::Fence],
        ),
    ]
}
