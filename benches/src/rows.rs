//! The rows: one operation each, done our way and the baseline's.

use crate::client::Client;
use crate::measure::{Compared, Effort, alone, compare, p50, seconds};
use crate::report::Row;
use crate::server::NAME;
use crate::work::{Add, Counter, counter, number, tensor};
use actix::Actor;
use anyhow::bail;
use rref::{RRef, Request, Tensor};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

/// A mebibyte.
pub const MIB: usize = 1 << 20;

/// All names, in the order of the table.
pub const NAMES: [&str; 8] = [
    "small call",
    "create fetch drop",
    "64 in flight",
    "1024 in flight",
    "fetch 1 MiB",
    "fetch 64 MiB",
    "local send",
    "clone drop",
];

/// The rows asked for; all if none is named.
pub fn choose(names: &[String]) -> anyhow::Result<Vec<&'static str>> {
    if let Some(unknown) = names.iter().find(|name| !NAMES.contains(&name.trim())) {
        bail!("there is no row `{unknown}`; there are {}", NAMES.join(", "));
    }
    let wanted = |row: &&str| names.is_empty() || names.iter().any(|name| name.trim() == *row);
    Ok(NAMES.into_iter().filter(wanted).collect())
}

/// Measures one row.
pub async fn run(name: &'static str, client: &mut Client, effort: Effort) -> anyhow::Result<Row> {
    match name {
        "small call" => small_call(name, client, effort).await,
        "create fetch drop" => create_fetch_drop(name, client, effort).await,
        "64 in flight" => in_flight(name, 64, Some("tarpc"), 2.0, client, effort).await,
        "1024 in flight" => in_flight(name, 1024, None, 1e6, client, effort).await,
        "fetch 1 MiB" => fetch_1(name, client, effort).await,
        "fetch 64 MiB" => fetch_64(name, client, effort).await,
        "local send" => local_send(name, client, effort).await,
        "clone drop" => clone_drop(name, client, effort).await,
        other => bail!("there is no row `{other}`"),
    }
}

/// Whether a lower ratio is the better one.
enum Better {
    Lower,
    Higher,
}

fn against(
    row: &'static str,
    baseline_name: &'static str,
    unit: &'static str,
    compared: &Compared,
    bound: f64,
    better: &Better,
) -> Row {
    let holds = match better {
        Better::Lower => compared.ratio <= bound,
        Better::Higher => compared.ratio >= bound,
    };
    Row {
        row,
        ours: compared.ours,
        baseline: Some(compared.baseline),
        baseline_name: Some(baseline_name),
        unit,
        ratio: Some(compared.ratio),
        bound,
        holds: Some(holds),
    }
}

const RAW: &str = "raw tokio TCP";

async fn small_call(row: &'static str, client: &mut Client, effort: Effort) -> anyhow::Result<Row> {
    let Client { echo, node, .. } = client;
    let object: RRef<Counter> = node.remote(NAME, counter, (0,))?;
    let compared = compare(
        effort,
        async || p50(effort.calls, async || Ok(echo.call().await?)).await,
        async || p50(effort.calls, async || Ok(object.send(Add(1)).await.map(|_| ())?)).await,
    )
    .await?;
    Ok(against(row, RAW, "us", &compared, 1.10, &Better::Lower))
}

async fn create_fetch_drop(row: &'static str, client: &mut Client, effort: Effort) -> anyhow::Result<Row> {
    let Client { echo, node, .. } = client;
    let ours = async || {
        let object: RRef<i64> = node.remote(NAME, number, (7,))?;
        if object.to_here().await? != 7 {
            bail!("another value came back");
        }
        Ok(())
    };
    let compared = compare(
        effort,
        async || p50(effort.calls, async || Ok(echo.call().await?)).await,
        async || p50(effort.calls, ours).await,
    )
    .await?;
    Ok(against(row, RAW, "us", &compared, 1.25, &Better::Lower))
}

