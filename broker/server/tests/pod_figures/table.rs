//! The table that is printed: a row for each figure.

/// What a figure must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    Below(f64),
    /// Only to be known.
    None,
}

pub(crate) fn head() {
    println!("| figure | median | from | to | runs | bound | holds |");
    println!("|---|---|---|---|---|---|---|");
}

/// Prints the row of a figure that was measured several times.
pub(crate) fn print(name: &str, values: &[f64], bound: Bound) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    let (from, to) = (sorted[0], sorted[sorted.len() - 1]);
    let (bound, holds) = match bound {
        Bound::AtLeast(least) => (format!("at least {least}"), verdict(median >= least)),
        Bound::Below(most) => (format!("below {most}"), verdict(median < most)),
        Bound::None => (String::new(), ""),
    };
    let runs = values.len();
    println!("| {name} | {median:.3} | {from:.3} | {to:.3} | {runs} | {bound} | {holds} |");
}

fn verdict(holds: bool) -> &'static str {
    if holds { "yes" } else { "NO" }
}
