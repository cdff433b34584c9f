//! The reference pages in the documentation are those that the program writes.

use std::{fs, path::Path};

use felix_broker::reference;

#[test]
fn settings_and_metrics_are_those_of_the_program() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src");
    for (name, written) in [
        ("settings.md", reference::settings_page()),
        ("metrics.md", reference::metrics_page()),
    ] {
        let page = fs::read_to_string(pages.join(name)).unwrap_or_default();
        assert!(
            page == written,
            "{name} is out of date: cargo run -p felix-broker --example reference"
        );
    }
}
