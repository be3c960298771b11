//! When a silent node is dead: leases, judged so that memory is never freed too early.
//!
//! One lease for each pair of nodes and direction, renewed by heartbeats at a fixed rate whatever
//! happens on the lane. As an owner, a node *fences* a holder (R9) when
//!
//! 1. nothing has renewed its lease for TTL + grace, and then
//! 2. every other peer that may still hold something unread has said that it is *clear*: asked after 1
//!    held, it has processed all it had received, and its claims to the asker are acknowledged.
//!
//! The second part is what a heartbeat alone cannot show: that a node *lives* says nothing of a handle
//! that lies unread in its socket. As a holder, a node *gives up* an owner (R13) by the same test, with
//! echoes of its own heartbeats in place of renewals. Neither is judged before this node has processed
//! what it has received itself, and a node whose own tick was late lets all leases last as much longer
//! (R11).
//!
//! # What a node has to deliver, and what comes out
//!
//! Time is a `Duration` since any fixed start, by a clock that never steps back. [`Leases`] belongs to
//! the main loop, [`Keeper`] to the keeper's thread.
//!
//! | when | call |
//! | --- | --- |
//! | a member of the cluster becomes known, connected or not | [`Leases::mention`] |
//! | a data connection is up, after its Hellos, and after [`Lifetime::reset`] if they made one | [`Leases::reader_opened`]; after a reset also [`Leases::session_reset`] |
//! | it is down or replaced | [`Leases::reader_closed`] |
//! | a reader was polled until it had nothing more, and all it gave is processed | [`Leases::reader_drained`] |
//! | the keeper hands over a heartbeat | [`Leases::on_heartbeat`], with the lane's current session (0 if it has ended) |
//! | the keeper hands over an echo's sending time | [`Leases::on_echo`] |
//! | a data connection is up | [`Leases::connected`] |
//! | anything has come from a peer | [`Leases::sign_of_life`] |
//! | every heartbeat period | [`Leases::tick`], then [`Leases::publish`] for each of [`Leases::peers`] to [`Keeper::publish`] |
//! | a Leave (`Leaving`) is processed | [`Leases::left`] |
//! | a member is gone for good and [`Lifetime::is_held_by`] says no | [`Leases::forget`] |
//! | after any of these | [`Leases::advance`] |
//!
//! A lane exists from the first mention of its peer, in session 1, whether or not it has a connection; it is
//! kept when its session has ended, since the next one needs its number. The keeper dials every member
//! that is mentioned. A data session without a connection for longer than the resume window should end.
//!
//! The channel from the keeper to the main loop is a reader too ([`Reader::Keeper`]): open from the
//! start, and drained when it is empty *and* the keeper has looked at its sockets since the tick.
//! Readers named by [`Leases::behind`] want to be polled soon: until they are, nothing is judged and no
//! question of a peer is answered.
//!
//! [`Leases::advance`] returns [`Verdict`]s:
//!
//! - `Suspected(x)`: calls to it fail, until [`Leases::suspicion`] says that there is none any more;
//!   nothing else is to be done;
//! - `Lapsed`, `Returned`: for people; nothing is to be done;
//! - `Fence(h)`: [`Lane::end_session`], close its connections, [`Lifetime::fence`];
//! - `GiveUp(x)`: [`Lane::end_session`], close its connections, `Outbound::drain`,
//!   [`Lifetime::give_up`].
//!
//! After either, the next contact is a reset by itself, since the lane says so in its Hello.
//!
//! ```
//! use rref_core::lease::{LeaseSettings, Leases, Reader, Suspicion, Verdict};
//! use rref_core::lifetime::Lifetime;
//! use rref_core::{NodeUid, Rules};
//! use std::time::Duration;
//!
//! let (me, holder) = (NodeUid(1), NodeUid(2));
//! let mut tables = Lifetime::new(me, Rules::ALL);
//! let object = tables.on_create(holder, 1)?;
//! tables.created(object);
//!
//! let mut leases = Leases::new(me, Rules::ALL, LeaseSettings::default(), Duration::ZERO);
//! let mut verdicts = Vec::new();
//! for second in (2..=62).step_by(2) {
//!     leases.tick(Duration::from_secs(second), &tables);
//!     verdicts.extend(leases.advance(&tables));
//!     leases.reader_drained(Reader::Keeper);
//!     verdicts.extend(leases.advance(&tables));
//! }
//! // Its clock started with the first tick that found it in the tables.
//! assert_eq!(verdicts.len(), 3);
//! assert_eq!(verdicts[0], Verdict::Suspected(holder, Suspicion::Silent));
//! assert_eq!(verdicts[1..], [Verdict::Lapsed(holder), Verdict::Fence(holder)]);
//! # Ok::<(), rref_core::lifetime::ProtocolError>(())
//! ```
//!
//! This module knows time, identities and verdicts. It must not know frames' bytes, handles or
//! connections; it asks [`Lifetime`] what hangs on a peer.
//!
//! [`Lane::end_session`]: crate::session::Lane::end_session
//! [`Lifetime`]: crate::lifetime::Lifetime
//! [`Lifetime::reset`]: crate::lifetime::Lifetime::reset
//! [`Lifetime::fence`]: crate::lifetime::Lifetime::fence
//! [`Lifetime::give_up`]: crate::lifetime::Lifetime::give_up
//! [`Lifetime::is_held_by`]: crate::lifetime::Lifetime::is_held_by

mod clear;
mod clock;
mod judge;
mod keeper;
mod settings;
mod suspicion;

pub use clear::Reader;
pub use judge::{LeaseReport, Leases, PeerState, Verdict};
pub use keeper::Keeper;
pub use settings::{LeaseSettings, LeaseSettingsError};
pub use suspicion::Suspicion;
