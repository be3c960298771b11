//! One session with one peer: the sequence state of both directions.
//!
//! Knows numbers, weights and opaque frames `F`; must not know what a frame says or which
//! connection carries it. Every connection of the pair serves the same lane, one at a time.
//!
//! The caller's part of the contract: for each frame in the sequence, [`Lane::accept`], then all its
//! effects, then [`Lane::processed_frame`], before the next `accept`; and an old connection is no
//! longer read once [`Lane::recv_next`] has been read for a newer one.

use super::terms::{Accept, AckDue, Class, LaneError, LaneLimits, Progress, Resume, SettledExcept};
use crate::{NodeUid, Rules, Seq};
use std::collections::VecDeque;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unacked<F> {
    class: Class,
    weight: usize,
    frame: F,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HeldAck {
    at: Seq,
    ack: Seq,
    settled: Seq,
    exceptions: Vec<NodeUid>,
}

/// One session with one peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lane<F> {
    rules: Rules,
    limits: LaneLimits,
    session_no: u32,
    /// The latest session in which the peer is known to have been.
    peer_session: u32,
    /// There has been a connection.
    met: bool,
    connected: bool,
    /// Only a reset helps.
    ended: bool,

    /// The resend buffer: `oldest` and following.
    buffer: VecDeque<Unacked<F>>,
    oldest: Seq,
    /// The next frame for the current connection.
    cursor: Seq,
    transmitted: Seq,
    unacked_bytes: usize,
    unacked_user_bytes: usize,
    /// The acknowledgement last reported. May trail `oldest`: a resume tells that frames arrived, but
    /// not at which position of the peer's lane, so it must not confirm anything.
    acked: Seq,
    settled: Seq,
    settled_except: Option<SettledExcept>,
    held: Option<HeldAck>,

    processed: Seq,
    /// Frames, and bytes of them, since an acknowledgement was last stamped.
    fresh_frames: u64,
    fresh_bytes: usize,
    /// User bytes since the peer could last learn, from a stamp or a resume, what we processed.
    fresh_user_bytes: usize,
    /// Something besides fresh frames to tell: `settled` moved, or an Ack may have been lost.
    owed: bool,
}

impl<F> Lane<F> {
    /// The first session with a peer, not connected, nothing sent.
    pub fn new(rules: Rules, limits: LaneLimits) -> Self {
        Lane {
            rules,
            limits,
            session_no: 1,
            peer_session: 0,
            met: false,
            connected: false,
            ended: false,
            buffer: VecDeque::new(),
            oldest: 1,
            cursor: 1,
            transmitted: 0,
            unacked_bytes: 0,
            unacked_user_bytes: 0,
            acked: 0,
            settled: 0,
            settled_except: None,
            held: None,
            processed: 0,
            fresh_frames: 0,
            fresh_bytes: 0,
            fresh_user_bytes: 0,
            owed: false,
        }
    }

    /// The session's number, from 1.
    pub fn session_no(&self) -> u32 {
        self.session_no
    }

    pub(super) fn rules(&self) -> Rules {
        self.rules
    }

    /// The session that heartbeats speak of; 0 while there is none: before the first connection, and once
    /// it has ended.
    pub fn live_session(&self) -> u32 {
        if self.met && !self.ended { self.session_no } else { 0 }
    }

    /// Whether there has been a connection with the peer.
    pub(super) fn has_met(&self) -> bool {
        self.met
    }

    /// The peer is in our session: it says nothing of an earlier one any more.
    pub(super) fn peer_is_here(&mut self) {
        self.peer_session = self.session_no;
    }

    /// Whether the peer is known to have left that session.
    pub(super) fn peer_has_left(&self, session_no: u32) -> bool {
        session_no > 0 && session_no < self.peer_session
    }

    /// Whether the session can only be followed by another one.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The session cannot go on: the peer is fenced or given up, a frame is missing, the resend buffer is
    /// too full, or nobody has resumed it for too long. What is in it is lost, and so is what is pushed
    /// until the next session. The lane itself must be kept: a new one would begin with session 1 again.
    pub fn end_session(&mut self) {
        self.ended = true;
        self.connected = false;
        self.oldest = self.next_seq();
        self.cursor = self.oldest;
        self.buffer.clear();
        self.unacked_bytes = 0;
        self.unacked_user_bytes = 0;
        self.held = None;
    }

