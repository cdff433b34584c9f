//! The reference pages of the documentation, written from the tables that the program itself uses.

use std::fmt::Write;

use crate::{metrics, settings::Settings};

/// `docs/src/settings.md`.
pub fn settings_page() -> String {
    let mut page = String::from(
        "# Settings of the broker\n\n\
         Written from the program by `cargo run -p felix-broker --example reference`; do not edit.\n\n\
         A setting is given by its flag, its variable or its key in the YAML file that `--config` or `FELIX_CONFIG` names.\n\
         A flag goes before a variable, a variable before the file, the file before the default. A name that does not exist\n\
         is refused, wherever it stands; variables that Kubernetes makes for a Service (`FELIX_PORT`,\n\
         `FELIX_SERVICE_HOST`, ...) and those of this repository's scripts (`FELIX_CACHE`, `FELIX_COMMIT`,\n\
         `FELIX_KUBE_BIN`) are not settings. `felix-broker --print-config` prints the effective settings.\n\n\
         | key | flag | variable | default | |\n|---|---|---|---|---|\n",
    );
    for entry in Settings::TABLE {
        let default = entry
            .default
            .map_or_else(|| "unset".to_owned(), |default| format!("`{default}`"));
        row(
            &mut page,
            &format!(
                "| `{}` | `{}` | `{}` | {default} | {} |",
                entry.name,
                entry.flag(),
                entry.variable(),
                entry.description(),
            ),
        );
    }
    page.push_str(
        "\nSizes are in bytes, or end in `KiB`, `MiB` or `GiB`. Certificate, key and token files are looked at every five\n\
         seconds and taken into use without a restart; a broken one leaves the last good one in use, and\n\
         `felix_reload_failures_total` counts it.\n",
    );
    page
}

/// `docs/src/metrics.md`.
pub fn metrics_page() -> String {
    let mut page = String::from(
        "# Metrics of the broker\n\n\
         Written from the program by `cargo run -p felix-broker --example reference`; do not edit.\n\n\
         Served at `/metrics` of the port of `metrics_bind`, in the OpenMetrics text format.\n\n\
         | metric | type | labels | |\n|---|---|---|---|\n",
    );
    for metric in metrics::TABLE {
        let labels = metric.labels.split(", ").filter(|label| !label.is_empty());
        let labels = labels
            .map(|label| format!("`{label}`"))
            .collect::<Vec<_>>()
            .join(", ");
        row(
            &mut page,
            &format!(
                "| `{}` | {} | {labels} | {}. |",
                metric.name, metric.kind, metric.help
            ),
        );
    }
    page.push_str(
        "\n`felix_subscribe_dropped_total` has at most 1,000 series of streams; what further streams drop is counted under\n\
         the stream `other`. A series exists, at 0, from the moment a subscription with its policy exists.\n",
    );
    page
}

fn row(page: &mut String, row: &str) {
    // Writing to a string does not fail.
    writeln!(page, "{row}").unwrap_or_default();
}
