//! Hands the commit to the program: `FELIX_COMMIT` where the build sets it (`dev/lib/rust.sh` does), else `unknown`.

fn main() {
    println!("cargo:rerun-if-env-changed=FELIX_COMMIT");
    let commit = std::env::var("FELIX_COMMIT").unwrap_or_else(|_| "unknown".into());
    println!("cargo:rustc-env=FELIX_BUILD_COMMIT={commit}");
}
