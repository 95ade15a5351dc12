//! The page of a report: complete in itself, and shown by a browser as narrow as a phone.

use mlxcel_frontend::Model;
use mlxcel_oracle::{Backend, Fault, Verdict, VerifyOptions, html, verify_model};
use std::process::Command;

/// Names of the browser, and of the variable that gives another.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
const BROWSER: &str = "CHROMIUM";

fn page(fault: Option<Fault>, verdict: Verdict) -> String {
    let model = Model::load(&mlxcel_test_support::golden("llama")).unwrap();
    let options = VerifyOptions {
        tokens: Some((1..17).collect()),
        backends: vec![Backend::Mlx, Backend::Kernels],
        nodes: true,
        fault,
        ..VerifyOptions::default()
    };
    let report = verify_model(&model, &options, &|_| {}).unwrap();
    assert_eq!(report.verdict, verdict, "{report}");
    html::page(&report)
}

fn faulty() -> String {
    let fault = Fault {
        backend: Backend::Kernels,
        weight: "model.layers.1.mlp.up_proj.weight".into(),
    };
    page(Some(fault), Verdict::Mismatch)
}

#[test]
fn the_page_needs_nothing_else() {
    let (good, bad) = (page(None, Verdict::Pass), faulty());
    for page in [&good, &bad] {
        for link in ["http:", "https:", "src=", "url(", "@import", "<script"] {
            assert!(!page.contains(link), "the page has {link}");
        }
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.matches("<svg").count() >= 2 && page.contains("<polyline"));
        assert_eq!(page.matches("<details").count(), 4);
    }
    assert!(good.contains("class=\"pass\"") && !good.contains("class=\"over\""));
    assert!(bad.contains("class=\"mismatch\"") && bad.contains("<code>layers.1.up</code>"));
}

#[test]
fn a_browser_shows_it_on_a_phone() {
    let given = std::env::var(BROWSER).ok();
    let names = given.as_deref().into_iter().chain(BROWSERS);
    let runs = |name: &&str| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let Some(browser) = names.into_iter().find(runs) else {
        eprintln!("skipped: there is no Chromium; install one, or set {BROWSER} to it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (page, picture) = (
        folder.path().join("page.html"),
        folder.path().join("page.png"),
    );
    std::fs::write(&page, faulty()).unwrap();
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .arg("--window-size=390,1600")
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let picture = std::fs::read(&picture)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(&picture[..8], b"\x89PNG\r\n\x1a\n");
    let width = u32::from_be_bytes(picture[16..20].try_into().unwrap());
    assert!((390..=500).contains(&width), "{width}");
    // An empty page of this size compresses to a few kilobytes.
    assert!(
        picture.len() > 20_000,
        "only {} bytes: nothing is shown",
        picture.len()
    );
}
