//! The book's page on families, made from the outcomes.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::sync::{Arc, Mutex};

use mlxcel_engine::Backend;
use mlxcel_frontend::{Model, catalogue};
use mlxcel_test_support::repository;

use crate::{BACKENDS, Checkpoint, Kind};

const PAGE: &str = "docs/src/reference/families.md";

/// Set to any value, it makes the test write the page instead of comparing it.
const BLESS: &str = "MLXCEL_BLESS";

const HEAD: &str = "# Model families\n\n\
<!-- Written by `MLXCEL_BLESS=1 cargo test -p mlxcel --test backends`, when all of its tests passed. -->\n\n\
Each recorded checkpoint, tiny and random, with what it has passed: logits after each token of prompts of \
1, 9 and 45 tokens, at once and token by token, hidden states after each layer, and greedy tokens; of \
encoders the states of single texts and of a padded batch, and scores. They are held against what Hugging \
Face transformers computed in f32, to a relative root mean square error of 1e-5 on the interpreter and on \
MLX, and of 1e-4 compiled by IREE for this machine's processor. Encoders are not compiled.\n\n\
Of those marked with a star less is recorded: the logits at two places of one prompt.\n\n";

/// Which checkpoint passed where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes(Arc<Mutex<BTreeSet<(String, &'static str)>>>);

fn name(backend: Backend) -> &'static str {
    match backend {
        Backend::Reference => "interpreter",
        Backend::Mlx => "MLX",
        Backend::Iree => "IREE",
    }
}

impl Outcomes {
    pub(crate) fn tell(&self, checkpoint: &str, backend: Backend, passed: bool) {
        if passed && let Ok(mut outcomes) = self.0.lock() {
            outcomes.insert((checkpoint.into(), name(backend)));
        }
    }

    fn passed(&self, checkpoint: &str, backend: Backend) -> bool {
        let key = (checkpoint.to_owned(), name(backend));
        self.0.lock().is_ok_and(|outcomes| outcomes.contains(&key))
    }
}

fn page(checkpoints: &[Checkpoint], outcomes: &Outcomes) -> String {
    let mut page = HEAD.to_owned();
    let mut put = |cells: &[String]| {
        writeln!(page, "| {} |", cells.join(" | ")).expect("a string can be written to");
    };
    let mut heads = vec!["checkpoint".to_owned(), "family".into(), "category".into()];
    heads.extend(BACKENDS.map(|backend| name(backend).to_owned()));
    put(&heads);
    put(&vec!["---".to_owned(); heads.len()]);
    let families = catalogue();
    for checkpoint in checkpoints {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let model = checkpoint.write(folder.path());
        let model = Model::load(&model).expect("a checkpoint that was checked loads");
        let family = families.iter().find(|family| family.id == model.family());
        let mut cells = vec![
            match checkpoint.kind {
                Kind::Case(_) | Kind::Gguf(_) => format!("{} *", checkpoint.name),
                Kind::Decoder(_) | Kind::Encoder(_) => checkpoint.name.clone(),
            },
            family
                .map_or(model.family(), |family| family.title)
                .to_owned(),
            family
                .map_or("", |family| family.category.name())
                .to_owned(),
        ];
        cells.extend(
            BACKENDS.map(|backend| match outcomes.passed(&checkpoint.name, backend) {
                true => "passes".to_owned(),
                false => "-".into(),
            }),
        );
        put(&cells);
    }
    page
}

/// Holds the page against the outcomes, or writes it.
pub(crate) fn check(checkpoints: &[Checkpoint], outcomes: &Outcomes) -> Result<(), String> {
    let path = repository().join(PAGE);
    let page = page(checkpoints, outcomes);
    if std::env::var_os(BLESS).is_some() {
        fs::write(&path, &page).map_err(|error| format!("{PAGE}: {error}"))?;
    }
    match fs::read_to_string(&path).is_ok_and(|there| there == page) {
        true => Ok(()),
        false => Err(format!(
            "{PAGE} is not current; `{BLESS}=1 cargo test -p mlxcel --test backends` writes it"
        )),
    }
}
