//! The one error type of the library, and the form in which errors travel between nodes.

use rref_core::wire::GoneReason;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with a node, a reference or a call.
///
/// Each variant says when it occurs, **whether the call may have run**, and what to do. Errors are
/// `Clone`: every caller that waits for the same thing gets the same reason.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A borrow of the value was asked for on a node that does not own it. Nothing was sent.
    ///
    /// Use [`RRef::to_here`](crate::RRef::to_here) for a snapshot, or
    /// [`RRef::apply`](crate::RRef::apply) to run a function where the value lives.
    #[error(
        "node `{node}` does not own {rref}: `{owner}` does; use to_here() for a snapshot or apply() to run a function there"
    )]
    NotOwner {
        /// The reference, in its `Debug` form.
        rref: String,
        /// The node that was asked.
        node: String,
        /// The node that owns the object.
        owner: String,
    },

    /// The call never left this node, so it has not run. Retrying is safe.
    #[error("the call was not sent to `{peer}`: {reason}; it has not run")]
    NotSent {
        /// The node it was meant for.
        peer: String,
        /// Why it could not be sent.
        reason: String,
    },

    /// No answer within the call's timeout. The call **may have run**, or may still run.
    ///
    /// The handle stays usable. A longer limit is set with [`Request::timeout`](crate::Request::timeout)
    /// or [`Builder::default_timeout`](crate::Builder::default_timeout).
    #[error("no answer within {0:?}; the call may have run")]
    Timeout(Duration),

    /// The owner was lost after the call was sent: it **may have run**, and nobody can tell.
    #[error("lost `{peer}` after the call was sent ({reason}); it may have run")]
    OutcomeUnknown {
        /// The node it was sent to.
        peer: String,
        /// How it was lost.
        reason: String,
    },

    /// The function or handler ran and did not give a result.
    #[error("`{function}` on node `{node}` {kind}: {message}")]
    Remote {
        /// How it failed.
        kind: RemoteKind,
        /// The panic's text, or what is known.
        message: String,
        /// Where it ran.
        node: String,
        /// The function or message.
        function: String,
        /// The trace the call belongs to; 0 for none.
        trace_id: u128,
    },

    /// A handler of the object panicked: the object is gone, its node and other objects live on.
    ///
    /// The call that hit the panic has run in part; calls queued behind it have not run.
    #[error("the object died: {reason}")]
    ObjectDied {
        /// The panic's text.
        reason: String,
    },

    /// The object does not exist (any more). The call has not run.
    #[error("the object is gone: {0}")]
    Gone(Gone),

    /// The object's constructor failed. Every call on its handles says so; none has run.
    #[error("the object could not be created: {0}")]
    CreateFailed(String),

    /// The process that owned the object is gone for good. The call has not run.
    ///
    /// A new process under the same name owns none of the old objects: create them anew.
    #[error("the owner `{owner}` died ({reason}); its objects are lost")]
    OwnerDied {
        /// Its name.
        owner: String,
        /// How this node knows.
        reason: String,
    },

    /// The handle was cut off from its owner for too long and given up. The call has not run.
    #[error("the handle is broken: {0}")]
    Broken(String),

    /// The node is known but does not answer, or is silent, or does not hear this node. The call has not run.
    /// Try again later, or wait for [`NodeEvent::PeerBack`](crate::NodeEvent::PeerBack).
    #[error("`{peer}` cannot be reached: {reason}")]
    Unreachable {
        /// Its name or address.
        peer: String,
        /// The last attempt's failure, or what is missing.
        reason: String,
    },

    /// No node of that name has joined. Nothing was sent.
    ///
    /// [`Node::wait_for`](crate::Node::wait_for) waits until it has.
    #[error("no node `{peer}` is known to `{node}`; join its cluster first, or wait_for() it")]
    UnknownPeer {
        /// The name asked for.
        peer: String,
        /// The node that was asked.
        node: String,
    },

    /// The owner does not offer this function, method, message or type. The call has not run.
    #[error("`{what}` is not registered on node `{node}`; add `{call}` to its Node::builder()")]
    NotRegistered {
        /// Path of what is missing.
        what: String,
        /// The node that lacks it.
        node: String,
        /// The missing line.
        call: String,
    },

    /// The node keeps no reference under this name.
    #[error("node `{node}` has no object named `{name}`; give it one there with register_name()")]
    UnknownName {
        /// The name asked for.
        name: String,
        /// The node that was asked.
        node: String,
    },

    /// The object is of another type than the handle says. The call has not run.
    #[error("the object is hosted by `{found}`, not by a `{expected}`")]
    WrongType {
        /// The type the handle or method names.
        expected: String,
        /// The type of the object.
        found: String,
    },

    /// Another node of the cluster has this name.
    #[error("the name `{name}` is taken by a node at {holder}; give this node another name")]
    NameTaken {
        /// The name.
        name: String,
        /// Where its holder is.
        holder: String,
    },

    /// Something already listens on the address.
    #[error("cannot listen on {address}: {reason}; choose another port, or port 0 for any free one")]
    AddressInUse {
        /// The address asked for.
        address: String,
        /// The system's words.
        reason: String,
    },

    /// The node's settings do not fit together; the text says which and what to change.
    #[error("{0}")]
    Config(String),

    /// A local worker process could not be started, left early, or did not stop.
    #[error("worker process `{worker}`: {reason}")]
    Launch {
        /// Its name.
        worker: String,
        /// What happened.
        reason: String,
    },

    /// The message could not be encoded. Nothing was sent, and every handle in it is as before.
    #[error("cannot encode: {0}")]
    Encode(String),

    /// The bytes received do not decode to the expected type.
    ///
    /// For arguments the call has not run; for a result it **has run**.
    #[error("cannot decode: {0}")]
    Decode(String),

    /// The two programs disagree on the types of a function or message. The call has not run.
    ///
    /// Everything else between them goes on. Give the new version of a message a new name.
    #[error(
        "`{path}` has other types on `{node}`: schema {ours:032x} here, {theirs:032x} there; build both from the same definition or use a new name"
    )]
    SchemaMismatch {
        /// The function or message.
        path: String,
        /// The owner.
        node: String,
        /// The caller's schema.
        ours: u128,
        /// The owner's schema.
        theirs: u128,
    },

    /// A message, or a part of it, is larger than allowed. Nothing was sent.
    #[error("{what} is too large: {size}, the limit is {limit}")]
    TooLarge {
        /// Which part.
        what: String,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },

    /// The owner, or this node's queue of what goes there, has no room for more. The call has not run; try
    /// again later.
    #[error("`{node}` is overloaded: {reason}")]
    Overloaded {
        /// The node whose limit was hit.
        node: String,
        /// Which limit was hit.
        reason: String,
    },

    /// The other side refused. The call has not run.
    #[error("`{node}` refused: {reason}")]
    Denied {
        /// Who refused.
        node: String,
        /// Why.
        reason: String,
    },

    /// A blocking call was made on a thread that runs tasks: it would stop them. Nothing was sent.
    #[error("a blocking call on a runtime thread would stop it; `.await` the request instead")]
    WouldBlockRuntime,

    /// A reference was serialised outside a message: only messages of a running node carry leases.
    #[error(
        "an RRef can only be serialised inside a message of a running node; send it, or store a registered name instead"
    )]
    NotInMessage,

    /// This node, or the one asked, is shutting down. The call has not run.
    #[error("node `{node}` is shutting down")]
    ShuttingDown {
        /// Which node.
        node: String,
    },
}

