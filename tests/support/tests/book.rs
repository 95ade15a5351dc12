//! Every link of the book and of the repository's other pages leads somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mlxcel_test_support::repository;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// What a page links to, and what can be linked to in it.
struct Page {
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn read(path: &Path) -> Self {
        let text =
            fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let mut page = Self {
            links: Vec::new(),
            anchors: BTreeSet::new(),
        };
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    page.anchors
                        .extend(heading.take().map(|text| anchor(&text)));
                }
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                _ => {}
            }
        }
        page
    }
}

/// The anchor that mdBook gives to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// The pages under `folder`.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
}

/// Requires that a link of the page at `path` leads to a file and, where it names one, to a heading.
#[track_caller]
fn check_link(path: &Path, link: &str) {
    if link.contains("://") || link.starts_with("mailto:") {
        return;
    }
    let (file, heading) = match link.split_once('#') {
        Some((file, heading)) => (file, Some(heading)),
        None => (link, None),
    };
    let target = match file {
        "" => path.to_owned(),
        _ => path.parent().unwrap().join(file),
    };
    assert!(target.exists(), "{}: there is no {link}", path.display());
    if let Some(heading) = heading {
        let anchors = Page::read(&target).anchors;
        assert!(
            anchors.contains(heading),
            "{}: {link} is none of {anchors:?}",
            path.display()
        );
    }
}

#[test]
fn every_link_leads_somewhere() {
    let root = repository();
    let mut all = pages(&root.join("docs/src"));
    all.extend(["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    for path in all {
        for link in Page::read(&path).links {
            check_link(&path, &link);
        }
    }
}

#[test]
fn the_summary_lists_every_page_once() {
    let source = repository().join("docs/src");
    let listed: Vec<PathBuf> = Page::read(&source.join("SUMMARY.md"))
        .links
        .iter()
        .map(|link| source.join(link.trim_start_matches("./")))
        .collect();
    let mut there = pages(&source);
    there.retain(|page| !page.ends_with("SUMMARY.md"));
    there.sort();
    let mut sorted = listed;
    sorted.sort();
    assert_eq!(sorted, there);
}

#[test]
fn links_and_headings_are_found() {
    let page =
        Page::parse("# The `ir` crate, first\n\n[a](b.md#c) ![d](e.svg)\n\n    [code](no.md)\n");
    assert_eq!(page.links, ["b.md#c", "e.svg"]);
    assert!(page.anchors.contains("the-ir-crate-first"));
}
