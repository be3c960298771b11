//! What has happened in a simulation: for people as text and as a diagram, for machines as a hash.

use rref_core::wire::Kind;
use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::time::Duration;

/// One thing that happened, and when.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TraceEvent {
    /// Virtual time since the simulation began.
    pub at: Duration,
    /// What it was.
    pub what: What,
}

/// What can happen in a simulation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// A frame has arrived.
    Arrived {
        /// The node that sent it.
        from: String,
        /// The node that read it.
        to: String,
        /// What kind of frame; none for a handshake and for bytes that are no frames.
        kind: Option<Kind>,
        /// Whether it keeps the connection going and says nothing new, as acknowledgements do.
        aside: bool,
        /// What it says, in a few words.
        text: String,
    },
    /// A frame was lost, and its connection with it.
    Lost {
        /// The node that sent it.
        from: String,
        /// The node that would have read it.
        to: String,
        /// What kind of frame.
        kind: Option<Kind>,
    },
    /// Something else about one node or two: a connection, a fault, a crash, a panic.
    Told {
        /// The nodes it is about.
        about: Vec<String>,
        /// In words.
        text: String,
    },
}

/// The newest events of a simulation, and a hash of all.
///
/// Two runs of the same binary with the same seed have the same hash.
#[derive(Clone, Debug)]
pub struct Trace {
    events: VecDeque<TraceEvent>,
    capacity: usize,
    left_out: u64,
    hash: Fnv,
}

impl Trace {
    pub(super) fn new(capacity: usize) -> Trace {
        Trace { events: VecDeque::new(), capacity, left_out: 0, hash: Fnv::new() }
    }

    /// Whether events are kept: otherwise nobody need put them into words.
    pub(super) fn keeps_events(&self) -> bool {
        self.capacity > 0
    }

    /// Keeps an event; `bytes` is what of it goes into the hash, beside its time.
    pub(super) fn push(&mut self, at: Duration, bytes: &[u8], what: impl FnOnce() -> What) {
        self.hash.add(&at.as_micros().to_le_bytes());
        self.hash.add(bytes);
        if self.capacity == 0 {
            return;
        }
        if self.events.len() == self.capacity {
            self.events.pop_front();
            self.left_out += 1;
        }
        self.events.push_back(TraceEvent { at, what: what() });
    }

    /// A hash of everything that has happened, down to the bytes of each frame.
    pub fn hash(&self) -> u64 {
        self.hash.0
    }

    /// The newest events, oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &TraceEvent> {
        self.events.iter()
    }

    /// The last `count` events as text, without acknowledgements and the like.
    pub fn tail(&self, count: usize) -> String {
        let shown: Vec<&TraceEvent> = self.events.iter().filter(|event| !event.is_aside()).collect();
        let skipped = shown.len().saturating_sub(count);
        let mut text = String::new();
        if self.left_out > 0 || skipped > 0 {
            let _ = writeln!(text, "... {} earlier events", self.left_out + skipped as u64);
        }
        for event in &shown[skipped..] {
            let _ = writeln!(text, "{event}");
        }
        text
    }

    /// The last `count` events as a sequence diagram, in the language of [Mermaid](https://mermaid.js.org).
    ///
    /// Handshakes, acknowledgements and the like are left out.
    pub fn mermaid(&self, count: usize) -> String {
        let mut text = String::from("sequenceDiagram\n");
        let shown: Vec<&TraceEvent> = self.events.iter().filter(|event| event.is_talk()).collect();
        for event in &shown[shown.len().saturating_sub(count)..] {
            let at = seconds(event.at);
            let _ = match &event.what {
                What::Arrived { from, to, kind, text: words, .. } => {
                    writeln!(text, "    {from}->>{to}: {at} {} {}", kind_name(*kind), harmless(words))
                }
                What::Lost { from, to, kind } => {
                    writeln!(text, "    {from}-x{to}: {at} {} lost", kind_name(*kind))
                }
                What::Told { about, text: words } if !about.is_empty() => {
                    writeln!(text, "    Note over {}: {at} {}", span(about), harmless(words))
                }
                What::Told { .. } => Ok(()),
            };
        }
        text
    }
}

