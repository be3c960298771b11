//! The worker's side: finds out that this process is a worker, serves, and exits.
//!
//! Knows the environment, the pipe from the starter and the public interface of a node; must not
//! know how nodes talk.

use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::process;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::local::wrong_name;
use super::{
    ENV_MASTER_ADDR, ENV_MASTER_PORT, ENV_RANK, ENV_WORLD_SIZE, LISTEN, QUIT, Token, in_worker, name_of,
    token_from_hex,
};
use crate::{Builder, Error};

/// How long the node may take to shut down after `quit`; less than the starter waits before it
/// kills.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(4);
/// Longest line that is read from the pipe, in bytes.
const MAX_LINE: u64 = 256;
/// Exit code when the node could not be started or failed.
const EXIT_FAILED: i32 = 1;
/// Exit code when the environment or the pipe is not what a starter provides.
const EXIT_MALFORMED: i32 = 2;

/// Makes this process a worker if [`local`](super::local) started it; otherwise does nothing.
///
/// Call it at the top of `main`. In the starter it returns `Ok(())` at once. In a worker it never
/// returns: it starts the node, serves until the starter asks it to stop or is gone, and exits the
/// process. It may be called inside an async runtime too: the node runs on a thread of its own.
///
/// `node` must be the function that the starter gives to [`Local::start`](super::Local::start),
/// and must use the name that it is given.
///
/// ```no_run
/// use rref::{Builder, Error, Node, launch};
///
/// fn node(name: &str) -> Builder {
///     Node::builder(name)
/// }
///
/// fn main() -> Result<(), Error> {
///     launch::worker(node)?;
///     println!("only the starter prints this");
///     Ok(())
/// }
/// ```
///
/// # Exit codes of a worker
/// 0 after an orderly stop and when the starter is gone; 1 when the node could not be started,
/// with the reason on standard error; 2 when `RREF_LAUNCH` is set but the rest of what a starter
/// provides is missing or malformed, as when a process inherited the variable by accident.
///
/// # Errors
/// None at present: a worker that fails exits instead, since the code after this call is not for
/// workers.
pub fn worker(node: fn(&str) -> Builder) -> Result<(), Error> {
    if !in_worker() {
        return Ok(());
    }
    let place = match Place::from_env(|name| std::env::var(name).ok()) {
        Ok(place) => place,
        Err(error) => exit_with(&error, EXIT_MALFORMED),
    };
    let token = match read_token() {
        Ok(token) => token,
        Err(error) => exit_with(&error, EXIT_MALFORMED),
    };
    let (quit, told_to_quit) = oneshot::channel();
    let watch = thread::Builder::new().name("rref-launch-pipe".to_owned()).spawn(|| watch_pipe(quit));
    if let Err(error) = watch {
        exit_with(&format!("no thread to watch the starter: {error}"), EXIT_FAILED);
    }
    // On its own thread, because a runtime cannot be started inside another one and `main` may be
    // async. A panic in there ends the thread and is answered below.
    let served = thread::Builder::new()
        .name(place.name())
        .spawn(move || serve(&place, token, node, told_to_quit))
        .map(thread::JoinHandle::join);
    match served {
        Ok(Ok(Ok(()))) => process::exit(0),
        Ok(Ok(Err(error))) => exit_with(&format!("cannot serve: {error}"), EXIT_FAILED),
        Ok(Err(_)) => exit_with(&"the node's thread panicked", EXIT_FAILED),
        Err(error) => exit_with(&format!("no thread for the node: {error}"), EXIT_FAILED),
    }
}

/// Runs the node until it is told to quit, and shuts it down.
fn serve(
    place: &Place,
    token: Token,
    node: fn(&str) -> Builder,
    told_to_quit: oneshot::Receiver<()>,
) -> Result<(), Error> {
    actix::System::new().block_on(async {
        let name = place.name();
        let node = node(&name)
            .listen(LISTEN)
            .insecure()
            .token(token)
            .rank(place.rank, place.world_size)
            .join(place.driver.to_string())
            .start()
            .await?;
        if node.name() != name {
            return Err(wrong_name(&name, node.name()));
        }
        // An error here means that the watching thread is gone, and then so is the starter.
        let _ = told_to_quit.await;
        match tokio::time::timeout(SHUTDOWN_LIMIT, node.shutdown()).await {
            Ok(report) if report.leaked.is_empty() => {}
            Ok(report) => tracing::warn!(leaked = report.leaked.len(), "still held at shutdown"),
            Err(_) => tracing::warn!(limit = ?SHUTDOWN_LIMIT, "the node did not shut down in time"),
        }
        Ok(())
    })
}

/// Reads the pipe until the starter is gone, then ends the process. Runs no user code, so nothing
/// that an actor does can hold it up.
fn watch_pipe(quit: oneshot::Sender<()>) {
    let mut quit = Some(quit);
    loop {
        match read_line(&mut io::stdin().lock()) {
            Ok(Some(line)) if line == QUIT => {
                if let Some(quit) = quit.take() {
                    // Fails only when the node is down already, which is what was asked for.
                    let _ = quit.send(());
                }
            }
            // A starter sends nothing else; what it might mean is not ours to guess.
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => process::exit(0),
        }
    }
}

