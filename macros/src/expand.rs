//! The impls. Paths are absolute, and what can fail to compile because of a message carries its span.

use crate::attribute::{Attribute, Name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{DeriveInput, spanned::Spanned};

pub(crate) fn impls(input: &DeriveInput, attribute: &Attribute) -> TokenStream {
    let object = object(input, attribute);
    let accepts = accepts(input, attribute);
    let hosted = match attribute.name {
        Name::Path | Name::Given(_) => hosted(input, attribute),
        Name::Remote(_) => TokenStream::new(),
    };
    let one_of_two = one_of_two(input);
    quote!(#one_of_two #object #accepts #hosted)
}

/// Says what is wrong with an actor that is data too, better than the conflict of impls that it is.
fn one_of_two(input: &DeriveInput) -> TokenStream {
    if !input.generics.params.is_empty() {
        return TokenStream::new();
    }
    let ident = &input.ident;
    let advice = format!(
        "`{ident}` has serde's derives, so it is plain data, and an actor as well: it must be one of the two. \
         Take `Serialize` and `Deserialize` off the actor, and give what travels a type of its own \
         (`#[object(.., snapshot)]` and `impl Snapshot for {ident}`)"
    );
    let assertion = quote_spanned! {ident.span()=>
        ::core::assert!(!::rref::hint::Probe::<#ident>::IS_DATA, #advice);
    };
    quote! {
        const _: () = {
            #[allow(unused_imports)] // unused when the assertion fails, and then not what matters
            use ::rref::hint::IsNoData as _;
            #assertion
        };
    }
}

fn object(input: &DeriveInput, attribute: &Attribute) -> TokenStream {
    let name = match &attribute.name {
        Name::Path => quote!(::core::any::type_name::<Self>()),
        Name::Given(name) | Name::Remote(name) => quote!(#name),
    };
    let ident = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #generics ::rref::Object for #ident #arguments #bounds {
            fn wire_name() -> ::std::borrow::Cow<'static, str> {
                ::std::borrow::Cow::Borrowed(#name)
            }
        }
    }
}

fn accepts(input: &DeriveInput, attribute: &Attribute) -> TokenStream {
    let ident = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    let impls = attribute.messages.iter().map(|message| {
        quote_spanned! {message.span()=>
            #[automatically_derived]
            impl #generics ::rref::Accepts<#message> for #ident #arguments #bounds {}
        }
    });
    // So that the compiler never takes the only message of a list for the one that is meant.
    let hints = [quote!(NoMessage), quote!(NoOther)].into_iter().map(|hint| {
        quote! {
            #[automatically_derived]
            impl #generics ::rref::Accepts<::rref::hint::#hint> for #ident #arguments #bounds {}
        }
    });
    quote!(#(#impls)* #(#hints)*)
}

fn hosted(input: &DeriveInput, attribute: &Attribute) -> TokenStream {
    let ident = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    // Names of our own, since a message may come from a macro that sees none of ours.
    let list = Ident::new("list", Span::mixed_site());
    let entry = Ident::new("entry", Span::mixed_site());
    // In two steps, because errors of a call would point at its argument and not at the message.
    let entries = attribute.messages.iter().map(|message| {
        let path = quote_spanned!(message.span()=> ::rref::Messages::<'_, Self>::message::<#message>);
        quote! {
            let #entry = #path;
            #entry(#list);
        }
    });
    let fetcher = attribute.snapshot.then(|| {
        quote! {
            fn fetcher() -> ::core::option::Option<::rref::Fetcher<Self>> {
                ::core::option::Option::Some(::rref::Fetcher::snapshot())
            }
        }
    });
    quote! {
        #[automatically_derived]
        impl #generics ::rref::Hosted for #ident #arguments #bounds {
            type Host = Self;

            fn into_host(self) -> Self {
                self
            }

            fn get(host: &Self) -> &Self {
                host
            }

            fn messages(#list: &mut ::rref::Messages<'_, Self>) {
                let _ = &#list;
                #(#entries)*
            }

            #fetcher
        }
    }
}
