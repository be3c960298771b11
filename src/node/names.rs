//! Names of what this node asks of others: resolved and traced once, then known by a small number.

use crate::error::{Error, Result};
use rref_core::wire::{Limits, NameKind};
use std::any::TypeId;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// A function, method, message or type as the wire names it.
pub(crate) struct NameRef {
    /// Dense, in the order of first use on this node.
    pub(crate) id: usize,
    pub(crate) kind: NameKind,
    pub(crate) path: Cow<'static, str>,
    /// Identity of the types, as this program has them.
    pub(crate) schema: u128,
}

/// All names this node has used.
#[derive(Default)]
pub(crate) struct Names {
    known: RwLock<HashMap<(NameKind, TypeId), Arc<NameRef>>>,
}

impl Names {
    /// The name of what `K` identifies.
    ///
    /// # Errors
    /// [`Error::Encode`] if its types cannot travel, [`Error::TooLarge`] if its name cannot.
    pub(crate) fn get<K: 'static>(
        &self,
        kind: NameKind,
        path: impl FnOnce() -> Cow<'static, str>,
        schema: impl FnOnce() -> Result<u128, String>,
    ) -> Result<Arc<NameRef>> {
        let key = (kind, TypeId::of::<K>());
        if let Some(name) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(name.clone());
        }
        // Outside the lock: tracing a schema runs the type's own Deserialize.
        let path = path();
        let limit = Limits::DEFAULT.path;
        if path.len() > limit {
            let what = format!("the name `{}..`", path.chars().take(80).collect::<String>());
            return Err(Error::TooLarge { what, size: path.len() as u64, limit: limit as u64 });
        }
        let schema = schema().map_err(|reason| Error::Encode(format!("`{path}`: {reason}")))?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let id = known.len();
        Ok(known.entry(key).or_insert_with(|| Arc::new(NameRef { id, kind, path, schema })).clone())
    }
}
