//! The models: which nodes, what may happen to them, and which rules are in force.

use super::world::{Budget, Content, Frame, World, index, uid};
use rref_core::lease::{LeaseSettings, Leases};
use rref_core::lifetime::{Control, GoneReason};
use rref_core::session::{Lane, LaneLimits};
use rref_core::{ObjectId, Rules, Seq, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Situations that a model must have met, or it has shown nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Hit {
    /// A claim or call came before its object was there.
    Park,
    /// R6 saved an object.
    Guard,
    /// Three nodes handed an object on before the first was confirmed.
    Chain,
    Fence,
    GiveUp,
    Reset,
    /// A reset discarded a claim.
    ResetCrossesClaim,
    /// A reset discarded a Create.
    ResetLosesCreate,
    /// The dialled side could not go on with its session.
    ResetByAcceptor,
    AnswerLost,
    Resent,
    ForeignAck,
    Exception,
    NeverComes,
    Leave,
    Relisted,
    Inventory,
}

impl Hit {
    pub const ALL: [(Hit, &'static str); 17] = [
        (Hit::Park, "park"),
        (Hit::Guard, "guard"),
        (Hit::Chain, "chain of 3"),
        (Hit::Fence, "fence"),
        (Hit::GiveUp, "give up"),
        (Hit::Reset, "reset"),
        (Hit::ResetCrossesClaim, "reset crosses a claim"),
        (Hit::ResetLosesCreate, "reset loses a create"),
        (Hit::ResetByAcceptor, "reset by the acceptor"),
        (Hit::AnswerLost, "answer lost"),
        (Hit::Resent, "resent"),
        (Hit::ForeignAck, "ack of another session"),
        (Hit::Exception, "exception"),
        (Hit::NeverComes, "never comes"),
        (Hit::Leave, "leave"),
        (Hit::Relisted, "relisted"),
        (Hit::Inventory, "inventory"),
    ];
}

/// Duties of the core's caller, which a mutant neglects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duties {
    /// Neglected: a second connection of a pair has a lane of its own.
    pub two_lanes: bool,
    /// A message in chunks keeps its handles until its last frame has a position.
    pub keep_transfers: bool,
}

impl Duties {
    pub const ALL: Duties = Duties { two_lanes: false, keep_transfers: true };
}

/// One model.
#[derive(Clone, Debug)]
pub struct Setup {
    pub name: &'static str,
    pub nodes: usize,
    pub rules: Rules,
    pub duties: Duties,
    pub budget: Budget,
    /// Who makes which objects at the start, by creator and owner; they are there.
    pub start: Vec<(usize, usize)>,
    /// Owners that hold their own objects at the start let go of them at once.
    pub owners_let_go: bool,
    /// Releases are batched, with a timer.
    pub batch: bool,
    /// Frames carry acknowledgements.
    pub stamps: bool,
    /// Frames are under way for a while, and connections break.
    pub flight: bool,
    pub chunks: bool,
    /// Messages may carry all of a node's handles.
    pub pairs: bool,
    /// Constructors may fail.
    pub failing: bool,
    pub exceptions: bool,
    /// Time passes.
    pub timed: bool,
    pub ttl: u32,
    pub grace: u32,
    pub skew: u64,
    /// Nodes tick in order, which is enough where clocks are not the question.
    pub ordered_ticks: bool,
    pub longest_block: u64,
    /// Until when a node may leave its mail unread across ticks.
    pub mail_waits: u64,
    pub last_exit: u64,
    /// Ticks after which everything must be over: I8.
    pub longest_wait: u64,
    /// Ticks that pass even if nobody waits for them.
    pub runs: u64,
    /// New questions and answers are said at once, not with the next tick.
    pub prompt: bool,
    /// Mail waits until it is read.
    pub slow_mail: bool,
    pub one_way: bool,
    pub heals: bool,
    /// Something stays broken for ever, so tables need not be clean in the end.
    pub never_clean: bool,
    pub may_lose: bool,
    pub crashers: Vec<usize>,
    pub blockers: Vec<usize>,
    /// Of the blockers: the whole machine stands still.
    pub sleepers: Vec<usize>,
    pub leavers: Vec<usize>,
    pub cuts: Vec<(usize, usize)>,
    pub resets: Vec<(usize, usize)>,
    pub creators: Vec<(usize, usize)>,
    /// Who may give to whom; all if empty.
    pub givers: Vec<(usize, usize)>,
    /// Pairs that have not met: no heartbeat and no question passes between them.
    pub strangers: Vec<(usize, usize)>,
    /// Handles of `.1`'s objects that reach `.0.owner` live inside `.0` there.
    pub nested: Option<(ObjectId, usize)>,
    /// Nodes that never drop what they hold of this node's.
    pub keepers: Vec<usize>,
    /// What this model has met.
    pub hits: Arc<AtomicU32>,
}

impl Setup {
    /// Three nodes, nothing may happen.
    pub fn new(name: &'static str) -> Setup {
        Setup {
            name,
            nodes: 3,
            rules: Rules::ALL,
            duties: Duties::ALL,
            budget: Budget::default(),
            start: Vec::new(),
            owners_let_go: true,
            batch: false,
            stamps: false,
            flight: false,
            chunks: false,
            pairs: false,
            failing: false,
            exceptions: false,
            timed: false,
            ttl: 2,
            grace: 2,
            skew: 0,
            ordered_ticks: true,
            longest_block: 0,
            mail_waits: 0,
            last_exit: 2,
            longest_wait: 20,
            runs: 0,
            prompt: true,
            slow_mail: false,
            one_way: false,
            heals: true,
            never_clean: false,
            may_lose: false,
            crashers: Vec::new(),
            blockers: Vec::new(),
            sleepers: Vec::new(),
            leavers: Vec::new(),
            cuts: Vec::new(),
            resets: Vec::new(),
            creators: Vec::new(),
            givers: Vec::new(),
            strangers: Vec::new(),
            nested: None,
            keepers: Vec::new(),
            hits: Arc::default(),
        }
    }

    pub fn lane(&self) -> Lane<Seq> {
        let mut lane = Lane::new(self.rules, LaneLimits { ack_frames: u64::MAX, ..LaneLimits::default() });
        if lane.connected(0, 1).is_err() {
            unreachable!("a new lane takes a new peer");
        }
        lane
    }

    pub fn leases(&self, i: usize) -> Leases {
        let tick = super::time::TICK;
        let settings = LeaseSettings {
            heartbeat: tick,
            ttl: tick * self.ttl,
            grace: tick * self.grace,
            ..LeaseSettings::default()
        };
        let mut leases = Leases::new(uid(i), self.rules, settings, Duration::ZERO);
        for j in (0..self.nodes).filter(|j| *j != i) {
            if self.may_meet(i, j) {
                leases.mention(Duration::ZERO, uid(j));
                leases.reader_opened(rref_core::lease::Reader::Lane(uid(j)));
            }
        }
        leases
    }

    /// The state a model begins with.
    pub fn world(&self) -> World {
        let mut world = World::new(self);
        for (creator, owner) in &self.start {
            let key = world.create(self, *creator, *owner);
            if creator != owner {
                world.step_all(self, *creator, *owner);
            }
            let id = key.id;
            world.nodes[*owner].constructing.clear();
            world.construct(self, *owner, id, true);
        }
        if self.timed {
            // Everybody has been heard of.
            for i in 0..self.nodes {
                world.first_beats(self, i);
            }
            world.settle_leases(self);
        }
        world.budget = self.budget.clone();
        world
    }

    pub fn hit(&self, hit: Hit) {
        self.hits.fetch_or(1 << hit as u32, Ordering::Relaxed);
    }

    pub fn has_hit(&self, hit: Hit) -> bool {
        self.hits.load(Ordering::Relaxed) & (1 << hit as u32) != 0
    }

    /// Without the hits of before.
    pub fn fresh(&self) -> Setup {
        Setup { hits: Arc::default(), ..self.clone() }
    }

    pub fn with_rules(&self, rules: Rules) -> Setup {
        Setup { rules, ..self.fresh() }
    }

    pub fn with_duties(&self, duties: Duties) -> Setup {
        Setup { duties, ..self.fresh() }
    }

    pub fn keeps(&self, i: usize, id: ObjectId) -> bool {
        id.owner != uid(i) && self.keepers.contains(&i)
    }

    pub fn owns(&self, i: usize) -> bool {
        self.start.iter().any(|(_, owner)| *owner == i)
    }

    pub fn may_give(&self, from: usize, to: usize, id: ObjectId) -> bool {
        let _ = id;
        self.givers.is_empty() || self.givers.contains(&(from, to))
    }

    pub fn may_create(&self, i: usize, owner: usize) -> bool {
        self.creators.contains(&(i, owner))
    }

    pub fn may_crash(&self, i: usize) -> bool {
        self.crashers.contains(&i)
    }

    pub fn may_block(&self, i: usize) -> bool {
        self.blockers.contains(&i)
    }

    pub fn may_leave(&self, i: usize) -> bool {
        self.leavers.contains(&i)
    }

    pub fn may_cut(&self, a: usize, b: usize) -> bool {
        self.cuts.contains(&(a, b)) || self.cuts.contains(&(b, a))
    }

    pub fn may_reset(&self, a: usize, b: usize) -> bool {
        self.resets.is_empty() || self.resets.contains(&(a, b)) || self.resets.contains(&(b, a))
    }

    pub fn may_meet(&self, a: usize, b: usize) -> bool {
        !self.strangers.contains(&(a, b)) && !self.strangers.contains(&(b, a))
    }

    pub fn must_free(&self, id: ObjectId) -> bool {
        !self.keepers.contains(&index(id.owner))
    }

    pub fn note_control(&self, world: &World, from: usize, to: usize, control: &Control) {
        let _ = from;
        match control {
            Control::Claim(ids) if ids.iter().any(|id| world.is_early(to, *id)) => self.hit(Hit::Park),
            Control::InventoryBegin { .. } => self.hit(Hit::Inventory),
            Control::InventoryItems(_) => self.hit(Hit::Relisted),
            Control::Gone(ids) if ids.iter().any(|(_, why)| *why == GoneReason::NeverCreated) => {
                self.hit(Hit::NeverComes);
            }
            _ => {}
        }
    }

    /// A release has been processed: whoever is still listed was saved by the guard.
    pub fn note_release(&self, world: &World, from: usize, to: usize, released: &[(ObjectId, Stamp)]) {
        if self.has_hit(Hit::Guard) {
            return;
        }
        let life = &world.nodes[to].life;
        let saved =
            |id: &ObjectId| life.owned().any(|owned| owned.id == *id && owned.holders.contains(&uid(from)));
        if released.iter().any(|(id, _)| saved(id)) {
            self.hit(Hit::Guard);
        }
    }

    /// These frames are discarded.
    pub fn note_lost(&self, frames: Option<&BTreeMap<Seq, Frame>>) {
        for frame in frames.into_iter().flat_map(|frames| frames.values()) {
            match &frame.content {
                Content::Control(Control::Claim(_)) => self.hit(Hit::ResetCrossesClaim),
                Content::Create(_) => self.hit(Hit::ResetLosesCreate),
                _ => {}
            }
        }
    }
}

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
            if large { vec![Hit::Chain] } else { vec![] },
        ),
        (
            Setup {
                start: vec![(1, 0), (1, 0)],
                pairs: true,
                budget: Budget { gives: pick(1, 2), ..budget.clone() },
                ..base("M1 two objects")
            },
            vec![],
        ),
        (
            Setup {
                chunks: true,
                budget: Budget { gives: pick(2, 3), ..budget.clone() },
                ..base("M1 chunks")
            },
            vec![],
        ),
        (
            Setup {
                flight: true,
                stamps: true,
                budget: Budget { gives: pick(1, 2), breaks: pick(2, 3), ..budget.clone() },
                ..base("M2 breaks")
            },
            vec![Hit::AnswerLost],
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
                budget: Budget { gives: pick(2, 3), resets: 1, ..budget.clone() },
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
                budget: Budget { gives: pick(2, 3), resets: 2, breaks: 1, ..budget.clone() },
                ..base("M3 two resets")
            },
            vec![Hit::Reset, Hit::ResetByAcceptor, Hit::AnswerLost],
        ),
        (
            Setup {
                start: vec![(0, 0)],
                owners_let_go: false,
                budget: Budget { gives: 3, inventories: 1, ..budget.clone() },
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
                ttl: pick(2, 3).into(),
                skew: pick(0, 1).into(),
                ordered_ticks: false,
                slow_mail: true,
                mail_waits: pick(4, 5).into(),
                nodes: 2,
                blockers: vec![0],
                longest_block: pick(4, 6).into(),
                runs: pick(5, 8).into(),
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
                budget: Budget { gives: pick(2, 3), crashes: 2, ..budget.clone() },
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
                longest_block: pick(5, 7).into(),
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
                budget: Budget { gives: pick(1, 2), crashes: 1, ..budget.clone() },
                ..base("M4 owner crash")
            },
            vec![Hit::GiveUp],
        ),
        (
            Setup {
                timed: true,
                leavers: vec![1],
                budget: Budget { gives: pick(1, 3), leaves: 1, ..budget.clone() },
                ..base("M4 leave")
            },
            vec![Hit::Leave, Hit::Fence],
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
                    gives: pick(1, 2),
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
                budget: Budget { gives: 1, creates: 1, calls: 1, crashes: 1, ..budget.clone() },
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
                budget: Budget { gives: pick(1, 4), ..budget.clone() },
                ..base("M7 nested")
            },
            vec![],
        ),
        (
            Setup {
                timed: true,
                one_way: true,
                ordered_ticks: false,
                start: if large { vec![(1, 0)] } else { vec![(2, 0)] },
                cuts: vec![(0, 2)],
                budget: Budget { gives: pick(0, 2), cuts: 1, ..budget.clone() },
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
                budget: Budget { gives: 1, crashes: 1, blocks: pick(0, 1), resets: 1, ..budget.clone() },
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
