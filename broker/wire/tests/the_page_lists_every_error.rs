//! The table of errors in the page on the wire is the table in the code.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use felix_wire::ErrorCode;

const PAGE: &str = include_str!("../../../docs/src/wire.md");

#[test]
fn the_page_lists_every_error() {
    let mut table = String::from("| number | error | kind | meaning |\n|---|---|---|---|\n");
    for code in ErrorCode::ALL {
        let meaning = code.meaning().trim();
        table += &format!(
            "| {:#06x} | `{code}` | {} | {meaning} |\n",
            code.to_wire(),
            code.kind()
        );
    }
    assert!(
        PAGE.ends_with(&table),
        "docs/src/wire.md has to end with:\n{table}"
    );
}