    /// Everything as in a new lane, in another session.
    pub(super) fn switch(&mut self, session_no: u32) {
        let fresh = Lane::new(self.rules, self.limits);
        *self = Lane { session_no, peer_session: self.peer_session, met: true, ..fresh };
    }

    /// Whether a connection serves the lane.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// The peer said how many user bytes it lets us have unacknowledged.
    pub fn set_send_window(&mut self, bytes: usize) {
        self.limits.send_window = bytes;
    }

    // Sending.

    /// The position that the next [`Lane::push`] will give: frames are encoded with it.
    pub fn next_seq(&self) -> Seq {
        self.oldest + self.buffer.len() as u64
    }

    /// The last position given; 0 if none.
    pub fn last_assigned(&self) -> Seq {
        self.next_seq() - 1
    }

    /// The highest position ever given to any connection: what lies above has certainly not run.
    pub fn transmitted(&self) -> Seq {
        self.transmitted
    }

    /// Appends a frame, encoded with position [`Lane::next_seq`], and returns that position.
    ///
    /// `weight` is the frame's length on the wire in bytes: both ends must count alike. Never refuses:
    /// the caller sees to it that a user frame fits [`Lane::room`] and that an overfull lane ends.
    pub fn push(&mut self, class: Class, weight: usize, frame: F) -> Seq {
        let seq = self.next_seq();
        if self.ended {
            self.oldest += 1;
            self.cursor = self.oldest;
            return seq;
        }
        self.unacked_bytes += weight;
        if class == Class::User {
            self.unacked_user_bytes += weight;
        }
        self.buffer.push_back(Unacked { class, weight, frame });
        seq
    }

    /// The next frame for the current connection, each once per connection; `None` when all are sent
    /// or nothing is connected.
    pub fn next_to_send(&mut self) -> Option<&F> {
        if !self.has_unsent() {
            return None;
        }
        let unacked = self.buffer.get((self.cursor - self.oldest) as usize)?;
        self.transmitted = self.transmitted.max(self.cursor);
        self.cursor += 1;
        Some(&unacked.frame)
    }

    /// Whether [`Lane::next_to_send`] has something.
    pub fn has_unsent(&self) -> bool {
        self.connected && self.cursor < self.next_seq()
    }

    /// The weight a user frame may have now, in bytes.
    ///
    /// `usize::MAX` while no user byte is unacknowledged: a single frame may exceed the window, or it
    /// could never be sent. 0 once the session has ended: messages wait for the next one.
    pub fn room(&self) -> usize {
        if self.ended {
            return 0;
        }
        match self.unacked_user_bytes {
            0 => usize::MAX,
            unacked => self.limits.send_window.saturating_sub(unacked),
        }
    }

    /// Bytes of all frames in the resend buffer.
    pub fn unacked_bytes(&self) -> usize {
        self.unacked_bytes
    }

    /// Frames in the resend buffer.
    pub fn unacked_frames(&self) -> usize {
        self.buffer.len()
    }

    /// The sizes in force.
    pub fn limits(&self) -> &LaneLimits {
        &self.limits
    }

    /// Whether the resend buffer exceeds its limit: the session must end rather than grow for ever.
    pub fn is_overfull(&self) -> bool {
        self.unacked_bytes > self.limits.resend_limit
    }

    // Connections.

