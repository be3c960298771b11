//! What makes the compiler name the message that is missing from a list.
//!
//! A type that takes one message only makes rustc infer that one before it looks at what is sent: the
//! error then is "mismatched types", without a word on the list. So every type seems to take two more,
//! which nobody sends and no node registers.

use super::Value;
use actix::{Context, Handler, Message};
use serde::{Deserialize, Serialize};

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
