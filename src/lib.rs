#![doc = include_str!("../README.md")]

mod cluster;
mod error;
#[cfg(feature = "launch")]
pub mod launch;
mod node;
mod object;
mod payload;
mod reference;
mod registry;
mod tensor;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod transport;

// The derive names this crate by its path, also in its own tests.
extern crate self as rref;

pub use cluster::{Peer, Rank};
pub use error::{Error, Gone, RemoteKind, Result};
#[cfg(feature = "metrics")]
pub use node::describe_metrics;
pub use node::{
    Builder, Event, HeldReport, Leak, Node, NodeEvent, NodeEvents, NodeReport, ObjectReport, PeerReport,
    ShutdownReport, Watch,
};
pub use object::{
    Accepts, Data, Handled, Hosted, LocalValue, Object, Outcome, RemoteMessage, Response, Returns, Snapshot,
    Value,
};
#[doc(hidden)]
pub use object::{Fetcher, hint};
pub use reference::{RRef, Request, Scope, Streaming, WeakRRef};
pub use registry::{Function, Messages, Method, Placement};
pub use rref_core::lease::LeaseSettings;
pub use rref_core::{NodeUid, ObjectId};
pub use rref_macros::Object;
pub use tensor::{DType, Element, Tensor};

/// What a program that uses rref needs: actix's own prelude, serde's derives and this crate's types.
///
/// Programs need `actix` and `serde` among their dependencies, since the derives name them.
pub mod prelude {
    pub use crate::{
        Accepts, Builder, Data, Error, Hosted, LocalValue, Node, Object, RRef, Rank, Request, Tensor, Value,
    };
    pub use actix::prelude::*;
    pub use serde::{Deserialize, Serialize};
}

/// The code in the book, which is compiled and run like any other example of the documentation.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../docs/src/introduction.md")]
    mod introduction {}
    #[doc = include_str!("../docs/src/model-parallel.md")]
    mod model_parallel {}
    #[doc = include_str!("../docs/src/service.md")]
    mod service {}
    #[doc = include_str!("../docs/src/testing.md")]
    mod testing {}
    #[doc = include_str!("../docs/src/simulation.md")]
    mod simulation {}
    #[doc = include_str!("../docs/src/how-a-call-travels.md")]
    mod how_a_call_travels {}
    #[doc = include_str!("../docs/src/protocol.md")]
    mod protocol {}
    #[doc = include_str!("../docs/src/how-we-know.md")]
    mod how_we_know {}
    #[doc = include_str!("../docs/src/errors.md")]
    mod errors {}
    #[doc = include_str!("../docs/src/from-actix.md")]
    mod from_actix {}
    #[doc = include_str!("../docs/src/from-torch.md")]
    mod from_torch {}
    #[doc = include_str!("../docs/src/upgrade.md")]
    mod upgrade {}
    #[doc = include_str!("../docs/src/conformance.md")]
    mod conformance {}
    #[doc = include_str!("../docs/src/configuration.md")]
    mod configuration {}
    #[doc = include_str!("../docs/src/debugging.md")]
    mod debugging {}
    #[doc = include_str!("../docs/src/why-actix.md")]
    mod why_actix {}
}