    /// A connection, newer than any before, has exchanged its Hello. What the peer has not processed
    /// will be sent again.
    ///
    /// `peer_session_no` is 0 and `peer_recv_next` 1 if the peer knows no session. What the peer
    /// processed leaves the buffer, but is not reported as acknowledged: the peer may have said things
    /// before (a Gone) that have not arrived. An acknowledgement in the sequence, or an Ack, follows.
    ///
    /// # Errors
    ///
    /// [`LaneError::UnknownSession`], [`LaneError::ResumeGap`], [`LaneError::Ended`]; the lane is as
    /// before.
    pub fn connected(&mut self, peer_session_no: u32, peer_recv_next: Seq) -> Result<Resume, LaneError> {
        if self.ended {
            return Err(LaneError::Ended);
        }
        // A peer without a session is our peer of old only if neither side can tell the difference.
        let fresh = peer_session_no == 0 && self.oldest == 1 && self.processed == 0;
        if peer_session_no != self.session_no && !fresh {
            return Err(LaneError::UnknownSession { ours: self.session_no, theirs: peer_session_no });
        }
        if peer_recv_next < self.oldest
            || peer_recv_next > self.transmitted + 1
            || (fresh && peer_recv_next != 1)
        {
            let (oldest, next) = (self.oldest, self.transmitted + 1);
            return Err(LaneError::ResumeGap { wanted: peer_recv_next, oldest, next });
        }
        self.prune(peer_recv_next - 1);
        self.cursor = peer_recv_next;
        (self.connected, self.met) = (true, true);
        // Our own Hello told the peer what we processed, so its window counts from there. Still an Ack
        // is owed: the last one may have been lost with the old connection, and a resume confirms
        // nothing.
        self.fresh_user_bytes = 0;
        self.owed |= self.processed > 0;
        Ok(Resume { resent_frames: self.transmitted + 1 - peer_recv_next })
    }

    /// The connection is gone. Frames are kept for the next one.
    pub fn disconnected(&mut self) {
        self.connected = false;
    }

    // Receiving.

    /// Every frame of the peer's up to here is processed: the acknowledgement to stamp.
    pub fn processed(&self) -> Seq {
        self.processed
    }

    /// The position expected next, for Hello.
    pub fn recv_next(&self) -> Seq {
        self.processed + 1
    }

    /// A frame in the sequence arrived.
    ///
    /// # Errors
    ///
    /// [`LaneError::Gap`] if frames are missing before it; position 0 is never in the sequence.
    pub fn accept(&mut self, seq: Seq) -> Result<Accept, LaneError> {
        self.peer_is_here();
        if seq == self.recv_next() {
            return Ok(Accept::Process);
        }
        if seq == 0 || seq > self.processed {
            return Err(LaneError::Gap { expected: self.recv_next(), got: seq });
        }
        if !self.rules.drop_duplicates {
            return Ok(Accept::Process);
        }
        // Its sender does not know that we have it.
        self.owed = true;
        Ok(Accept::Duplicate)
    }

    /// A frame accepted before is processed, with all its effects. `ack` and `settled` are those
    /// stamped on it; `weight` its length on the wire in bytes.
    ///
    /// # Errors
    ///
    /// [`LaneError::Gap`] if it is not the next one, [`LaneError::AckOfUnsent`],
    /// [`LaneError::BeyondWindow`]. The frame counts as unprocessed then; the session must end.
    pub fn processed_frame(
        &mut self,
        seq: Seq,
        ack: Seq,
        settled: Seq,
        class: Class,
        weight: usize,
    ) -> Result<Progress, LaneError> {
        if seq != self.recv_next() {
            return Err(LaneError::Gap { expected: self.recv_next(), got: seq });
        }
        self.check_ack(ack, settled)?;
        if class == Class::User {
            let unacked = self.fresh_user_bytes.saturating_add(weight);
            let window = self.limits.receive_window;
            // A single frame may exceed the window, as `room` says.
            if unacked > window && self.fresh_user_bytes > 0 {
                return Err(LaneError::BeyondWindow { unacked, window });
            }
            self.fresh_user_bytes = unacked;
        }
        self.processed = seq;
        self.fresh_frames += 1;
        self.fresh_bytes = self.fresh_bytes.saturating_add(weight);

        let mut progress = Progress::default();
        self.apply(ack, settled, Vec::new(), &mut progress);
        if let Some(held) = self.held.take_if(|held| held.at <= seq) {
            self.apply(held.ack, held.settled, held.exceptions, &mut progress);
        }
        Ok(progress)
    }

