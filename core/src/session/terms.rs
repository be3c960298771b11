//! What a lane is told and what it answers, as plain values.

use crate::{NodeUid, Seq};

/// Sizes of a lane, all in bytes but for `ack_frames`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneLimits {
    /// User bytes we may have unacknowledged at the peer: its `receive_window`. Default 8 MiB.
    pub send_window: usize,
    /// User bytes the peer may have unacknowledged at us. An acknowledgement is due at once after a
    /// quarter of it. Default 8 MiB.
    pub receive_window: usize,
    /// Unacknowledged bytes of all frames above which the lane is overfull. Must exceed
    /// `send_window` by what control frames may need. Default 64 MiB.
    pub resend_limit: usize,
    /// An acknowledgement is due at once after this many frames. Default 64.
    pub ack_frames: u64,
}

impl Default for LaneLimits {
    fn default() -> Self {
        LaneLimits { send_window: 8 << 20, receive_window: 8 << 20, resend_limit: 64 << 20, ack_frames: 64 }
    }
}

/// Whether a frame waits for the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A message of the user or a chunk of one: only sent if the window has room.
    User,
    /// Whatever the protocol says: never waits, and takes no room from the user.
    Control,
}

/// What is wrong with a lane or its peer. No variant changes the lane's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// A frame is missing, or (a bug of the caller) frames were processed out of order. The session
    /// cannot go on.
    #[error("frame {got} came where {expected} was due")]
    Gap {
        /// The next position.
        expected: Seq,
        /// The position that came.
        got: Seq,
    },
    /// The peer wants to resume where we cannot: dropped as acknowledged, or never sent.
    #[error("the peer resumes at frame {wanted}, but only {oldest} to {next} are possible")]
    ResumeGap {
        /// Where the peer wants to go on.
        wanted: Seq,
        /// The oldest frame at hand.
        oldest: Seq,
        /// One above the last frame that any connection was given.
        next: Seq,
    },
    /// The peer speaks of another session, or has lost this one. Only a reset helps.
    #[error("the peer knows session {theirs}, this is session {ours}")]
    UnknownSession {
        /// Our session.
        ours: u32,
        /// The peer's; 0 for none.
        theirs: u32,
    },
    /// The session has ended here. Only a reset helps.
    #[error("the session has ended")]
    Ended,
    /// The peer's answer does not fit what it was told: it neither resumes the session nor begins a
    /// later one.
    #[error("the peer answers with session {theirs} where this is session {ours}")]
    WrongAnswer {
        /// Our session.
        ours: u32,
        /// The session in its answer.
        theirs: u32,
    },
    /// What the peer says of the session was true before another connection stood.
    #[error("the peer speaks of session {theirs}, which it has left: this is session {ours}")]
    Overtaken {
        /// Our session.
        ours: u32,
        /// The session in its Hello.
        theirs: u32,
    },
    /// Session numbers are used up. Only a new process, with a new uid, helps.
    #[error("no session number is left")]
    NoSessionLeft,
    /// The peer acknowledges or settles what no connection was ever given.
    #[error("the peer acknowledges frame {ack}, but only {sent} were sent")]
    AckOfUnsent {
        /// What it acknowledges.
        ack: Seq,
        /// The last frame given to a connection.
        sent: Seq,
    },
    /// The peer sent user bytes beyond the window.
    #[error("{unacked} bytes unacknowledged, beyond the window of {window}")]
    BeyondWindow {
        /// User bytes since our last acknowledgement, this frame included.
        unacked: usize,
        /// The window.
        window: usize,
    },
}

/// What to do with a frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// It is the next one.
    Process,
    /// It was processed before: drop it.
    Duplicate,
}

/// When to send an acknowledgement if no frame goes out that would carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckDue {
    /// The peer knows everything.
    No,
    /// When the lane has been quiet for a moment.
    Later,
    /// At once.
    Now,
}

/// How a lane goes on over a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// Frames that will be sent again; those never sent before are not among them.
    pub resent_frames: u64,
}

/// A settled watermark that holds but for some owners' objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SettledExcept {
    /// Every introduction up to here is settled.
    pub upto: Seq,
    /// Unless the object belongs to one of these.
    pub exceptions: Vec<NodeUid>,
}

/// What the peer told of our direction that we did not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Every frame of ours up to here is processed, and what the peer said before is too.
    pub acked: Option<Seq>,
    /// Every introduction of ours up to here is settled.
    pub settled: Option<Seq>,
    /// More is settled, with exceptions.
    pub settled_except: Option<SettledExcept>,
}