impl Error {
    /// A short name of what went wrong, the same for all errors of one variant: for metrics and logs.
    ///
    /// ```
    /// use rref::{Error, Gone};
    /// assert_eq!(Error::Gone(Gone::Stopped).kind(), "gone");
    /// ```
    pub fn kind(&self) -> &'static str {
        match self {
            Error::NotOwner { .. } => "not_owner",
            Error::NotSent { .. } => "not_sent",
            Error::Timeout(_) => "timeout",
            Error::OutcomeUnknown { .. } => "outcome_unknown",
            Error::Remote { .. } => "remote",
            Error::ObjectDied { .. } => "object_died",
            Error::Gone(_) => "gone",
            Error::CreateFailed(_) => "create_failed",
            Error::OwnerDied { .. } => "owner_died",
            Error::Broken(_) => "broken",
            Error::Unreachable { .. } => "unreachable",
            Error::UnknownPeer { .. } => "unknown_peer",
            Error::NotRegistered { .. } => "not_registered",
            Error::UnknownName { .. } => "unknown_name",
            Error::WrongType { .. } => "wrong_type",
            Error::NameTaken { .. } => "name_taken",
            Error::AddressInUse { .. } => "address_in_use",
            Error::Config(_) => "config",
            Error::Launch { .. } => "launch",
            Error::Encode(_) => "encode",
            Error::Decode(_) => "decode",
            Error::SchemaMismatch { .. } => "schema_mismatch",
            Error::TooLarge { .. } => "too_large",
            Error::Overloaded { .. } => "overloaded",
            Error::Denied { .. } => "denied",
            Error::WouldBlockRuntime => "would_block_runtime",
            Error::NotInMessage => "not_in_message",
            Error::ShuttingDown { .. } => "shutting_down",
        }
    }
}

