//! The files of kind `run` on every execution: what the interpreter is held to by `ir`'s tests, MLX, own
//! kernels and IREE are held to here, on the same inputs.
//!
//! They are held against the interpreter with its bounds, since the numbers in the files are those of f64.
//! Inputs and weights are arguments, so that a compiler cannot fold them.
//! Executions start from empty states, so of a file with several calls they run the first.

#[path = "../../ir/tests/common/mod.rs"]
mod common;
#[path = "../../tests/filetests/language.rs"]
mod language;

use language::cases;
use mlxcel_ir::random::Data;
use mlxcel_oracle::case::Case;
use mlxcel_oracle::execution::{ExecutionError, IreeExecution, MlxExecution, Observed};
use mlxcel_oracle::known;

/// A file's first call.
struct File {
    name: String,
    case: Case,
}

fn files() -> Vec<File> {
    let run = cases().into_iter().filter(|file| file.kind == "run");
    run.map(|file| {
        let name = file.path.display().to_string();
        let (graph, weights, calls) = file
            .calls()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let call = calls.into_iter().next().unwrap_or_default();
        let case = Case {
            graph,
            bindings: call.bindings,
            seed: 0,
            given: Some(Data {
                inputs: call.inputs,
                weights,
            }),
        };
        File { name, case }
    })
    .collect()
}

/// What is wrong with what an execution made of a file.
fn wrong(
    file: &File,
    execution: &dyn mlxcel_oracle::Execution,
    outcome: Result<Vec<Observed>, ExecutionError>,
) -> Option<String> {
    let checked = outcome.and_then(|observed| {
        let standard = known::expected(&file.case, execution)?;
        Ok(standard.worst(&observed))
    });
    match checked {
        Ok(Some(worst)) if worst.within() => None,
        Ok(Some(worst)) => Some(worst.to_string()),
        Ok(None) => Some("there is no output".into()),
        Err(error) => {
            let message = known::full(&error);
            known::explains(execution, &message)
                .is_none()
                .then_some(message)
        }
    }
}

#[test]
fn every_run_file_holds_on_every_execution() {
    let files = files();
    assert!(files.len() > 60, "only {} files", files.len());
    let mut faults = vec![];
    let mut check = |execution: &dyn mlxcel_oracle::Execution, file: &File, outcome| {
        if let Some(reason) = wrong(file, execution, outcome) {
            faults.push(format!("{}, {}: {reason}", file.name, execution.name()));
        }
    };
    for execution in [MlxExecution::Operations, MlxExecution::Kernels] {
        for file in &files {
            check(&execution, file, file.case.run(&execution));
        }
    }
    let batch: Vec<&Case> = files.iter().map(|file| &file.case).collect();
    for (file, outcome) in files.iter().zip(IreeExecution.run_batch(&batch)) {
        check(&IreeExecution, file, outcome);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
