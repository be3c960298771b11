use rref::prelude::*;

#[derive(Object)]
struct Nothing;

#[derive(Object)]
#[object(name = "kv.Shard")]
struct NoList;

#[derive(Object)]
#[object(messages(Get, Get))]
struct Twice;

#[derive(Object)]
#[object(message(Get))]
struct Misspelt;

#[derive(Object)]
#[object(messages = "Get")]
struct NotAList;

#[derive(Object)]
#[object(name = "", messages())]
struct NoName;

#[derive(Object)]
#[object(name = "a", remote = "b", messages())]
struct Both;

#[derive(Object)]
#[object(remote = "b", messages(), snapshot)]
struct FetchedInterface;

fn main() {}
