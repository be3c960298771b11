//! One model: which nodes there are, what may happen to them, and which rules are in force.

use super::world::{Budget, Content, Frame, World, uid};
use rref_core::lease::{LeaseSettings, Leases};
use rref_core::lifetime::{Control, GoneReason, PARKED_LIMIT};
use rref_core::session::{Lane, LaneLimits};
use rref_core::{ObjectId, Rules, Seq, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
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
    ForeignAck,
    Exception,
    NeverComes,
    Leave,
    Relisted,
    Inventory,
    /// More objects were waited for than an owner lets wait.
    TooManyParked,
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
        (Hit::ForeignAck, "ack of another session"),
        (Hit::Exception, "exception"),
        (Hit::NeverComes, "never comes"),
        (Hit::Leave, "leave"),
        (Hit::Relisted, "relisted"),
        (Hit::Inventory, "inventory"),
        (Hit::TooManyParked, "too many parked"),
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
    /// How long a tick of each node lasts, where clocks drift apart; all the same if empty.
    pub periods: Vec<u64>,
    /// Nodes tick in order, which is enough where clocks are not the question.
    pub ordered_ticks: bool,
    pub longest_block: u64,
    /// Until when a node may leave its mail unread across ticks.
    pub mail_waits: u64,
    pub last_exit: u64,
    /// Objects that an owner lets others wait for.
    pub parked_limit: usize,
    /// Ticks after which everything must be over, if [`Setup::bound`] does not tell: I8.
    pub longest_wait: Option<u64>,
    /// Ticks that pass even if nobody waits for them.
    pub runs: u64,
    /// New questions and answers are said at once, not with the next tick.
    pub prompt: bool,
    /// Mail waits until it is read.
    pub slow_mail: bool,
    pub one_way: bool,
    pub heals: bool,
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
    /// What this model has met.
    pub hits: Arc<AtomicU32>,
    /// The latest time on any node's clock, in its ticks.
    pub latest: Arc<AtomicU64>,
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
            periods: Vec::new(),
            ordered_ticks: true,
            longest_block: 0,
            mail_waits: 0,
            last_exit: 2,
            parked_limit: PARKED_LIMIT,
            longest_wait: None,
            runs: 0,
            prompt: true,
            slow_mail: false,
            one_way: false,
            heals: true,
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
            hits: Arc::default(),
            latest: Arc::default(),
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
            // A policy for calls, of which the models know nothing.
            suspect_after: Duration::MAX,
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
        Setup { hits: Arc::default(), latest: Arc::default(), ..self.clone() }
    }

    pub fn with_rules(&self, rules: Rules) -> Setup {
        Setup { rules, ..self.fresh() }
    }

    pub fn with_duties(&self, duties: Duties) -> Setup {
        Setup { duties, ..self.fresh() }
    }

    /// How long a tick of a node lasts, in units of [`Setup::periods`].
    pub fn period(&self, i: usize) -> u64 {
        self.periods.get(i).copied().unwrap_or(1)
    }

    /// I8: the tick of the slowest clock by which everything is over, whatever happens.
    ///
    /// Time begins with the first silence, and each takes TTL + grace. In the worst case the next one
    /// begins as the one before it ends: a crash, a cut (of which the ways heal one by one), a leave, a
    /// member nobody has told of. A node that is blocked stalls the question by as long, and answers it
    /// with the tick after; so do clocks that are apart, and questions that wait for the next tick. And
    /// whoever is handed a reference to a silent node's object judges that node with its own next tick.
    pub fn bound(&self) -> u64 {
        let Budget { crashes, cuts, blocks, leaves, .. } = self.budget;
        let ways = if self.one_way { 2 } else { 1 };
        let silences = u64::from(crashes + ways * cuts + leaves) + u64::from(!self.strangers.is_empty());
        let stalls = u64::from(blocks) * (self.longest_block + 1);
        let late = self.skew + u64::from(!self.prompt);
        let bound = silences * (u64::from(self.ttl + self.grace) + late) + stalls + 1;
        self.longest_wait.unwrap_or(bound.max(self.runs))
    }

    pub fn owns(&self, i: usize) -> bool {
        self.start.iter().any(|(_, owner)| *owner == i)
    }

    pub fn may_give(&self, from: usize, to: usize) -> bool {
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

    pub fn note_control(&self, world: &World, to: usize, control: &Control) {
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
