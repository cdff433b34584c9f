//! Writes the reference pages of the documentation: `cargo run -p felix-broker --example reference`.

use std::{fs, path::Path};

use felix_broker::reference;

fn main() -> std::io::Result<()> {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src");
    fs::write(pages.join("settings.md"), reference::settings_page())?;
    fs::write(pages.join("metrics.md"), reference::metrics_page())
}