/// All events that were kept.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.left_out > 0 {
            writeln!(f, "... {} earlier events", self.left_out)?;
        }
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl TraceEvent {
    /// Whether it is something that nodes mean to say, and not only how they keep talking.
    fn is_talk(&self) -> bool {
        match &self.what {
            What::Arrived { kind, aside, .. } => {
                !aside && !matches!(kind, None | Some(Kind::Name | Kind::Peer | Kind::Credit))
            }
            What::Lost { .. } | What::Told { .. } => true,
        }
    }

    fn is_aside(&self) -> bool {
        matches!(self.what, What::Arrived { aside: true, .. })
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12}  ", seconds(self.at))?;
        match &self.what {
            What::Arrived { from, to, kind, text, .. } => {
                write!(f, "{from} -> {to}  {} {text}", kind_name(*kind))
            }
            What::Lost { from, to, kind } => {
                write!(f, "{from} -x {to}  {} lost, and the connection with it", kind_name(*kind))
            }
            What::Told { about, text } if about.is_empty() => write!(f, "{text}"),
            What::Told { about, text } => write!(f, "{}: {text}", about.join(", ")),
        }
    }
}

fn seconds(at: Duration) -> String {
    format!("{}.{:03}s", at.as_secs(), at.subsec_millis())
}

fn kind_name(kind: Option<Kind>) -> String {
    kind.map_or_else(|| "bytes".to_string(), |kind| format!("{kind:?}"))
}

/// A note can span from one participant to one other.
fn span(about: &[String]) -> String {
    match about {
        [first, .., last] => format!("{first},{last}"),
        _ => about.concat(),
    }
}

/// Mermaid takes these for the end of a line, or for the beginning of something else.
fn harmless(text: &str) -> String {
    text.replace(['#', ';', '\n', ':'], " ")
}

/// FNV-1a with 64 bits (Fowler, Noll and Vo).
#[derive(Clone, Copy, Debug)]
struct Fnv(u64);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(about: &[&str], text: &str) -> What {
        What::Told { about: about.iter().map(|name| name.to_string()).collect(), text: text.into() }
    }

    #[test]
    fn the_newest_events_are_kept_and_all_are_hashed() {
        let (mut short, mut long) = (Trace::new(2), Trace::new(10));
        for n in 0..3u64 {
            for trace in [&mut short, &mut long] {
                trace.push(Duration::from_millis(n), &[1], || told(&["a"], &format!("event {n}")));
            }
        }
        assert_eq!(short.hash(), long.hash());
        assert_eq!(short.tail(1), "... 2 earlier events\n      0.002s  a: event 2\n");
        long.push(Duration::ZERO, &[2], || told(&[], ""));
        assert_ne!(short.hash(), long.hash());
    }

    #[test]
    fn a_diagram_shows_what_was_said_and_what_was_lost() {
        let mut trace = Trace::new(10);
        let arrived = |kind, text: &str| What::Arrived {
            from: "a".into(),
            to: "b".into(),
            kind: Some(kind),
            aside: kind == Kind::Ack,
            text: text.into(),
        };
        trace.push(Duration::from_secs(1), &[], || arrived(Kind::Call, "Add to b/a#1"));
        trace.push(Duration::from_secs(1), &[], || arrived(Kind::Ack, "up to 1"));
        trace.push(Duration::from_secs(2), &[], || What::Lost {
            from: "b".into(),
            to: "a".into(),
            kind: Some(Kind::Reply),
        });
        trace.push(Duration::from_secs(3), &[], || told(&["a", "b", "c"], "cut off"));
        assert!(
            !trace.tail(10).contains("Ack") && trace.to_string().contains("a -> b  Ack up to 1"),
            "{trace}"
        );
        let expected = "sequenceDiagram\n    a->>b: 1.000s Call Add to b/a 1\n    b-xa: 2.000s Reply lost\n    Note over a,c: 3.000s cut off\n";
        assert_eq!(trace.mermaid(10), expected);
    }
}
