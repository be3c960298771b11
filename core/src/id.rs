//! Identities: who a node is, what an object is called, where a frame stands in a lane.
//!
//! Knows nothing of names or addresses: those change, identities do not.

use std::fmt;

/// One process start: 128 random bits, never reused.
///
/// A node that restarts under its old name and address has a new uid, so that nothing said to the
/// old process can be mistaken for something said to the new one.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeUid(pub u128);

impl fmt::Debug for NodeUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NodeUid {
    /// The first 32 bits: enough to tell nodes apart in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", (self.0 >> 96) as u32)
    }
}

/// The identity of one remote object, unique for ever.
///
/// `create_no` counts from 1 without gaps for each (creator, owner) pair, so that an owner can tell
/// an object that is yet to be created from one that is already freed, without tombstones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The node in whose memory the object lives.
    pub owner: NodeUid,
    /// The node that asked for it.
    pub creator: NodeUid,
    /// Its number among the objects this creator asked this owner for, from 1.
    pub create_no: u64,
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}#{}", self.owner, self.creator, self.create_no)
    }
}

/// The position of a frame in one direction of a session, from 1. 0 means "none yet".
pub type Seq = u64;

/// A position that stays comparable across session resets: later sessions are greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The session's number, from 1. 0 stands before every session.
    pub session_no: u32,
    /// The frame's position in it.
    pub seq: Seq,
}

impl Stamp {
    /// Before every frame of every session.
    pub const ZERO: Stamp = Stamp { session_no: 0, seq: 0 };
}
