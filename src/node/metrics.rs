//! A node's counters and gauges, for the recorder that the program has installed with the `metrics`
//! facade.
//!
//! Everything is counted anyway and handed over when the program asks: calls pay nothing for it. No
//! label names an object, a call or a peer: their number has no limit.

use super::{Node, NodeReport};
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

/// Tells the installed recorder what each metric of this crate means. Call it once, after the
/// recorder is installed.
pub fn describe_metrics() {
    describe_counter!("rref_calls_total", "Calls of this node that have ended, by outcome");
    describe_counter!("rref_handled_total", "Calls of other nodes that have been answered, by outcome");
    describe_counter!("rref_frames_sent_total", "Frames sent to other nodes");
    describe_counter!("rref_frames_received_total", "Frames received from other nodes");
    describe_counter!("rref_bytes_sent_total", Unit::Bytes, "Bytes written to connections");
    describe_counter!("rref_bytes_received_total", Unit::Bytes, "Bytes read from connections");
    describe_counter!(
        "rref_divergences_total",
        "How often two nodes' tables of who holds what were found to differ"
    );
    describe_gauge!("rref_peers_connected", "Other nodes that are connected");
    describe_gauge!("rref_calls_waiting", "Calls of this node that wait for their reply");
    describe_gauge!("rref_calls_running", "Calls of other nodes that are queued or running here");
    describe_gauge!("rref_live_objects", "Objects that live here");
    describe_gauge!("rref_holders", "Nodes that hold an object that lives here, summed over the objects");
    describe_gauge!("rref_held", "Objects of other nodes that are held here");
    describe_gauge!("rref_queue_depth", "Calls that wait in the queues of objects that live here");
    describe_gauge!("rref_send_queue", "Messages that wait for their place on a connection");
    describe_gauge!("rref_credit_waits", "Messages that wait until their receiver has room for more calls");
}

impl Node {
    /// Hands the node's counters and gauges, as they are now, to the recorder that is installed with
    /// the `metrics` crate.
    ///
    /// Call it before each scrape, or every few seconds. The values come from [`Node::report`], so it
    /// takes a moment on a node with very many objects. Every metric has the label `node`, with the
    /// node's name. The names are those of [`describe_metrics`], and the book lists them.
    ///
    /// ```no_run
    /// # fn example(node: rref::Node) {
    /// rref::describe_metrics();
    /// // In a task of its own:
    /// # async fn task(node: rref::Node) {
    /// loop {
    ///     node.publish_metrics();
    ///     tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    /// }
    /// # }
    /// # }
    /// ```
    pub fn publish_metrics(&self) {
        publish(&self.report());
    }
}

fn publish(report: &NodeReport) {
    let node = || report.node.clone();
    let count = |name: &'static str, value: u64| counter!(name, "node" => node()).absolute(value);
    // A gauge is a float by the facade's definition; these numbers are far below its precision.
    let show = |name: &'static str, value: usize| gauge!(name, "node" => node()).set(value as f64);

    for (outcome, calls) in &report.outcomes {
        counter!("rref_calls_total", "node" => node(), "outcome" => *outcome).absolute(*calls);
    }
    for (outcome, calls) in &report.handled {
        counter!("rref_handled_total", "node" => node(), "outcome" => *outcome).absolute(*calls);
    }
    let peers = &report.peers;
    count("rref_frames_sent_total", peers.iter().map(|peer| peer.frames_sent).sum());
    count("rref_frames_received_total", peers.iter().map(|peer| peer.frames_received).sum());
    count("rref_bytes_sent_total", report.bytes_sent);
    count("rref_bytes_received_total", report.bytes_received);
    count("rref_divergences_total", report.divergences);
    show("rref_peers_connected", peers.iter().filter(|peer| peer.link == "connected").count());
    show("rref_calls_waiting", report.calls);
    show("rref_calls_running", peers.iter().map(|peer| peer.running).sum());
    show("rref_live_objects", report.objects.iter().filter(|object| object.state == "live").count());
    show("rref_holders", report.objects.iter().map(|object| object.holders.len()).sum());
    show("rref_held", report.held.iter().filter(|held| held.broken.is_none()).count());
    show("rref_queue_depth", report.objects.iter().map(|object| object.queued).sum());
    show("rref_send_queue", peers.iter().map(|peer| peer.queued).sum());
    show("rref_credit_waits", peers.iter().map(|peer| peer.waiting_for_credit).sum());
}
