//! Writes the files that are generated from the resource types: definitions, chart templates, reference page.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Writes below the root of the checkout, which is the only argument (by default the working directory).
fn main() -> ExitCode {
    let root = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    match write_all(&root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crdgen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_all(root: &Path) -> io::Result<()> {
    for (path, text) in felix_crds::generated_files().map_err(io::Error::other)? {
        let path = root.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
}