/// How a function or handler failed to give a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RemoteKind {
    /// It panicked; the object, if any, lives on.
    Panic,
    /// The handler dropped its reply.
    NoReply,
}

impl std::fmt::Display for RemoteKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RemoteKind::Panic => "panicked",
            RemoteKind::NoReply => "gave no reply",
        })
    }
}

/// Why an object does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Gone {
    /// Its last holder let go of it.
    Freed,
    /// Its creation was lost with the connection that carried it.
    NeverCreated,
    /// Its creator crashed before asking for it.
    CreatorDied,
    /// This node was silent for longer than its lease, and the object was freed.
    LeaseExpired,
    /// Somebody stopped it.
    Stopped,
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Gone::Freed => "freed, since nobody held it",
            Gone::NeverCreated => "its creation was lost before it reached the owner",
            Gone::CreatorDied => "its creator died before asking for it",
            Gone::LeaseExpired => "this node was silent for longer than its lease",
            Gone::Stopped => "it was stopped",
        })
    }
}

impl From<GoneReason> for Error {
    fn from(reason: GoneReason) -> Error {
        match reason {
            GoneReason::Freed => Error::Gone(Gone::Freed),
            GoneReason::NeverCreated => Error::Gone(Gone::NeverCreated),
            GoneReason::CreatorDied => Error::Gone(Gone::CreatorDied),
            GoneReason::LeaseExpired => Error::Gone(Gone::LeaseExpired),
            GoneReason::Stopped => Error::Gone(Gone::Stopped),
            GoneReason::CreateFailed(cause) => Error::CreateFailed(cause),
            GoneReason::Died(reason) => Error::ObjectDied { reason },
            GoneReason::Unreachable => {
                Error::Broken("its owner was out of reach for longer than any lease".into())
            }
        }
    }
}

/// An error as an owner reports it: the variants that arise there, in a form that stays stable on
/// the wire whatever becomes of [`Error`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum WireError {
    Remote { kind: RemoteKind, message: String, function: String },
    ObjectDied(String),
    Gone(Gone),
    CreateFailed(String),
    NotRegistered { what: String, call: String },
    WrongType { expected: String, found: String },
    Decode(String),
    Encode(String),
    Schema { path: String, theirs: u128 },
    TooLarge { what: String, size: u64, limit: u64 },
    Overloaded(String),
    Denied(String),
    ShuttingDown,
    Other(String),
    Broken(String),
}

