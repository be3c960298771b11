//! `#[object(...)]`, read and checked. Every error says what to write instead.

use proc_macro2::Span;
use quote::ToTokens;
use syn::{
    DeriveInput, Error, LitStr, Result, Token, Type, meta::ParseNestedMeta, parenthesized,
    punctuated::Punctuated, spanned::Spanned,
};

const KEYS: &str =
    "expected `messages(Add, Get)`, `name = \"kv.Shard\"`, `remote = \"kv.Shard\"` or `snapshot`";
const MESSAGES: &str = "name the messages that other nodes may send: `#[object(messages(Add, Get))]`, or \
                        `#[object(messages())]` for none";

/// What the user wrote.
pub(crate) struct Attribute {
    pub(crate) name: Name,
    pub(crate) messages: Vec<Type>,
    /// Whether the actor can be fetched.
    pub(crate) snapshot: bool,
}

/// How the type is called on the wire.
pub(crate) enum Name {
    /// By its path.
    Path,
    /// By this name.
    Given(LitStr),
    /// By the name of the actor that it stands for.
    Remote(LitStr),
}

impl Attribute {
    /// The attributes of `input` taken together.
    pub(crate) fn of(input: &DeriveInput) -> Result<Attribute> {
        let mut keys = Keys::default();
        let mut missing = true;
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("object")) {
            missing = false;
            attribute.parse_nested_meta(|meta| keys.read(&meta))?;
        }
        if missing {
            let text = format!("{MESSAGES}\n(plain data needs no derive of rref: serde's are enough)");
            return Err(Error::new(input.ident.span(), text));
        }
        keys.check(input.ident.span())
    }
}

#[derive(Default)]
struct Keys {
    name: Option<LitStr>,
    remote: Option<LitStr>,
    messages: Option<Vec<Type>>,
    snapshot: Option<Span>,
}

impl Keys {
    fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("messages") {
            if !meta.input.peek(syn::token::Paren) {
                return Err(meta.error("expected a list in parentheses: `messages(Add, Get)`"));
            }
            let list;
            parenthesized!(list in meta.input);
            let listed = Punctuated::<Type, Token![,]>::parse_terminated(&list)?;
            return self.list(listed);
        }
        if meta.path.is_ident("snapshot") {
            self.snapshot = Some(meta.path.span());
            return Ok(());
        }
        let (slot, key) = if meta.path.is_ident("name") {
            (&mut self.name, "name")
        } else if meta.path.is_ident("remote") {
            (&mut self.remote, "remote")
        } else {
            return Err(meta.error(KEYS));
        };
        if !meta.input.peek(Token![=]) {
            return Err(meta.error(format!("expected a name on the wire: `{key} = \"kv.Shard\"`")));
        }
        let value: LitStr = meta.value()?.parse()?;
        if value.value().is_empty() {
            return Err(Error::new(value.span(), "a name on the wire cannot be empty"));
        }
        if slot.replace(value).is_some() {
            return Err(meta.error(format!("`{key}` is there twice")));
        }
        Ok(())
    }

    fn list(&mut self, listed: Punctuated<Type, Token![,]>) -> Result<()> {
        let messages = self.messages.get_or_insert_default();
        for message in listed {
            let text = message.to_token_stream().to_string();
            if messages.iter().any(|other| other.to_token_stream().to_string() == text) {
                return Err(Error::new_spanned(message, format!("`{text}` is listed twice")));
            }
            messages.push(message);
        }
        Ok(())
    }

    fn check(self, place: Span) -> Result<Attribute> {
        let name = match (self.name, self.remote) {
            (None, None) => Name::Path,
            (Some(name), None) => Name::Given(name),
            (None, Some(remote)) => Name::Remote(remote),
            (Some(_), Some(remote)) => {
                let text = "`remote` makes an interface to an actor elsewhere, `name` names an actor that lives \
                            here: keep one of the two";
                return Err(Error::new(remote.span(), text));
            }
        };
        if let (Name::Remote(_), Some(span)) = (&name, self.snapshot) {
            let text = "an interface has no snapshot: the actor it stands for offers it";
            return Err(Error::new(span, text));
        }
        let messages = self.messages.ok_or_else(|| Error::new(place, MESSAGES))?;
        Ok(Attribute { name, messages, snapshot: self.snapshot.is_some() })
    }
}
