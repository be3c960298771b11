//! An own actor under a partition: the test that the book's chapter on testing begins with.

use rref::prelude::*;
use rref::testkit::{TestCluster, ms, secs};

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "u32")]
struct Book(u32);

/// Sells seats, and no seat twice.
#[derive(Object)]
#[object(messages(Book))]
struct Theatre(u32);

impl Actor for Theatre {
    type Context = Context<Self>;
}

impl Handler<Book> for Theatre {
    type Result = u32;

    fn handle(&mut self, Book(wanted): Book, _: &mut Self::Context) -> u32 {
        let sold = wanted.min(self.0);
        self.0 -= sold;
        sold
    }
}

fn theatre(seats: u32) -> Theatre {
    Theatre(seats)
}

#[test]
fn a_booking_that_was_not_answered_may_have_been_made() {
    let node = |name: &str| Node::builder(name).register::<Theatre>().function(theatre);
    TestCluster::builder(node).nodes(2).latency(ms(1)..ms(20)).seeds(0..20).run(async |cluster| {
        let theatre = cluster.node("n1").remote("n2", theatre, (10,))?;
        assert_eq!(theatre.send(Book(4)).await?, 4);
        cluster.partition(["n2"]);
        let unanswered = theatre.send(Book(4)).timeout(secs(5)).await;
        assert_eq!(unanswered, Err(Error::Timeout(secs(5))));
        cluster.heal();
        assert_eq!(theatre.send(Book(4)).await?, 2, "the unanswered booking has taken four seats");
        Ok(())
    });
}
