//! The ordered exactly-once lane between two nodes, above connections.
//!
//! Two machines that know nothing of each other:
//!
//! - [`Lane`] numbers what is sent and checks what arrives: resend buffer, resume after a broken
//!   connection, acknowledgements, byte window. It holds encoded frames and never looks inside.
//! - [`Outbound`] holds the user's messages that have no number yet, and says which goes next: order
//!   per object, creations in order, large messages in chunks, call credit. [`Grant`] is the other end
//!   of that credit.
//!
//! A node joins them: while [`Outbound::next`] yields something for [`Lane::room`], it encodes that
//! under [`Lane::next_seq`] and hands it to [`Lane::push`]. Control frames go to the lane directly.
//!
//! Sessions end by [`Lane::end_session`] and begin anew by a reset, which the two sides agree on in
//! their Hellos: [`Position`].
//!
//! This module must not know what frames mean, what an object's state is, how bytes travel, or what
//! time it is. What a reset means for handles is [`Lifetime::reset`](crate::lifetime::Lifetime::reset).

mod credit;
mod handshake;
mod lane;
mod order;
mod outbound;
mod terms;
mod transfer;

pub use credit::{Credit, Grant, Violation};
pub use handshake::{Meeting, Position};
pub use lane::Lane;
pub use order::Message;
pub use outbound::{Emit, Outbound, OutboundLimits, Ticket};
pub use terms::{Accept, AckDue, Class, LaneError, LaneLimits, Progress, Resume, SettledExcept};
