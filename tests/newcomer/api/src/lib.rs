//! A shelf of texts, as its users see it.

use rref::prelude::*;

/// Stores a text; answers with the one that was there before.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Option<String>")]
pub struct Put(pub String, pub String);

/// Asks for a text.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Option<String>")]
pub struct Get(pub String);

/// The shelf: what may be sent to it. The actor itself is the server's affair.
#[derive(Object)]
#[object(remote = "tutorial.Shelf", messages(Put, Get))]
pub struct ShelfApi;
