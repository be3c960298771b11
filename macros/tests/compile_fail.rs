//! What does not compile, and what the compiler then says: its advice is part of the API.
//!
//! Compilers word errors differently, so the texts are compared with one version of rustc only, the
//! one in [`RUSTC`]. After a change: `TRYBUILD=overwrite cargo test -p rref-macros --test compile_fail`,
//! and read the difference.

use std::process::Command;

/// The compiler whose words are in `ui/*.stderr`.
const RUSTC: &str = "rustc 1.95.";

#[test]
fn errors_advise() {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().unwrap().stdout;
    let version = String::from_utf8(version).unwrap();
    if !version.starts_with(RUSTC) {
        println!("SKIPPED: the expected errors are those of {RUSTC}x, this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
