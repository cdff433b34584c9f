//! What the documents point at is there: files behind links, paths that ARCHITECTURE.md names, chapters of the book.

use std::{
    fs,
    io::Result,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for folder in [root(), root().join("docs/src")] {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    Ok(pages)
}

/// What stands between `](` and `)`, fenced code left out.
fn links(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            found.extend(targets.map(|(target, _)| target));
        }
    }
    found
}

#[test]
fn every_link_leads_somewhere() {
    let mut checked = 0;
    for page in pages().unwrap() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let file = link.split('#').next().unwrap();
            let target = page.parent().unwrap().join(file);
            assert!(
                file.is_empty() || target.exists(),
                "{}: {link} leads nowhere",
                page.display()
            );
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} links were found");
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let source = root().join("docs/src");
    let summary = fs::read_to_string(source.join("SUMMARY.md")).unwrap();
    let listed = links(&summary);
    for page in pages()
        .unwrap()
        .iter()
        .filter(|page| page.parent() == Some(&source))
    {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(
            name == "SUMMARY.md" || listed.contains(&name),
            "{name} is not in SUMMARY.md"
        );
    }
}

#[test]
fn the_paths_that_architecture_names_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let tops = [
        "broker/",
        "crds",
        "operator",
        "bench-jobs",
        "charts/",
        "images",
        "dev",
        "tests/",
        "docs/",
    ];
    let named = text.split('`').skip(1).step_by(2).filter(|name| {
        tops.iter().any(|top| name.starts_with(top))
            && !name.contains(char::is_whitespace)
            && !name.contains('*')
    });
    let named: Vec<&str> = named.collect();
    assert!(named.len() > 12, "only {named:?} were found");
    for name in named {
        assert!(
            Path::new(&root().join(name)).exists(),
            "ARCHITECTURE.md names {name}, which does not exist"
        );
    }
}
