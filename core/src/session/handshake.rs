//! What two Hellos make of a session: it is resumed, or both sides begin the next one.
//!
//! The side that was dialled decides, on Hello; the side that dialled follows, on HelloAck. Neither
//! processes anything between. Knows session numbers and positions only: names, tokens and who may
//! connect are decided elsewhere.
//!
//! A side that cannot go on with its session (it was fenced, gave the other up, or ran full) says
//! `recv_next` 0, which asks for a reset. A HelloAck that is lost does no harm: the next Hello speaks of
//! a session that the other side has left, and that is a reset too.
//!
//! An answer belongs to the connection it came on: if another one has been accepted since the Hello, the
//! answer must be dropped with its connection.

use super::lane::Lane;
use super::terms::{LaneError, Resume};
use crate::Seq;

/// Where a side stands in a session, as its Hello or HelloAck says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The session; 0 if it knows of none.
    pub session_no: u32,
    /// The position it expects next; 0 if it cannot go on with the session.
    pub recv_next: Seq,
}

impl Position {
    /// Of a side that has never met the other.
    pub const UNKNOWN: Position = Position { session_no: 0, recv_next: 1 };
}

/// How a session goes on over a new connection.
///
/// ```
/// use rref_core::Rules;
/// use rref_core::session::{Lane, LaneLimits, Meeting};
///
/// let mut dials: Lane<&str> = Lane::new(Rules::ALL, LaneLimits::default());
/// let mut answers: Lane<&str> = Lane::new(Rules::ALL, LaneLimits::default());
/// let (met, position) = answers.hello_arrived(dials.hello())?;
/// assert!(matches!(met, Meeting::Resumed(_)));
/// assert!(matches!(dials.answer_arrived(position)?, Meeting::Resumed(_)));
///
/// // The session cannot go on, whatever the reason: the next connection begins another one.
/// dials.end_session();
/// let (met, position) = answers.hello_arrived(dials.hello())?;
/// assert!(matches!(met, Meeting::Reset { session_no: 2, .. }));
/// assert!(matches!(dials.answer_arrived(position)?, Meeting::Reset { session_no: 2, .. }));
/// # Ok::<(), rref_core::session::LaneError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// As if the old connection had not broken.
    Resumed(Resume),
    /// The lane is in a new session, with nothing sent or received: before anything is,
    /// [`Lifetime::reset`](crate::lifetime::Lifetime::reset) is due.
    Reset {
        /// The new session.
        session_no: u32,
        /// No frame of ours above this position in the old session has been processed. Those up to it
        /// may have been.
        maybe_processed: Seq,
    },
}

impl<F> Lane<F> {
    /// Our position, for a Hello. The connection of before, if there is one, is over with this: nothing
    /// that comes on it may be processed any more.
    pub fn hello(&mut self) -> Position {
        if self.rules().close_older_first {
            self.disconnected();
        }
        self.position()
    }

    fn position(&self) -> Position {
        Position {
            session_no: if self.has_met() { self.session_no() } else { 0 },
            recv_next: if self.is_ended() { 0 } else { self.recv_next() },
        }
    }

    /// The peer has dialled, and this is its Hello. Returns what has become of the session, and our
    /// position for the HelloAck. Either way the new connection serves the lane from now on.
    ///
    /// # Errors
    ///
    /// [`LaneError::ResumeGap`] for a Hello that was overtaken: a node never goes back in a session, so
    /// one that expects what it has acknowledged has sent this before a connection that stands by now.
    /// [`LaneError::Overtaken`] likewise, for a session that the peer is known to have left.
    /// [`LaneError::NoSessionLeft`]. The lane is as before.
    pub fn hello_arrived(&mut self, peer: Position) -> Result<(Meeting, Position), LaneError> {
        if self.peer_has_left(peer.session_no) {
            return Err(LaneError::Overtaken { ours: self.session_no(), theirs: peer.session_no });
        }
        // One who knows us, whom we do not know: we have forgotten what it may send again.
        let forgotten = !self.has_met() && peer.session_no > 0;
        if peer.recv_next > 0 && !forgotten {
            match self.connected(peer.session_no, peer.recv_next) {
                Ok(resume) => return Ok((Meeting::Resumed(resume), self.position())),
                Err(error @ LaneError::ResumeGap { wanted, oldest, .. }) if wanted < oldest => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        let last = self.session_no().max(peer.session_no);
        let session_no = last.checked_add(1).ok_or(LaneError::NoSessionLeft)?;
        let processed = peer.recv_next.checked_sub(1).filter(|_| peer.session_no == self.session_no());
        let meeting = self.begin(session_no, processed)?;
        Ok((meeting, self.position()))
    }

    /// We have dialled, and this is the peer's HelloAck.
    ///
    /// # Errors
    ///
    /// [`LaneError::WrongAnswer`], [`LaneError::ResumeGap`], [`LaneError::Ended`]; the lane is as before,
    /// and the connection of no use. After a gap the session must end.
    pub fn answer_arrived(&mut self, peer: Position) -> Result<Meeting, LaneError> {
        if peer.session_no > self.session_no() && peer.recv_next == 1 {
            let meeting = self.begin(peer.session_no, None)?;
            self.peer_is_here();
            return Ok(meeting);
        }
        if peer.session_no < self.session_no() && peer.session_no > 0 {
            let (ours, theirs) = (self.session_no(), peer.session_no);
            return Err(LaneError::WrongAnswer { ours, theirs });
        }
        self.connected(peer.session_no, peer.recv_next).map(Meeting::Resumed)
    }

    fn begin(&mut self, session_no: u32, processed: Option<Seq>) -> Result<Meeting, LaneError> {
        let transmitted = self.transmitted();
        let maybe_processed = processed.map_or(transmitted, |processed| processed.min(transmitted));
        self.switch(session_no);
        self.connected(session_no, 1)?;
        Ok(Meeting::Reset { session_no, maybe_processed })
    }
}