/// Calls per second with `window` of them under way at any time.
///
/// The bound of a row without a peer is a number of the reference machine and is not judged.
async fn in_flight(
    row: &'static str,
    window: usize,
    peer: Option<&'static str>,
    bound: f64,
    client: &mut Client,
    effort: Effort,
) -> anyhow::Result<Row> {
    let object: RRef<Counter> = client.node.remote(NAME, counter, (0,))?;
    let calls = effort.calls * 50;
    let ours = alone(effort, async || {
        let took = seconds(async || {
            let mut waiting: VecDeque<Request<i64>> = (0..window).map(|_| object.send(Add(1))).collect();
            for _ in 0..calls - window {
                if let Some(oldest) = waiting.pop_front() {
                    oldest.await?;
                }
                waiting.push_back(object.send(Add(1)));
            }
            for request in waiting {
                request.await?;
            }
            Ok(())
        });
        Ok(calls as f64 / took.await?)
    })
    .await?;
    Ok(Row {
        row,
        ours,
        baseline: None,
        baseline_name: peer,
        unit: "calls/s",
        ratio: None,
        bound,
        holds: None,
    })
}

/// GB/s of raw TCP and of `to_here`, in that order, for a tensor of `bytes`.
async fn fetch(bytes: usize, times: usize, client: &mut Client, effort: Effort) -> anyhow::Result<Compared> {
    let Client { source, node, .. } = client;
    let object: RRef<Tensor<f32>> = node.remote(NAME, tensor, (bytes as u64,))?;
    object.ready().await?;
    let rate = |took: f64| (bytes * times) as f64 / took / 1e9;
    let raw = async || {
        let took = seconds(async || {
            for _ in 0..times {
                source.fetch(bytes).await?;
            }
            Ok(())
        });
        Ok(rate(took.await?))
    };
    let ours = async || {
        let took = seconds(async || {
            for _ in 0..times {
                let here = object.to_here().await?;
                if here.len() * size_of::<f32>() != bytes {
                    bail!("another tensor came back");
                }
            }
            Ok(())
        });
        Ok(rate(took.await?))
    };
    compare(effort, raw, ours).await
}

/// Its peer is torch, which is not here; raw TCP is told on the side.
async fn fetch_1(row: &'static str, client: &mut Client, effort: Effort) -> anyhow::Result<Row> {
    let compared = fetch(MIB, (effort.calls / 20).max(1), client, effort).await?;
    eprintln!("{row}: {RAW} one way {:.2} GB/s", compared.baseline);
    Ok(Row {
        row,
        ours: compared.ours,
        baseline: None,
        baseline_name: Some("torch"),
        unit: "GB/s",
        ratio: None,
        bound: 1.0,
        holds: None,
    })
}

async fn fetch_64(row: &'static str, client: &mut Client, effort: Effort) -> anyhow::Result<Row> {
    let compared = fetch(64 * MIB, (effort.calls / 400).max(1), client, effort).await?;
    Ok(against(row, RAW, "GB/s", &compared, 0.9, &Better::Higher))
}

/// Nanoseconds of one of `count` repetitions.
fn nanos_each(start: Instant, count: usize) -> f64 {
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

async fn local_send(row: &'static str, client: &mut Client, effort: Effort) -> anyhow::Result<Row> {
    let count = effort.calls * 20;
    let address = Counter(0).start();
    let object = client.node.host(Counter(0))?;
    let compared = compare(
        effort,
        async || {
            let start = Instant::now();
            for _ in 0..count {
                address.send(Add(1)).await?;
            }
            Ok(nanos_each(start, count))
        },
        async || {
            let start = Instant::now();
            for _ in 0..count {
                object.send(Add(1)).await?;
            }
            Ok(nanos_each(start, count))
        },
    )
    .await?;
    Ok(against(row, "Addr::send", "ns", &compared, 1.3, &Better::Lower))
}

async fn clone_drop(row: &'static str, client: &mut Client, effort: Effort) -> anyhow::Result<Row> {
    let count = effort.calls * 500;
    let object: RRef<Counter> = client.node.remote(NAME, counter, (0,))?;
    let ours = alone(effort, async || {
        let start = Instant::now();
        for _ in 0..count {
            drop(black_box(black_box(&object).clone()));
        }
        Ok(nanos_each(start, count))
    })
    .await?;
    let holds = Some(ours <= 25.0);
    Ok(Row { row, ours, baseline: None, baseline_name: None, unit: "ns", ratio: None, bound: 25.0, holds })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_rows_are_named() {
        assert_eq!(choose(&[]).unwrap().len(), NAMES.len());
        assert_eq!(
            choose(&["local send".into(), "small call".into()]).unwrap(),
            ["small call", "local send"]
        );
        assert!(choose(&["smal call".into()]).unwrap_err().to_string().contains("smal call"));
    }
}
