//! A reference whose type is known by name only: what directories of references hold.

use super::RRef;
use super::handle::Handle;
use crate::error::{Error, Result};
use crate::object::Object;
use crate::payload;
use crate::registry::schema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// A reference of some type, with the name of that type.
#[derive(Clone)]
pub(crate) struct AnyRef {
    handle: Arc<Handle>,
    type_name: String,
}

impl AnyRef {
    pub(crate) fn of<T: Object>(rref: &RRef<T>) -> AnyRef {
        AnyRef { handle: rref.handle.clone(), type_name: T::wire_name().into_owned() }
    }

    pub(crate) fn new(handle: Arc<Handle>, type_name: String) -> AnyRef {
        AnyRef { handle, type_name }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// The reference, if it is one to a `T`.
    ///
    /// # Errors
    /// [`Error::WrongType`].
    pub(crate) fn typed<T: Object>(self) -> Result<RRef<T>> {
        let expected = T::wire_name();
        if expected != self.type_name {
            return Err(Error::WrongType { expected: expected.into_owned(), found: self.type_name });
        }
        Ok(RRef::new(self.handle))
    }
}

impl Serialize for AnyRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let index = payload::put_handle(&self.handle).map_err(serde::ser::Error::custom)?;
        (index, &self.type_name).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for AnyRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AnyRef, D::Error> {
        if schema::tracing() {
            schema::mark("AnyRef");
            return Ok(AnyRef { handle: Handle::unreal(), type_name: String::new() });
        }
        let (index, type_name) = <(u32, String)>::deserialize(deserializer)?;
        let handle = payload::take_handle(index).map_err(serde::de::Error::custom)?;
        Ok(AnyRef { handle, type_name })
    }
}