/// Longest error text that travels, in bytes.
const TEXT_LIMIT: usize = 16 * 1024;

impl WireError {
    /// What the caller is told of `error`.
    pub(crate) fn of(error: Error) -> WireError {
        match error {
            Error::Remote { kind, message, function, .. } => {
                WireError::Remote { kind, message: cut(message), function }
            }
            Error::ObjectDied { reason } => WireError::ObjectDied(cut(reason)),
            Error::Gone(gone) => WireError::Gone(gone),
            Error::CreateFailed(cause) => WireError::CreateFailed(cut(cause)),
            Error::NotRegistered { what, call, .. } => WireError::NotRegistered { what, call },
            Error::WrongType { expected, found } => WireError::WrongType { expected, found },
            Error::Decode(text) => WireError::Decode(cut(text)),
            Error::Encode(text) => WireError::Encode(cut(text)),
            Error::SchemaMismatch { path, theirs, .. } => WireError::Schema { path, theirs },
            Error::TooLarge { what, size, limit } => WireError::TooLarge { what, size, limit },
            Error::Overloaded { reason, .. } => WireError::Overloaded(reason),
            Error::Denied { reason, .. } => WireError::Denied(reason),
            Error::ShuttingDown { .. } => WireError::ShuttingDown,
            Error::Broken(reason) => WireError::Broken(cut(reason)),
            other => WireError::Other(cut(other.to_string())),
        }
    }

    /// The caller's view: `node` is the owner, `ours` the caller's schema of the function.
    pub(crate) fn at(self, node: &str, ours: u128, trace_id: u128) -> Error {
        let node = node.to_string();
        match self {
            WireError::Remote { kind, message, function } => {
                Error::Remote { kind, message, node, function, trace_id }
            }
            WireError::ObjectDied(reason) => Error::ObjectDied { reason },
            WireError::Gone(gone) => Error::Gone(gone),
            WireError::CreateFailed(cause) => Error::CreateFailed(cause),
            WireError::NotRegistered { what, call } => Error::NotRegistered { what, node, call },
            WireError::WrongType { expected, found } => Error::WrongType { expected, found },
            WireError::Decode(text) => Error::Decode(text),
            WireError::Encode(text) => Error::Encode(text),
            WireError::Schema { path, theirs } => Error::SchemaMismatch { path, node, ours, theirs },
            WireError::TooLarge { what, size, limit } => Error::TooLarge { what, size, limit },
            WireError::Overloaded(reason) => Error::Overloaded { node, reason },
            WireError::Denied(reason) => Error::Denied { node, reason },
            WireError::ShuttingDown => Error::ShuttingDown { node },
            WireError::Broken(reason) => Error::Broken(reason),
            WireError::Other(message) => {
                Error::Remote { kind: RemoteKind::NoReply, message, node, function: String::new(), trace_id }
            }
        }
    }
}

/// Cuts `text` to the limit at a character boundary.
fn cut(mut text: String) -> String {
    if text.len() > TEXT_LIMIT {
        let mut end = TEXT_LIMIT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let text = "é".repeat(TEXT_LIMIT);
        let WireError::ObjectDied(cut) = WireError::of(Error::ObjectDied { reason: text }) else {
            panic!("another variant")
        };
        assert_eq!(cut.len(), TEXT_LIMIT);
        assert!(cut.chars().all(|c| c == 'é'));
    }

    #[test]
    fn an_error_keeps_its_kind_over_the_wire() {
        let error = Error::Gone(Gone::Freed);
        assert_eq!(WireError::of(error.clone()).at("w", 0, 0), error);
        let error = Error::CreateFailed("no \"disk\"\n".into());
        assert_eq!(WireError::of(error.clone()).at("w", 0, 0), error);
        // As when an answer is to hold a handle that was given up.
        let error = Error::Broken("out of reach".into());
        assert_eq!(WireError::of(error.clone()).at("w", 0, 0), error);
    }
}
