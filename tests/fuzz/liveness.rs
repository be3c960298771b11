//! After the last fault: whether the nodes' tables agree with each other and with what living nodes hold,
//! and whether everything that is held can be used.

use super::plan::Plan;
use super::program::{Chest, Item, Touch};
use super::weather::Weather;
use super::world::world;
use rref::prelude::*;
use rref::testkit::TestCluster;
use rref::{NodeReport, NodeUid, ObjectId};
use std::collections::{BTreeMap, BTreeSet};

/// How often a call is repeated that has not run or whose outcome is unknown: sessions may only now find
/// that they have to begin anew.
const TRIES: usize = 4;

/// Where tables differ from each other, or from what is held.
pub fn differences(cluster: &TestCluster, weather: &Weather) -> Vec<String> {
    weather.update();
    let reports: Vec<NodeReport> = cluster.nodes().iter().map(Node::report).collect();
    let living: BTreeSet<NodeUid> = reports.iter().map(|report| report.uid).collect();
    let mut holders: BTreeMap<ObjectId, Vec<&str>> = BTreeMap::new();
    for report in &reports {
        for held in report.held.iter().filter(|held| held.broken.is_none()) {
            holders.entry(held.id).or_default().push(&report.node);
        }
    }
    let mut found = Vec::new();
    let made = |id: ObjectId| world(|world| world.was_made(id));
    for report in &reports {
        let name = &report.node;
        let there: BTreeSet<ObjectId> = report.objects.iter().map(|object| object.id).collect();
        // What is kept on this node: by its programs, and in chests that live here.
        let (kept, boxed) = world(|world| {
            let bag = world.bag(name);
            let items = bag.items.iter().map(RRef::id);
            let kept: BTreeSet<ObjectId> = items.chain(bag.chests.iter().map(RRef::id)).collect();
            let chests = world.contents.iter().filter(|(chest, _)| there.contains(chest));
            let boxed: BTreeSet<ObjectId> = chests.flat_map(|(_, items)| items).copied().collect();
            (kept, boxed)
        });
        for object in report.objects.iter().filter(|object| made(object.id)) {
            let id = object.id;
            let listed = sorted(object.holders.iter().map(String::as_str));
            let holding = sorted(holders.get(&id).into_iter().flatten().copied());
            if listed != holding {
                found.push(format!("{id} is listed for {listed:?} and held by {holding:?}"));
            }
            if listed.is_empty() && object.local_handles == 0 && object.calls == 0 {
                found.push(format!("{id} is held by nobody, and not freed"));
            }
            if object.local_handles > 0 && !kept.contains(&id) && !boxed.contains(&id) {
                found.push(format!("`{name}` has handles to its own {id} and no reference"));
            }
        }
        for held in report.held.iter().filter(|held| held.broken.is_none()) {
            let id = held.id;
            if !held.pins.is_empty() {
                found.push(format!("{id} is pinned by `{name}` for {:?}", held.pins));
            }
            if !kept.contains(&id) && !boxed.contains(&id) {
                found.push(format!("`{name}` holds {id} and has no reference"));
            }
            if !living.contains(&id.owner) {
                found.push(format!("`{name}` holds {id}, whose owner is dead"));
            } else if made(id) && !reports.iter().any(|owner| lists(owner, id)) {
                found.push(format!("`{name}` holds {id}, which its owner does not have"));
            }
        }
        for id in kept.into_iter().filter(|id| made(*id) && living.contains(&id.owner)) {
            let held = holders.get(&id).is_some_and(|holders| holders.contains(&name.as_str()));
            let at_home = id.owner == report.uid && there.contains(&id);
            if !held && !at_home && !weather.excuses(report.uid, id, false) {
                found.push(format!("`{name}` has a reference to {id}, and its node does not hold it"));
            }
        }
    }
    found
}

fn lists(owner: &NodeReport, id: ObjectId) -> bool {
    owner.objects.iter().any(|object| object.id == id)
}

fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names
}

/// Uses everything that is held: it is there, or there is an excuse, and then the reference is dropped.
pub async fn touch_all(cluster: &TestCluster, weather: &Weather, plan: &Plan) {
    for node in cluster.nodes() {
        let name = node.name();
        let bag = world(|world| world.bags.remove(name)).unwrap_or_default();
        for chest in bag.chests {
            if touch_chest(&node, weather, plan, &chest).await {
                world(|world| world.bag(name).chests.push(chest));
            }
        }
        for item in bag.items {
            if touch(&node, weather, plan, &item, None).await {
                world(|world| world.bag(name).items.push(item));
            }
        }
    }
}

/// Whether an error is final: what is asked again gives the same.
fn is_final(error: &Error) -> bool {
    !matches!(error, Error::NotSent { .. } | Error::OutcomeUnknown { .. } | Error::Unreachable { .. })
}

async fn touch_chest(node: &Node, weather: &Weather, plan: &Plan, chest: &RRef<Chest>) -> bool {
    let mut items = chest.to_here().await;
    for _ in 1..TRIES {
        if items.as_ref().is_err_and(|error| !is_final(error)) {
            items = chest.to_here().await;
        }
    }
    match items {
        Ok(items) => {
            let owner = chest.id().owner;
            for item in items {
                touch(node, weather, plan, &item, Some(owner)).await;
            }
            true
        }
        Err(error) => {
            let contents = world(|world| world.contents.get(&chest.id()).cloned()).unwrap_or_default();
            // It is not made if something that was to be in it is gone; nor is it sent.
            let excused = |id: &ObjectId| is_excused(chest.id().owner, weather, *id, &error);
            if !is_excused(node.uid(), weather, chest.id(), &error) && !contents.iter().any(excused) {
                world(|world| {
                    world.violated(format!("`{}` holds {chest:?} and cannot use it: {error:?}", node.name()));
                });
            }
            false
        }
    }
}

/// Whether a reference works; `through` is who it was just got from.
async fn touch(
    node: &Node,
    weather: &Weather,
    plan: &Plan,
    item: &RRef<Item>,
    through: Option<NodeUid>,
) -> bool {
    plan.count(|done| done.calls += 1);
    let mut order = 0;
    let mut touched = Ok(0);
    for _ in 0..TRIES {
        order = plan.number();
        touched = item.send(Touch { from: plan.caller(node.name()), order }).await;
        if touched.as_ref().map_or_else(is_final, |_| true) {
            break;
        }
    }
    let (name, id) = (node.name(), item.id());
    let expected = world(|world| world.asked.get(&id).copied());
    match touched {
        Ok(number) if Some(number) != expected => {
            world(|world| world.violated(format!("`{name}` called {item:?}, and item {number} answered")));
            true
        }
        Ok(_) => {
            if !world(|world| world.was_run(order)) {
                world(|world| world.violated(format!("call {order} of `{name}` was answered and not run")));
            }
            true
        }
        Err(error) => {
            let holders = [Some(node.uid()), through];
            if !holders.into_iter().flatten().any(|holder| is_excused(holder, weather, id, &error)) {
                world(|world| {
                    world.violated(format!("`{name}` holds {item:?} and cannot use it: {error:?}"))
                });
            }
            false
        }
    }
}

/// Whether `holder` may find this instead of the object.
fn is_excused(holder: NodeUid, weather: &Weather, id: ObjectId, error: &Error) -> bool {
    weather.update();
    if !weather.is_alive(id.owner) {
        return !matches!(error, Error::Timeout(_) | Error::Remote { .. });
    }
    match error {
        Error::Gone(_) | Error::Broken(_) => weather.excuses(holder, id, false) || weather.may_be_lost(id),
        // A creation that brings back what is gone fails.
        Error::CreateFailed(_) => !world(|world| world.was_made(id)),
        _ => false,
    }
}