/// Reads the token, the first line on the pipe.
fn read_token() -> Result<Token, Error> {
    let stdin = io::stdin();
    let malformed = |what: &str| Error::Config(format!("standard input is not the starter's pipe: {what}"));
    if stdin.is_terminal() {
        return Err(malformed("it is a terminal"));
    }
    let line = read_line(&mut stdin.lock()).map_err(|error| malformed(&error.to_string()))?;
    let line = line.ok_or_else(|| malformed("it is at its end"))?;
    // The line itself is not shown: it may be a secret that is only damaged.
    token_from_hex(&line).ok_or_else(|| malformed("its first line is not a token"))
}

/// Reads one line without its end, at most [`MAX_LINE`] bytes of it; `None` at the end of input.
fn read_line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

/// Says on standard error why this worker ends, and ends it. Not with `eprintln!`, which panics
/// when the starter, at the other end, is gone.
fn exit_with(error: &dyn Display, code: i32) -> ! {
    let _ = writeln!(io::stderr(), "rref::launch::worker: {error}");
    process::exit(code)
}

/// Where this worker stands in the cluster, as its environment says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// 1 up to, and without, `world_size`.
    rank: u32,
    /// Number of nodes, the driver included.
    world_size: u32,
    /// Where the driver listens.
    driver: SocketAddr,
}

impl Place {
    /// Reads the variables through `var`.
    ///
    /// # Errors
    /// [`Error::Config`] when one is missing or not a value that a starter would set.
    fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let rank = parse(&var, ENV_RANK)?;
        let world_size = parse(&var, ENV_WORLD_SIZE)?;
        if rank == 0 || rank >= world_size {
            return Err(Error::Config(format!(
                "{ENV_RANK}={rank} is not the rank of a worker when {ENV_WORLD_SIZE}={world_size}"
            )));
        }
        let driver =
            SocketAddr::new(parse::<IpAddr>(&var, ENV_MASTER_ADDR)?, parse::<u16>(&var, ENV_MASTER_PORT)?);
        Ok(Place { rank, world_size, driver })
    }

    /// Name of this worker's node.
    fn name(&self) -> String {
        name_of(self.rank)
    }
}

/// One variable as a `T`.
fn parse<T: FromStr<Err: Display>>(var: &impl Fn(&str) -> Option<String>, name: &str) -> Result<T, Error> {
    let text = var(name).ok_or_else(|| {
        Error::Config(format!(
            "this process looks like a worker ({} is set) but {name} is missing; \
             if it inherited that variable, start it without it",
            super::ENV_LAUNCH
        ))
    })?;
    text.parse().map_err(|error| Error::Config(format!("{name}={text:?}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A good environment, but for one variable.
    fn place(change: &str, to: Option<&str>) -> Result<Place, Error> {
        Place::from_env(|name| {
            if name == change {
                return to.map(str::to_owned);
            }
            let text = match name {
                ENV_RANK => "2",
                ENV_WORLD_SIZE => "3",
                ENV_MASTER_ADDR => "127.0.0.1",
                ENV_MASTER_PORT => "4000",
                _ => return None,
            };
            Some(text.to_owned())
        })
    }

    #[test]
    fn a_good_environment_is_read() {
        let got = place("", None).expect("all variables are there");
        assert_eq!((got.rank, got.world_size), (2, 3));
        assert_eq!(got.driver.to_string(), "127.0.0.1:4000");
        assert_eq!(got.name(), "worker2");
    }

    #[test]
    fn a_bad_environment_is_named() {
        for (name, value) in [
            (ENV_RANK, None),
            (ENV_RANK, Some("0")),
            (ENV_RANK, Some("3")),
            (ENV_RANK, Some("-1")),
            (ENV_WORLD_SIZE, Some("")),
            (ENV_MASTER_ADDR, Some("localhost")),
            (ENV_MASTER_PORT, Some("65536")),
            (ENV_MASTER_PORT, None),
        ] {
            let error = place(name, value).expect_err(name);
            assert!(matches!(&error, Error::Config(text) if text.contains(name)), "{error}");
        }
    }

    #[test]
    fn lines_are_read_without_their_ends_and_bounded() {
        let mut input = io::Cursor::new([b"quit\n\nab".to_vec(), vec![b'x'; 300]].concat());
        assert_eq!(read_line(&mut input).expect("memory").as_deref(), Some("quit"));
        assert_eq!(read_line(&mut input).expect("memory").as_deref(), Some(""));
        assert_eq!(read_line(&mut input).expect("memory").map(|line| line.len()), Some(256));
        assert_eq!(read_line(&mut input).expect("memory").map(|line| line.len()), Some(46));
        assert_eq!(read_line(&mut input).expect("memory"), None);
    }
}
