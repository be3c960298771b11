//! What makes the compiler name the message that is missing from a list.
//!
//! A type that takes one message only makes rustc infer that one before it looks at what is sent: the
//! error then is "mismatched types", without a word on the list. So every type seems to take two more,
//! which nobody sends and no node registers.
//!
//! And what makes it say that an actor must not be data too, where it would speak of impls only.

use super::{Data, Value};
use actix::{Context, Handler, Message};
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

/// No message.
#[derive(Serialize, Deserialize)]
pub enum NoMessage {}

/// No other message either.
#[derive(Serialize, Deserialize)]
pub enum NoOther {}

impl Message for NoMessage {
    type Result = ();
}

impl Message for NoOther {
    type Result = ();
}

impl<T: Send + Sync + 'static> Handler<NoMessage> for Value<T> {
    type Result = ();

    fn handle(&mut self, message: NoMessage, _: &mut Context<Self>) {
        match message {}
    }
}

impl<T: Send + Sync + 'static> Handler<NoOther> for Value<T> {
    type Result = ();

    fn handle(&mut self, message: NoOther, _: &mut Context<Self>) {
        match message {}
    }
}

/// Asks of an actor whether it is data as well: an inherent constant goes before one of a trait, and is
/// there for data only.
pub struct Probe<T>(PhantomData<T>);

/// The answer for what is no data.
pub trait IsNoData {
    /// Whether it is data.
    const IS_DATA: bool = false;
}

impl<T> IsNoData for Probe<T> {}

impl<T: Data> Probe<T> {
    /// Whether it is data.
    pub const IS_DATA: bool = true;
}
