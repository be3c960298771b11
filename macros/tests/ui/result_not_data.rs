use rref::prelude::*;
use std::time::Instant;

#[derive(Serialize, Deserialize, Message)]
#[rtype(result = "Instant")]
struct Started;

#[derive(Object)]
#[object(messages(Started))]
struct Job(Instant);

impl Actor for Job {
    type Context = Context<Self>;
}

impl Handler<Started> for Job {
    type Result = MessageResult<Started>;

    fn handle(&mut self, _: Started, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.0)
    }
}

fn visit(job: &RRef<Job>) {
    let _ = job.send(Started);
}

fn now() -> Instant {
    Instant::now()
}

fn main() {
    let _ = Node::builder("me").function(now);
}
