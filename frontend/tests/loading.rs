//! Golden checkpoints load, and their graphs have the inputs, states and outputs that callers rely on.

use mlxcel_frontend::{GraphOptions, Logits, Model};
use mlxcel_test_support as support;

#[test]
fn golden_checkpoints_give_graphs() {
    let check = |family: &str, expected: &str, layers: usize| {
        let model =
            Model::load(&support::golden(family)).unwrap_or_else(|e| panic!("{family}: {e}"));
        assert_eq!(model.family(), expected, "{family}");
        assert_eq!(model.name(), family);
        assert_eq!(
            (model.layers(), model.vocabulary(), model.context()),
            (layers, 320, 512)
        );
        assert_eq!(model.digest().map(|digest| digest.len()).ok(), Some(64));
        let graph = model
            .graph(&GraphOptions {
                name: "prefill".into(),
                logits: Logits::All,
                token: true,
                hidden: true,
            })
            .unwrap_or_else(|e| panic!("{family}: {e}"));
        let outputs: Vec<String> = graph
            .outputs
            .iter()
            .map(|output| {
                format!(
                    "{} {}",
                    output.name,
                    graph.ty(output.value).expect("a type")
                )
            })
            .collect();
        let mut wanted: Vec<String> = (0..layers)
            .map(|layer| format!("hidden.{layer} f32[B, T, 64]"))
            .collect();
        wanted.extend(["logits f32[B, T, 320]".into(), "token i32[B]".into()]);
        assert_eq!(outputs, wanted, "{family}");
        assert_eq!(graph.states.len(), layers);
        let weights = model.weights();
        for weight in &graph.weights {
            let data = weights
                .get(&weight.name)
                .expect("a declared weight is there");
            let bytes = [data.values, data.scales, data.biases].map(<[u8]>::len);
            assert_eq!(bytes, weight.part_bytes(), "{family}: {}", weight.name);
        }
    };
    check("llama", "llama", 3);
    check("llama3-rope", "llama", 3);
    check("llama-mlx-q4-g64", "llama", 3);
    check("qwen3", "qwen3", 3);
    check("qwen3-mlx-q4-g64-bf16", "qwen3", 3);
}
