//! The simulated network: who can reach whom, how long it takes, and what is lost.
//!
//! Bytes wait in the receiver's queue until their time has come; each connection keeps its order, and
//! nothing orders two connections. Everything that is drawn at random comes from the cluster's seed.
//! Must not know actors, objects or what a frame means.

use super::frames::{self, Splitter, Told};
use super::random::Random;
use super::trace::{Trace, What};
use bytes::Bytes;
use rref_core::NodeUid;
use rref_core::wire::Kind;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

/// A node by its place in the cluster.
pub(super) type Place = usize;

/// One way between two nodes.
pub(super) type Way = (Place, Place);

/// The network of one cluster. Clones are the same network.
#[derive(Clone)]
pub(super) struct Network {
    world: Arc<Mutex<World>>,
    /// Told when ways open or close.
    pub(super) changed: Arc<Notify>,
}

pub(super) struct World {
    begun: Instant,
    random: Random,
    latency: Range<u64>,
    pub(super) trace: Trace,
    machines: Vec<Machine>,
    /// Who is who, for traces.
    uids: BTreeMap<NodeUid, String>,
    blocked: BTreeSet<Way>,
    delays: BTreeMap<Way, Duration>,
    losses: Vec<Loss>,
    pub(super) listening: BTreeMap<String, Listening>,
    pub(super) connections: BTreeMap<u64, Connection>,
    next_connection: u64,
    told: BTreeMap<Way, Told>,
    pub(super) counts: Counts,
}

/// What has happened on the network, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections that were made.
    pub connections: u64,
    /// Connections that a fault has broken.
    pub broken: u64,
    /// Frames that have arrived.
    pub frames: u64,
}

struct Machine {
    name: String,
    up: bool,
    /// Numbers the processes that have run here: what an older one left behind is void.
    process: u64,
}

/// Frames that are to be lost.
struct Loss {
    kind: Kind,
    /// Any way if none.
    way: Option<Way>,
    left: u32,
}

pub(super) struct Listening {
    place: Place,
    process: u64,
    accept: mpsc::UnboundedSender<(u64, Place)>,
}

/// A connection between two nodes. Side 0 has dialled.
pub(super) struct Connection {
    sides: [Place; 2],
    open: [bool; 2],
    pub(super) broken: bool,
    /// What each side has sent.
    pub(super) pipes: [Pipe; 2],
}

