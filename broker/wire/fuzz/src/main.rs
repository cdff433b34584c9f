//! Fuzzes one target, named by the variable FUZZ_TARGET. Run it by `fuzz.sh`.
#![no_main]

mod targets;

use std::sync::OnceLock;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static TARGET: OnceLock<targets::Target> = OnceLock::new();
    TARGET.get_or_init(chosen)(data);
});

fn chosen() -> targets::Target {
    let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let names = targets::TARGETS.map(|(name, _)| name);
    let target = targets::TARGETS.iter().find(|(name, _)| *name == wanted);
    target
        .unwrap_or_else(|| panic!("FUZZ_TARGET is {wanted:?}, not one of {names:?}"))
        .1
}
