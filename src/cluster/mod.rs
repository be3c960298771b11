//! Who is there: how peers are named. Knows no connection.

/// Names a node: by its name in the cluster, or by its rank in a launched one.
///
/// ```
/// use rref::{Peer, Rank};
/// assert_eq!(Peer::from("worker1"), Peer::Name("worker1".into()));
/// assert_eq!(Peer::from(Rank(1)), Peer::Rank(Rank(1)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Peer {
    /// Its name, as given to [`Node::builder`](crate::Node::builder).
    Name(String),
    /// Its number in a launched cluster.
    Rank(Rank),
}

/// The number of a process in a launched cluster: 0 is the starter, workers count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// The name a process of this rank has: `driver` for 0, else `worker` and the rank.
    pub fn node_name(self) -> String {
        match self.0 {
            0 => "driver".to_string(),
            rank => format!("worker{rank}"),
        }
    }
}

impl Peer {
    /// The name of the node.
    pub(crate) fn into_name(self) -> String {
        match self {
            Peer::Name(name) => name,
            Peer::Rank(rank) => rank.node_name(),
        }
    }
}

impl From<&str> for Peer {
    fn from(name: &str) -> Peer {
        Peer::Name(name.to_string())
    }
}

impl From<String> for Peer {
    fn from(name: String) -> Peer {
        Peer::Name(name)
    }
}

impl From<&String> for Peer {
    fn from(name: &String) -> Peer {
        Peer::Name(name.clone())
    }
}

impl From<Rank> for Peer {
    fn from(rank: Rank) -> Peer {
        Peer::Rank(rank)
    }
}