/// One direction of a connection.
pub(super) struct Pipe {
    splitter: Splitter,
    pub(super) queue: VecDeque<Parcel>,
    /// Bytes in the queue.
    pub(super) bytes: usize,
    /// When the last parcel arrives: later ones do not come before it.
    last: Instant,
    /// When the receiver learns that nothing more comes.
    pub(super) ends: Option<Instant>,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

/// A piece on its way.
pub(super) struct Parcel {
    pub(super) due: Instant,
    pub(super) bytes: Bytes,
    kind: Option<Kind>,
    /// Whether its arrival has been seen to: it may be read in parts.
    pub(super) arrived: bool,
}

impl Pipe {
    fn new(now: Instant) -> Pipe {
        Pipe {
            splitter: Splitter::new(),
            queue: VecDeque::new(),
            bytes: 0,
            last: now,
            ends: None,
            reader: None,
            writer: None,
        }
    }

    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

impl Network {
    pub(super) fn new(names: &[String], seed: u64, latency: Range<Duration>, trace: Trace) -> Network {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let machine = |name: &String| Machine { name: name.clone(), up: false, process: 0 };
        let world = World {
            begun: Instant::now(),
            random: Random::fork(seed, "network"),
            latency: millis(latency.start)..millis(latency.end),
            trace,
            machines: names.iter().map(machine).collect(),
            uids: BTreeMap::new(),
            blocked: BTreeSet::new(),
            delays: BTreeMap::new(),
            losses: Vec::new(),
            listening: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_connection: 0,
            told: BTreeMap::new(),
            counts: Counts::default(),
        };
        Network { world: Arc::new(Mutex::new(world)), changed: Arc::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process starts at `place`; its number.
    pub(super) fn start(&self, place: Place) -> u64 {
        let mut world = self.lock();
        // What a new process says of names holds from the beginning.
        world.told.retain(|way, _| way.0 != place && way.1 != place);
        world.told(&[place], "starts");
        let machine = &mut world.machines[place];
        machine.up = true;
        machine.process += 1;
        machine.process
    }

    /// The process at `place` dies: it says nothing more, and its connections end. What it had written
    /// still arrives, or not, as the seed has it.
    pub(super) fn crash(&self, place: Place) {
        let mut world = self.lock();
        world.told(&[place], "crashes");
        let machine = &mut world.machines[place];
        machine.up = false;
        world.listening.retain(|_, listening| listening.place != place);
        let ids: Vec<u64> = world.connections.keys().copied().collect();
        for id in ids {
            let lost = world.random.percent(50);
            if let Some(connection) = world.connections.get_mut(&id)
                && connection.sides.contains(&place)
                && lost
            {
                connection.cut();
            }
        }
        drop(world);
        self.changed.notify_waiters();
    }

    /// Changes which ways are open, and wakes whoever waits for it.
    pub(super) fn change_ways(&self, about: &[Place], what: &str, change: impl FnOnce(&mut BTreeSet<Way>)) {
        let mut world = self.lock();
        world.told(about, what);
        change(&mut world.blocked);
        world.connections.values_mut().flat_map(|connection| &mut connection.pipes).for_each(Pipe::wake);
        drop(world);
        self.changed.notify_waiters();
    }

    /// What `from` sends to `to` takes so much longer.
    pub(super) fn delay(&self, way: Way, more: Duration) {
        let mut world = self.lock();
        world.told(&[way.0, way.1], &format!("{more:?} more from the first to the second"));
        world.delays.insert(way, more);
    }

    pub(super) fn lose(&self, kind: Kind, way: Option<Way>, times: u32) {
        self.lock().losses.push(Loss { kind, way, left: times });
    }

    pub(super) fn lose_nothing(&self) {
        self.lock().losses.clear();
    }

    /// Frames that are still to be lost.
    pub(super) fn still_to_lose(&self) -> u32 {
        self.lock().losses.iter().map(|loss| loss.left).sum()
    }

    /// Breaks the connections that `chosen` picks by their two ends.
    pub(super) fn cut(&self, chosen: impl Fn(Place, Place) -> bool) {
        let mut world = self.lock();
        let ids: Vec<u64> = world.connections.keys().copied().collect();
        for id in ids {
            if let Some(connection) = world.connections.get(&id)
                && chosen(connection.sides[0], connection.sides[1])
            {
                world.cut(id);
            }
        }
    }

    pub(super) fn know(&self, uid: NodeUid, place: Place) {
        let mut world = self.lock();
        let name = world.machines[place].name.clone();
        world.uids.insert(uid, name);
    }
}

impl World {
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Writes something about some nodes into the trace.
    pub(super) fn told(&mut self, about: &[Place], text: &str) {
        let at = self.elapsed();
        let World { trace, machines, .. } = self;
        trace.push(at, text.as_bytes(), || What::Told {
            about: about.iter().map(|place| machines[*place].name.clone()).collect(),
            text: text.to_string(),
        });
    }

    pub(super) fn is_open(&self, way: Way) -> bool {
        !self.blocked.contains(&way)
    }

    /// Whether this process still runs.
    pub(super) fn is_alive(&self, place: Place, process: u64) -> bool {
        self.machines.get(place).is_some_and(|machine| machine.up && machine.process == process)
    }

    /// Who listens at `address`: its place.
    pub(super) fn listener(&self, address: &str) -> Option<Place> {
        let listening = self.listening.get(address)?;
        let alive = self.is_alive(listening.place, listening.process) && !listening.accept.is_closed();
        alive.then_some(listening.place)
    }

    /// The place that an address belongs to, whether or not anybody listens there now.
    pub(super) fn place_of(&self, address: &str) -> Option<Place> {
        let listening = self.listening.get(address).map(|listening| listening.place);
        listening.or_else(|| self.machines.iter().position(|machine| machine.name == address))
    }

    pub(super) fn name(&self, place: Place) -> String {
        self.machines[place].name.clone()
    }

    pub(super) fn listen(
        &mut self,
        address: String,
        place: Place,
        process: u64,
    ) -> mpsc::UnboundedReceiver<(u64, Place)> {
        let (accept, incoming) = mpsc::unbounded_channel();
        self.listening.insert(address, Listening { place, process, accept });
        incoming
    }

    /// How long something takes on its way.
    pub(super) fn latency(&mut self, way: Way) -> Duration {
        let drawn = Duration::from_millis(self.random.within(self.latency.clone()));
        drawn + self.delays.get(&way).copied().unwrap_or_default()
    }

    /// Makes a connection from `place` to whoever listens at `address`; its number.
    pub(super) fn connect(&mut self, place: Place, address: &str) -> Option<u64> {
        let to = self.listener(address)?;
        let id = self.next_connection;
        let accepted = self.listening.get(address).is_some_and(|to| to.accept.send((id, place)).is_ok());
        if !accepted {
            return None;
        }
        self.next_connection += 1;
        self.counts.connections += 1;
        let now = Instant::now();
        let pipes = [Pipe::new(now), Pipe::new(now)];
        let connection = Connection { sides: [place, to], open: [true, true], broken: false, pipes };
        self.connections.insert(id, connection);
        self.told(&[place, to], "connected");
        Some(id)
    }

    /// Takes what one side has written.
    pub(super) fn send(&mut self, id: u64, side: usize, bytes: &[u8]) {
        let Some(connection) = self.connections.get(&id) else { return };
        let way = (connection.sides[side], connection.sides[1 - side]);
        let due = Instant::now() + self.latency(way);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let pipe = &mut connection.pipes[side];
        for piece in pipe.splitter.push(bytes) {
            pipe.last = pipe.last.max(due);
            pipe.bytes += piece.bytes.len();
            let parcel = Parcel { due: pipe.last, bytes: piece.bytes, kind: piece.kind, arrived: false };
            pipe.queue.push_back(parcel);
        }
        pipe.reader.take().into_iter().for_each(Waker::wake);
    }

    /// Sees to the arrival of the first piece of a queue: false if it is lost, and the connection broken.
    pub(super) fn arrive(&mut self, id: u64, side: usize) -> bool {
        let at = self.elapsed();
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let way = (connection.sides[side], connection.sides[1 - side]);
        let Some(parcel) = connection.pipes[side].queue.front_mut() else { return true };
        if std::mem::replace(&mut parcel.arrived, true) {
            return true;
        }
        let (kind, bytes) = (parcel.kind, parcel.bytes.clone());
        let name = |place: Place| self.machines[place].name.clone();
        let loss = self.losses.iter_mut().find(|loss| {
            loss.left > 0 && Some(loss.kind) == kind && loss.way.is_none_or(|lossy| lossy == way)
        });
        if let Some(loss) = loss {
            loss.left -= 1;
            self.trace.push(at, b"lost", || What::Lost { from: name(way.0), to: name(way.1), kind });
            self.cut(id);
            return false;
        }
        self.counts.frames += 1;
        let text = match kind {
            Some(_) if self.trace.keeps_events() => {
                self.told.entry(way).or_default().describe(&bytes, &self.uids)
            }
            Some(_) => String::new(),
            None => format!("{} bytes", bytes.len()),
        };
        self.trace.push(at, &bytes, || What::Arrived {
            from: name(way.0),
            to: name(way.1),
            kind,
            aside: kind.is_some() && frames::is_aside(&bytes),
            text,
        });
        true
    }

    /// Breaks a connection; bytes under way are lost.
    pub(super) fn cut(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.broken {
            return;
        }
        connection.cut();
        let sides = connection.sides;
        self.counts.broken += 1;
        self.told(&sides, "the connection breaks");
    }

    /// One side writes nothing more.
    pub(super) fn end(&mut self, id: u64, side: usize) {
        let Some(connection) = self.connections.get(&id) else { return };
        if connection.pipes[side].ends.is_some() {
            return;
        }
        let way = (connection.sides[side], connection.sides[1 - side]);
        let due = Instant::now() + self.latency(way);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let pipe = &mut connection.pipes[side];
        pipe.last = pipe.last.max(due);
        if let Some(piece) = pipe.splitter.remainder() {
            pipe.bytes += piece.bytes.len();
            let parcel = Parcel { due: pipe.last, bytes: piece.bytes, kind: piece.kind, arrived: false };
            pipe.queue.push_back(parcel);
        }
        pipe.ends = Some(pipe.last);
        pipe.wake();
    }

    /// One side has let go of the connection.
    pub(super) fn close(&mut self, id: u64, side: usize) {
        self.end(id, side);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.open[side] = false;
        // The other side's writer learns that nobody reads.
        connection.pipes[1 - side].wake();
        if connection.open == [false, false] {
            self.connections.remove(&id);
        }
    }
}

impl Connection {
    /// The way of what `side` sends.
    pub(super) fn way(&self, side: usize) -> Way {
        (self.sides[side], self.sides[1 - side])
    }

    /// Whether anybody reads what `side` sends.
    pub(super) fn is_read(&self, side: usize) -> bool {
        self.open[1 - side]
    }

    fn cut(&mut self) {
        self.broken = true;
        for pipe in &mut self.pipes {
            pipe.queue.clear();
            pipe.bytes = 0;
            pipe.wake();
        }
    }
}
