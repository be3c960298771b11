//! A stock of many objects, and a hoard that holds many references to each: a million in all.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test that fails may panic; not every test binary uses all of it"
)]

use rref::prelude::*;

/// What the stock and the hoard need at a node.
pub fn register(builder: Builder) -> Builder {
    let builder = builder.register::<Stock>().register::<Hoard>();
    builder.function(stock).function(hoard).function(held_here).function(holders_here)
}

/// What an error inside of a function looks like to its caller.
pub type Told = String;

pub fn told(error: Error) -> Told {
    error.to_string()
}

pub fn current() -> Result<Node, Told> {
    Node::current().ok_or_else(|| "there is no current node".to_string())
}

/// Foreign objects that are held here, and handles of them.
pub fn held_here() -> Result<(usize, u64), Told> {
    let held = current()?.report().held;
    Ok((held.len(), held.iter().map(|held| held.handles).sum()))
}

/// The holders of each object that lives here.
pub fn holders_here() -> Result<Vec<Vec<String>>, Told> {
    Ok(current()?.report().objects.into_iter().map(|object| object.holders).collect())
}

pub const OBJECTS: usize = 65_536;
/// Handles of each: 2^20 in all.
pub const COPIES: usize = 16;
/// References that travel in one message.
const PAGE: usize = 256;

/// Many numbers.
#[derive(Object)]
#[object(messages(Page, Forget))]
pub struct Stock(Vec<RRef<u64>>);

impl Actor for Stock {
    type Context = Context<Self>;
}

pub async fn stock() -> Result<Stock, Told> {
    let node = current()?;
    let numbers: Vec<_> =
        (0..OBJECTS as u64).map(|n| node.host(n)).collect::<Result<_, _>>().map_err(told)?;
    // One that is still being made is not freed before it is there.
    for number in &numbers {
        number.ready().await.map_err(told)?;
    }
    Ok(Stock(numbers))
}

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Vec<RRef<u64>>")]
pub struct Page(usize);

impl Handler<Page> for Stock {
    type Result = Vec<RRef<u64>>;

    fn handle(&mut self, Page(page): Page, _: &mut Self::Context) -> Self::Result {
        self.0.chunks(PAGE).nth(page).unwrap_or_default().to_vec()
    }
}

/// Lets go of all numbers, which live on only where others hold them.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct Forget;

impl Handler<Forget> for Stock {
    type Result = ();

    fn handle(&mut self, _: Forget, _: &mut Self::Context) {
        self.0.clear();
    }
}

/// Handles of all numbers, many times over. Each has been sent, and is counted, by itself.
#[derive(Object)]
#[object(messages(LetGo))]
pub struct Hoard(Vec<RRef<u64>>);

impl Actor for Hoard {
    type Context = Context<Self>;
}

pub async fn hoard(stock: RRef<Stock>) -> Result<Hoard, Told> {
    let mut handles = Vec::with_capacity(OBJECTS * COPIES);
    for _ in 0..COPIES {
        let pages: Vec<_> = (0..OBJECTS / PAGE).map(|page| stock.send(Page(page))).collect();
        for page in pages {
            handles.extend(page.await.map_err(told)?);
        }
    }
    Ok(Hoard(handles))
}

/// Drops all at once. Gives how many there were, how many frames that took, and how many objects the
/// owner then had.
#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Result<(usize, u64, usize), Told>")]
pub struct LetGo;

impl Handler<LetGo> for Hoard {
    type Result = ResponseFuture<Result<(usize, u64, usize), Told>>;

    fn handle(&mut self, _: LetGo, _: &mut Self::Context) -> Self::Result {
        let handles = std::mem::take(&mut self.0);
        Box::pin(async move {
            let node = current()?;
            let frames = || node.report().peers.iter().map(|peer| peer.frames_sent).sum::<u64>();
            let (count, before) = (handles.len(), frames());
            drop(handles);
            // Comes after all releases: their lane is in order.
            let left = node.call("worker1", holders_here, ()).await.map_err(told)??;
            Ok((count, frames() - before, left.len()))
        })
    }
}
