//! Graphs that an execution was wrong about, or could not run: each is within the bounds on all of
//! them. Random graphs found them; what stands here are the smallest ones.

use mlxcel_oracle::case::{Case, code};
use std::path::Path;

#[test]
fn every_case_is_within_its_bounds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let trials = Case::read(&path).unwrap().trials().unwrap();
        let told: Vec<String> = trials.iter().map(ToString::to_string).collect();
        assert_eq!(code(&trials), 0, "{}:\n{}", path.display(), told.join("\n"));
        cases += 1;
    }
    assert!(cases > 0, "no cases");
}