    /// An Ack, outside the sequence: applied when everything up to `at` is processed, lest it
    /// overtake a Gone. Of several that wait, the latest is kept. One of another session is ignored.
    ///
    /// # Errors
    ///
    /// [`LaneError::AckOfUnsent`]; nothing is applied or kept then.
    pub fn ack_frame(
        &mut self,
        session_no: u32,
        at: Seq,
        ack: Seq,
        settled: Seq,
        exceptions: Vec<NodeUid>,
    ) -> Result<Progress, LaneError> {
        let mut progress = Progress::default();
        if session_no != self.session_no && self.rules.drop_foreign_acks {
            return Ok(progress);
        }
        self.check_ack(ack, settled)?;
        if self.rules.ack_waits_for_position && at > self.processed {
            self.held = Some(HeldAck { at, ack, settled, exceptions });
        } else {
            self.apply(ack, settled, exceptions, &mut progress);
        }
        Ok(progress)
    }

    /// The acknowledgement that waits for its position, if there is one: (`at`, `ack`, `settled`).
    pub fn held_ack(&self) -> Option<(Seq, Seq, Seq)> {
        self.held.as_ref().map(|held| (held.at, held.ack, held.settled))
    }

    /// Whether the peer should hear of what we processed.
    pub fn ack_due(&self) -> AckDue {
        let many =
            self.fresh_frames >= self.limits.ack_frames || self.fresh_bytes >= self.limits.receive_window / 4;
        match self.fresh_frames {
            0 if self.owed => AckDue::Later,
            0 => AckDue::No,
            _ if many => AckDue::Now,
            _ => AckDue::Later,
        }
    }

    /// What the peer has settled of ours in this session: of all owners, and but for some.
    pub fn settled_marks(&self) -> (Seq, Option<&SettledExcept>) {
        (self.settled, self.settled_except.as_ref())
    }

    /// There is news for an Ack that the lane cannot see: our settled watermark moved. One with
    /// exceptions travels in an Ack only, so it is owed again if another frame was stamped first.
    pub fn owe_ack(&mut self) {
        self.owed = true;
    }

    /// A frame or an Ack that carries [`Lane::processed`] was encoded, and will be sent.
    pub fn ack_stamped(&mut self) {
        self.fresh_frames = 0;
        self.fresh_bytes = 0;
        self.fresh_user_bytes = 0;
        self.owed = false;
    }

    fn check_ack(&self, ack: Seq, settled: Seq) -> Result<(), LaneError> {
        let ack = ack.max(settled);
        if ack > self.transmitted {
            return Err(LaneError::AckOfUnsent { ack, sent: self.transmitted });
        }
        Ok(())
    }

    /// Takes what is new from an acknowledgement; old ones change nothing.
    fn apply(&mut self, ack: Seq, settled: Seq, exceptions: Vec<NodeUid>, progress: &mut Progress) {
        if ack > self.acked {
            self.acked = ack;
            progress.acked = Some(ack);
            self.prune(ack);
        }
        if settled <= self.settled {
            return;
        }
        if exceptions.is_empty() {
            self.settled = settled;
            progress.settled = Some(settled);
            self.settled_except.take_if(|except| except.upto <= settled);
            progress.settled_except.take_if(|except| except.upto <= settled);
            return;
        }
        // The two watermarks move apart: with more exceptions one gets further, and a lower one with
        // fewer exceptions still says something new.
        let except = SettledExcept { upto: settled, exceptions };
        if self.settled_except.as_ref() != Some(&except) {
            self.settled_except = Some(except.clone());
            progress.settled_except = Some(except);
        }
    }

    /// Drops frames up to `upto` from the resend buffer.
    fn prune(&mut self, upto: Seq) {
        while self.oldest <= upto {
            let Some(unacked) = self.buffer.pop_front() else { break };
            self.oldest += 1;
            self.unacked_bytes -= unacked.weight;
            if unacked.class == Class::User {
                self.unacked_user_bytes -= unacked.weight;
            }
        }
        self.cursor = self.cursor.max(self.oldest);
    }
}
