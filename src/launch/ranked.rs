//! One process of a cluster that another launcher has started, such as `torchrun`, `mpirun` behind a
//! wrapper, or a Kubernetes job.
//!
//! Knows environment variables and how this machine reaches the first process; must not know how nodes
//! talk.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::str::FromStr;

use super::{ENV_LAUNCH, ENV_MASTER_ADDR, ENV_MASTER_PORT, ENV_RANK, ENV_WORLD_SIZE, in_worker, name_of};
use crate::{Builder, Error};

/// Sets up this process's node as a launcher's environment says.
///
/// For launchers that start one process for each rank and tell it so, in the variables that PyTorch
/// made usual:
///
/// | variable | what it says |
/// | --- | --- |
/// | `RANK` | the number of this process, from 0 |
/// | `WORLD_SIZE` | how many processes there are |
/// | `MASTER_ADDR` | host name or IP address of the process with rank 0 |
/// | `MASTER_PORT` | the port on which that process listens |
///
/// `node` gets the node's name, `driver` for rank 0 and else `worker1`, `worker2`, ..., which it must
/// pass to [`Node::builder`](crate::Node::builder). The builder that comes back listens and joins: rank 0
/// on the given address, the others on a free port of the interface that leads there. What is wrong for a
/// network (a port that is forwarded, a different interface) can be set over it with
/// [`Builder::listen`] and [`Builder::advertise`]. How connections are protected remains the program's
/// to say.
///
/// The variables are read when this is called; `MASTER_ADDR` is looked up then, which may take as long as
/// the system's resolver takes. Nothing else may listen on `MASTER_PORT`: where a launcher keeps a store
/// of its own there, as `torchrun` may, give the processes another one.
///
/// ```no_run
/// use rref::prelude::*;
/// use rref::{Builder, Rank, launch};
/// use std::time::Duration;
///
/// fn double(x: i64) -> i64 {
///     2 * x
/// }
///
/// fn node(name: &str) -> Builder {
///     Node::builder(name).function(double)
/// }
///
/// #[actix::main]
/// async fn main() -> rref::Result<()> {
///     // RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 program &
///     // RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 program
///     let node = launch::from_env(node)?.insecure().start().await?;
///     node.wait_for_peers(1, Duration::from_secs(30)).await?;
///     if node.rank() == Some(Rank(0)) {
///         println!("{}", node.call(Rank(1), double, (21,)).await?);
///         node.shutdown().await;
///     } else {
///         node.serve().await;
///     }
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`Error::Config`] when a variable is missing or makes no sense, or when the process is a worker of
/// [`local`](super::local); [`Error::Unreachable`] when `MASTER_ADDR` cannot be looked up, or no interface
/// leads there.
pub fn from_env(node: fn(&str) -> Builder) -> Result<Builder, Error> {
    if in_worker() {
        return Err(Error::Config(format!(
            "launch::from_env in a worker that launch::local started ({ENV_LAUNCH} is set): \
             call rref::launch::worker(node)? instead"
        )));
    }
    let place = Place::read(|name| std::env::var(name).ok())?;
    let builder = node(&name_of(place.rank)).rank(place.rank, place.world_size);
    let master = place.master();
    if place.rank == 0 {
        return Ok(builder.listen(master));
    }
    let own = interface_towards(&master)?;
    Ok(builder.listen(SocketAddr::new(own, 0).to_string()).join(master))
}

/// What the environment says.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    rank: u32,
    world_size: u32,
    host: String,
    port: u16,
}

impl Place {
    /// Reads the variables through `var`.
    fn read(var: impl Fn(&str) -> Option<String>) -> Result<Place, Error> {
        let (rank, world_size) = (parse(&var, ENV_RANK)?, parse(&var, ENV_WORLD_SIZE)?);
        if rank >= world_size {
            return Err(Error::Config(format!(
                "{ENV_RANK}={rank} must be below {ENV_WORLD_SIZE}={world_size}"
            )));
        }
        let host: String = parse(&var, ENV_MASTER_ADDR)?;
        if host.is_empty() {
            return Err(Error::Config(format!("{ENV_MASTER_ADDR} is empty: it names the host of rank 0")));
        }
        let port = parse(&var, ENV_MASTER_PORT)?;
        if port == 0 {
            return Err(Error::Config(format!("{ENV_MASTER_PORT}=0: the others could not know the port")));
        }
        Ok(Place { rank, world_size, host, port })
    }

    /// Where rank 0 listens.
    fn master(&self) -> String {
        match self.host.parse() {
            Ok(ip) => SocketAddr::new(ip, self.port).to_string(),
            Err(_) => format!("{}:{}", self.host, self.port),
        }
    }
}

fn parse<T: FromStr<Err: Display>>(var: &impl Fn(&str) -> Option<String>, name: &str) -> Result<T, Error> {
    let text = var(name).ok_or_else(|| {
        Error::Config(format!(
            "{name} is not set: a launcher sets {ENV_RANK}, {ENV_WORLD_SIZE}, {ENV_MASTER_ADDR} and \
             {ENV_MASTER_PORT} for every process"
        ))
    })?;
    text.parse().map_err(|error| Error::Config(format!("{name}={text:?}: {error}")))
}

/// The address of the interface through which this machine reaches `address`. Sends nothing: a
/// datagram socket only looks up the route.
fn interface_towards(address: &str) -> Result<IpAddr, Error> {
    let failed = |reason: String| Error::Unreachable { peer: address.to_string(), reason };
    let known = address.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    let mut why = "the name has no address".to_string();
    for target in known {
        let any: IpAddr = if target.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let route = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect(target)?;
            socket.local_addr()
        });
        match route {
            Ok(own) => return Ok(own.ip()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(failed(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(change: &str, to: Option<&str>) -> Result<Place, Error> {
        Place::read(|name| {
            let text = match name {
                name if name == change => to?,
                ENV_RANK => "2",
                ENV_WORLD_SIZE => "3",
                ENV_MASTER_ADDR => "node0.cluster",
                ENV_MASTER_PORT => "29500",
                _ => return None,
            };
            Some(text.to_owned())
        })
    }

    #[test]
    fn the_environment_is_read() {
        let read = place("", None).expect("all variables are there");
        assert_eq!((read.rank, read.world_size, &*read.master()), (2, 3, "node0.cluster:29500"));
        let v6 = place(ENV_MASTER_ADDR, Some("::1")).expect("an address");
        assert_eq!(v6.master(), "[::1]:29500");
        assert_eq!(place(ENV_RANK, Some("0")).map(|place| place.rank), Ok(0));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (name, value) in [
            (ENV_RANK, None),
            (ENV_RANK, Some("3")),
            (ENV_RANK, Some("-1")),
            (ENV_WORLD_SIZE, Some("0")),
            (ENV_WORLD_SIZE, Some("many")),
            (ENV_MASTER_ADDR, None),
            (ENV_MASTER_ADDR, Some("")),
            (ENV_MASTER_PORT, Some("0")),
            (ENV_MASTER_PORT, Some("65536")),
        ] {
            let error = place(name, value).expect_err(name);
            assert!(matches!(&error, Error::Config(text) if text.contains(name)), "{error}");
        }
    }

    #[test]
    fn loopback_is_reached_through_loopback() {
        let own = interface_towards("127.0.0.1:1").expect("every machine has one");
        assert!(own.is_loopback(), "{own}");
    }
}
