//! The book is whole: no page is missing, no link leads nowhere, every error is explained, and every
//! page's code is compiled. The code itself runs as doc tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All Rust files below `path`.
fn sources(path: PathBuf, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Targets of Markdown links to files, without the part behind `#`.
fn links(text: &str) -> Vec<String> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '#']).next())
        .filter(|target| !target.is_empty() && !target.contains("://"))
        .map(str::to_string)
        .collect()
}

fn pages() -> BTreeSet<String> {
    // What cannot be read is missing here, and then differs from the summary.
    let entries = std::fs::read_dir(root().join("docs/src")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect()
}

#[test]
fn the_summary_names_every_page_and_no_other() {
    let named: BTreeSet<String> = links(&read("docs/src/SUMMARY.md")).into_iter().collect();
    assert_eq!(named, pages());
}

#[test]
fn every_page_is_compiled() {
    let library = read("src/lib.rs");
    for page in pages() {
        assert!(
            library.contains(&format!("include_str!(\"../docs/src/{page}\")")),
            "src/lib.rs does not test the code of docs/src/{page}"
        );
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    for page in pages() {
        for target in links(&read(format!("docs/src/{page}"))) {
            let path = root().join("docs/src").join(&target);
            assert!(path.exists(), "{page} links to {target}, which does not exist");
        }
    }
}

#[test]
fn every_error_is_explained() {
    let source = read("src/error.rs");
    let (_, rest) = source.split_once("pub enum Error {").unwrap();
    let (body, _) = rest.split_once("\n}\n").unwrap();
    // Variants are indented by one step, their fields by two.
    let variants: Vec<&str> = body
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))
        .filter_map(|line| line.split(|c: char| !c.is_alphanumeric()).next())
        .collect();
    assert!(variants.contains(&"NotOwner") && variants.contains(&"ShuttingDown"), "{variants:?}");

    let page = read("docs/src/errors.md");
    let explained: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split('`').next())
        .collect();
    assert_eq!(explained, variants.into_iter().collect());
}

/// What the first cells of a page's tables name.
fn first_cells(page: &str) -> BTreeSet<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `"));
    cells.filter_map(|line| line.split('`').next()).map(str::to_string).collect()
}

#[test]
fn every_setting_and_metric_is_explained() {
    let explained = first_cells(&read("docs/src/configuration.md"));
    let builder = read("src/node/builder.rs");
    // Settings take the builder and give it back.
    let settings: Vec<&str> = builder
        .split("    pub fn ")
        .skip(1)
        .filter(|text| text.split('{').next().is_some_and(|head| head.contains("-> Self")))
        .filter_map(|text| text.split(|c: char| c != '_' && !c.is_alphanumeric()).next())
        .collect();
    assert!(settings.contains(&"function_on") && settings.contains(&"default_timeout"), "{settings:?}");
    let source = read("src/node/metrics.rs");
    let metrics: Vec<&str> =
        source.split('"').filter(|text| text.starts_with("rref_") && !text.contains(' ')).collect();
    assert!(metrics.contains(&"rref_calls_total"), "{metrics:?}");
    for name in settings.into_iter().chain(metrics) {
        assert!(explained.contains(name), "docs/src/configuration.md does not explain `{name}`");
    }
    let stale = explained.iter().find(|name| name.starts_with("rref_") && !source.contains(name.as_str()));
    assert_eq!(stale, None, "there is no such metric");
}

#[test]
fn every_test_that_conformance_names_exists() {
    let mut files = Vec::new();
    for directory in ["tests", "core/tests", "macros/tests"] {
        sources(root().join(directory), &mut files);
    }
    // Tests of all files of one name together: `file::test`.
    let mut tests = BTreeSet::new();
    for file in files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = read(&file);
        let functions = text.lines().filter_map(|line| {
            let line = line.trim_start();
            let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
            name.split(['(', '<']).next()
        });
        tests.extend(functions.map(|name| format!("{stem}::{name}")));
    }
    let page = read("docs/src/conformance.md");
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).filter(|code| code.contains("::")).collect();
    let named: Vec<&str> = named.into_iter().filter(|code| *code != "file::test").collect();
    assert!(named.len() > 50, "{named:?}");
    for test in named {
        assert!(tests.contains(test), "docs/src/conformance.md names `{test}`, which does not exist");
    }
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let by = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let says = by.contains("::") || by.starts_with("not yet") || by.starts_with("in part");
        assert!(says, "no test and no `not yet`: {row}");
    }
}

#[test]
fn the_readme_s_page_is_the_example() {
    // What both show: from the first line of code to the end of `driver`, whatever the layout.
    fn page(text: &str) -> String {
        let from = text.find("use rref::prelude::*;").unwrap();
        let to = text.find("#[actix::main]").unwrap();
        let code = text[from..to].lines().map(|line| line.split("//").next().unwrap_or_default());
        code.filter(|line| !line.trim_start().starts_with("println!")).collect::<String>().replace(' ', "")
    }
    assert_eq!(page(&read("README.md")), page(&read("examples/page.rs")));
}

#[test]
fn the_service_tutorial_s_program_is_built_and_run() {
    let page = read("docs/src/service.md");
    for file in ["api/Cargo.toml", "api/src/lib.rs", "Cargo.toml", "src/main.rs"] {
        let text = read(format!("tests/newcomer/{file}"));
        // A manifest there says of a package what the workspace wants; the page shows what it needs.
        let shown = match text.split_once("[dependencies]") {
            Some((_, rest)) => format!("[dependencies]{}", rest.split("\n\n").next().unwrap_or_default()),
            None => text,
        };
        assert!(page.contains(shown.trim_end()), "docs/src/service.md differs from tests/newcomer/{file}");
    }
}

#[test]
fn the_testing_tutorial_s_first_test_is_run() {
    let test = read("tests/testkit_first.rs");
    let code = test.split_once("\n\n").map_or(test.as_str(), |(_, code)| code);
    assert!(read("docs/src/testing.md").contains(code.trim_end()), "it differs from tests/testkit_first.rs");
}

#[test]
fn the_readme_has_exactly_two_commands() {
    let readme = read("README.md");
    let commands: Vec<&str> = readme.lines().filter(|line| line.starts_with("cargo ")).collect();
    assert_eq!(commands, ["cargo run --release --example model_parallel", "cargo test --workspace"]);
}
