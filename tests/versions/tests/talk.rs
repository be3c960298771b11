//! Two builds with different versions of one message talk to each other: that message fails with an
//! error that says so, and all else works.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn only_the_message_that_differs_fails() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_server"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let client = Command::new(env!("CARGO_BIN_EXE_client")).arg(address.trim()).output().unwrap();
    let said = String::from_utf8(client.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    // The order that was only cast has not run either: 5 less 1.
    let expected = ["shop.Order differs", "shop.Order differs", "4 are left", "42 is twice 21"];
    assert_eq!(lines, expected, "{}", String::from_utf8_lossy(&client.stderr));
    assert!(client.status.success());
    drop(server.stdin.take());
    assert!(server.wait().unwrap().success());
}
