//! The level that tests the oracle: known kinds of bugs, each put into one execution.
//!
//! A bug is a change of the graph or of a weight that one execution is given; the other executions get
//! the graph as it is. The oracle must blame the execution that has it, at the node that has it, and no
//! other.

use crate::case::Case;
use crate::execution::{Execution, ExecutionError, IreeExecution, MlxExecution};
use crate::known;
use crate::localise::{local, watched};
use crate::standard::Deviation;
use crate::summary::{Failure, Level};
use crate::toy;
use mlxcel_ir::{
    Activation, BuildError, Builder, DType, Dim, Graph, Mask, Node, Op, Pairing, RopeScaling,
    StateId, ValueId, WeightDecl, WeightSource,
};
use std::sync::Arc;
use std::time::Instant;

/// Changes a node before it is built; what it returns, if anything, stands for the node.
type Edit = fn(&mut Builder, &mut Node) -> Result<Option<ValueId>, BuildError>;
/// Changes the parts of a weight.
type Damage = fn(&WeightDecl, &mut [Vec<u8>; 3]);

/// Where a bug is.
#[derive(Clone, Copy)]
enum Bug {
    /// In the computation of the node.
    Node(Edit),
    /// In how the weight is loaded that the node reads.
    Weight(&'static str, Damage),
}

/// Every bug: its kind, the node that must be blamed, and what is changed.
const BUGS: &[(&str, &str, Bug)] = &[
    (
        "embedding not scaled",
        "scaled",
        Bug::Node(|_, node| Ok(Some(node.operands[0]))),
    ),
    (
        "row of the wrong token",
        "embedding",
        Bug::Node(shift_tokens),
    ),
    (
        "epsilon of the norm",
        "0.norm",
        Bug::Node(|_, node| norm(node, |epsilon, _| *epsilon = 1e-5)),
    ),
    (
        "offset of the norm missing",
        "0.norm",
        Bug::Node(|_, node| norm(node, |_, offset| *offset = 0.0)),
    ),
    (
        "weight of the norm missing",
        "0.q.norm",
        Bug::Node(|_, node| {
            node.weights.clear();
            Ok(None)
        }),
    ),
    (
        "bias of a linear layer missing",
        "0.q",
        Bug::Node(|_, node| {
            node.weights.truncate(1);
            Ok(None)
        }),
    ),
    (
        "transposed weight",
        "0.o",
        Bug::Weight("0.o.weight", transpose_codes),
    ),
    (
        "scale of the wrong group",
        "0.gate",
        Bug::Weight("0.gate.weight", |_, parts| parts[1].rotate_left(4)),
    ),
    (
        "biases of groups missing",
        "0.up",
        Bug::Weight("0.up.weight", |_, parts| parts[2].fill(0)),
    ),
    (
        "halves of bytes swapped",
        "0.k",
        Bug::Weight("0.k.weight", |_, parts| {
            parts[0]
                .iter_mut()
                .for_each(|byte| *byte = byte.rotate_left(4));
        }),
    ),
    (
        "one code off by one",
        "0.v",
        Bug::Weight("0.v.weight", |_, parts| parts[0][37] ^= 1),
    ),
    (
        "one dense weight's last bit",
        "0.down",
        Bug::Weight("0.down.weight", |_, parts| parts[0][10] ^= 1),
    ),
    (
        "rotary base one percent larger",
        "0.q.rope",
        Bug::Node(|_, node| rope(node, |base, _, _, _, _| *base *= 1.01)),
    ),
    (
        "rotary pairing",
        "0.q.rope",
        Bug::Node(|_, node| rope(node, |_, pairing, _, _, _| *pairing = Pairing::Interleaved)),
    ),
    (
        "rotary dimensions",
        "0.k.rope",
        Bug::Node(|_, node| rope(node, |_, _, dims, _, _| *dims = 4)),
    ),
    (
        "rotary scaling missing",
        "0.k.rope",
        Bug::Node(|_, node| rope(node, |_, _, _, scaling, _| *scaling = RopeScaling::None)),
    ),
    (
        "rotary magnitude missing",
        "0.q.rope",
        Bug::Node(|_, node| rope(node, |_, _, _, _, magnitude| *magnitude = 1.0)),
    ),
    (
        "rotary factor",
        "1.q.rope",
        Bug::Node(|_, node| {
            rope(node, |_, _, _, scaling, _| {
                *scaling = RopeScaling::Linear { factor: 8.0 }
            })
        }),
    ),
    (
        "position off by one",
        "0.q.rope",
        Bug::Node(|builder, node| later(builder, node, 1)),
    ),
    (
        "stale cache row",
        "0.attention",
        Bug::Node(|builder, node| later(builder, node, 3)),
    ),
    (
        "scale of attention missing",
        "0.attention",
        Bug::Node(|_, node| attention(node, |a| *a.scale = 1.0)),
    ),
    (
        "scale of attention applied twice",
        "0.attention",
        Bug::Node(|_, node| attention(node, |a| *a.scale *= *a.scale)),
    ),
    (
        "future attended",
        "0.attention",
        Bug::Node(|_, node| attention(node, |a| *a.mask = Mask::Full)),
    ),
    (
        "keys and values swapped",
        "0.attention",
        Bug::Node(|_, node| {
            node.operands.swap(1, 2);
            Ok(None)
        }),
    ),
    (
        "heads of queries in the wrong groups",
        "0.attention",
        Bug::Node(regroup),
    ),
    (
        "queries rounded to f16",
        "0.attention",
        Bug::Node(|builder, node| narrow(builder, node, DType::F16)),
    ),
    (
        "window too wide by one",
        "1.attention",
        Bug::Node(|_, node| attention(node, |a| *a.window = Some(6))),
    ),
    (
        "window too narrow by one",
        "1.attention",
        Bug::Node(|_, node| attention(node, |a| *a.window = Some(4))),
    ),
    (
        "window missing",
        "1.attention",
        Bug::Node(|_, node| attention(node, |a| *a.window = None)),
    ),
    (
        "chunk missing",
        "1.attention",
        Bug::Node(|_, node| attention(node, |a| *a.chunk = None)),
    ),
    (
        "soft-cap missing",
        "1.attention",
        Bug::Node(|_, node| attention(node, |a| *a.softcap = None)),
    ),
    (
        "soft-cap of another model",
        "1.attention",
        Bug::Node(|_, node| attention(node, |a| *a.softcap = Some(2.5))),
    ),
    (
        "slopes missing",
        "1.attention",
        Bug::Node(|_, node| attention(node, |a| a.slopes.clear())),
    ),
    (
        "slopes of other heads",
        "1.attention",
        Bug::Node(|_, node| attention(node, |a| a.slopes.reverse())),
    ),
    (
        "sinks missing",
        "1.attention",
        Bug::Node(|_, node| {
            node.weights.clear();
            Ok(None)
        }),
    ),
    (
        "residual missing",
        "0.residual",
        Bug::Node(|_, node| Ok(Some(node.operands[1]))),
    ),
    (
        "gate and up swapped",
        "0.gated",
        Bug::Node(|_, node| {
            node.operands.swap(0, 1);
            Ok(None)
        }),
    ),
    (
        "another activation",
        "0.gated",
        Bug::Node(|_, node| {
            node.op = Op::Gated {
                activation: Activation::QuickGelu,
            };
            Ok(None)
        }),
    ),
    (
        "approximate activation",
        "1.active",
        Bug::Node(|_, node| {
            node.op = Op::Activate {
                activation: Activation::GeluTanh,
            };
            Ok(None)
        }),
    ),
    (
        "result rounded to bf16",
        "0.hidden",
        Bug::Node(|builder, node| narrow(builder, node, DType::BF16)),
    ),
    (
        "mean not subtracted",
        "1.norm",
        Bug::Node(|_, node| {
            node.op = Op::RmsNorm {
                epsilon: 1e-5,
                offset: 0.0,
            };
            node.weights.truncate(1);
            Ok(None)
        }),
    ),
    (
        "bias of the norm missing",
        "1.norm",
        Bug::Node(|_, node| {
            node.weights.truncate(1);
            Ok(None)
        }),
    ),
    (
        "epsilon of the other norm",
        "1.norm",
        Bug::Node(|_, node| norm(node, |epsilon, _| *epsilon = 1e-3)),
    ),
    (
        "least likely experts",
        "1.chosen",
        Bug::Node(|builder, node| {
            node.operands[0] = builder.negate(node.operands[0])?;
            Ok(None)
        }),
    ),
    (
        "wrong expert",
        "1.outer",
        Bug::Node(|builder, node| {
            node.operands[1] = reverse(builder, node.operands[1])?;
            Ok(None)
        }),
    ),
    (
        "shares of experts not normalised",
        "1.shares",
        Bug::Node(|builder, node| Ok(Some(builder.sigmoid(node.operands[0])?))),
    ),
    (
        "taps of the convolution reversed",
        "2.convolution",
        Bug::Weight("2.convolution.weight", |_, parts| {
            for taps in parts[0].chunks_exact_mut(16) {
                let (a, b) = taps.split_at_mut(8);
                a.swap_with_slice(b);
            }
        }),
    ),
    (
        "bias of the convolution missing",
        "2.convolution",
        Bug::Node(|_, node| {
            node.weights.truncate(1);
            Ok(None)
        }),
    ),
    (
        "memory does not decay",
        "2.recurrence",
        Bug::Node(|builder, node| {
            node.operands[3] = like(builder, node.operands[3], 1.0)?;
            Ok(None)
        }),
    ),
    (
        "query and key swapped",
        "2.recurrence",
        Bug::Node(|_, node| {
            node.operands.swap(0, 1);
            Ok(None)
        }),
    ),
    (
        "nothing erased before a write",
        "2.delta",
        Bug::Node(|builder, node| {
            node.operands[4] = like(builder, node.operands[4], 0.0)?;
            Ok(None)
        }),
    ),
    (
        "padding attended",
        "2.mutual",
        Bug::Node(|builder, node| {
            node.operands[3] = like(builder, node.operands[3], 12.0)?;
            Ok(None)
        }),
    ),
    (
        "window on one side",
        "2.mutual",
        Bug::Node(|_, node| {
            node.op = Op::MutualAttention {
                scale: 0.5,
                window: Some(2),
            };
            Ok(None)
        }),
    ),
    (
        "logits of the token before",
        "last",
        Bug::Node(|builder, node| {
            let zero = like(builder, node.operands[1], 0.0)?;
            let one = like(builder, node.operands[1], 1.0)?;
            let before = builder.subtract(node.operands[1], one)?;
            node.operands[1] = builder.maximum(before, zero)?;
            Ok(None)
        }),
    ),
    (
        "cap of the logits missing",
        "capped",
        Bug::Node(|_, node| Ok(Some(node.operands[0]))),
    ),
];

type Edited = Result<Option<ValueId>, BuildError>;

fn norm(node: &mut Node, change: fn(&mut f64, &mut f64)) -> Edited {
    if let Op::RmsNorm { epsilon, offset } | Op::LayerNorm { epsilon, offset } = &mut node.op {
        change(epsilon, offset);
    }
    Ok(None)
}

type RopeChange = fn(&mut f64, &mut Pairing, &mut usize, &mut RopeScaling, &mut f64);

fn rope(node: &mut Node, change: RopeChange) -> Edited {
    if let Op::Rope {
        dims,
        base,
        pairing,
        scaling,
        magnitude,
    } = &mut node.op
    {
        change(base, pairing, dims, scaling, magnitude);
    }
    Ok(None)
}

/// The attributes of attention.
struct Attention<'a> {
    scale: &'a mut f64,
    mask: &'a mut Mask,
    window: &'a mut Option<usize>,
    chunk: &'a mut Option<usize>,
    softcap: &'a mut Option<f64>,
    slopes: &'a mut Vec<f64>,
}

fn attention(node: &mut Node, change: fn(Attention<'_>)) -> Edited {
    if let Op::Attention {
        scale,
        mask,
        window,
        chunk,
        softcap,
        slopes,
    } = &mut node.op
    {
        change(Attention {
            scale,
            mask,
            window,
            chunk,
            softcap,
            slopes,
        });
    }
    Ok(None)
}

/// A constant of the type of a value.
fn like(builder: &mut Builder, value: ValueId, number: f64) -> Result<ValueId, BuildError> {
    let ty = builder.ty(value).clone();
    builder.constant(number, ty.dtype, ty.shape)
}

/// Lets the node start so many positions later.
fn later(builder: &mut Builder, node: &mut Node, positions: i32) -> Edited {
    let Some(start) = node.operands.last_mut() else {
        return Ok(None);
    };
    let by = like(builder, *start, positions.into())?;
    // Not past the end of the cache.
    let later = builder.add(*start, by)?;
    let most = like(builder, *start, 8.0)?;
    *start = builder.minimum(later, most)?;
    Ok(None)
}

fn shift_tokens(builder: &mut Builder, node: &mut Node) -> Edited {
    let most = like(builder, node.operands[0], 6.0)?;
    node.operands[0] = builder.subtract(most, node.operands[0])?;
    Ok(None)
}

/// Rounds the first operand to a narrower type and back.
fn narrow(builder: &mut Builder, node: &mut Node, dtype: DType) -> Edited {
    let rounded = builder.convert(node.operands[0], dtype)?;
    node.operands[0] = builder.convert(rounded, DType::F32)?;
    Ok(None)
}

/// Query heads as if neighbours had different heads of keys.
fn regroup(builder: &mut Builder, node: &mut Node) -> Edited {
    let ty = builder.ty(node.operands[0]).clone();
    let [b, t, Dim::Fixed(heads), width] = ty.shape[..] else {
        return Ok(None);
    };
    let (groups, inner) = (Dim::Fixed(2), Dim::Fixed(heads / 2));
    let split = builder.reshape(node.operands[0], vec![b, t, groups, inner, width])?;
    let turned = builder.transpose(split, vec![0, 1, 3, 2, 4])?;
    node.operands[0] = builder.reshape(turned, ty.shape)?;
    Ok(None)
}

/// Pairs along the last dimension, swapped.
fn reverse(builder: &mut Builder, value: ValueId) -> Result<ValueId, BuildError> {
    let last = builder.ty(value).rank() - 1;
    let first = builder.slice(value, last, 0, 1, 1)?;
    let second = builder.slice(value, last, 1, 2, 1)?;
    builder.concatenate(second, first, last)
}

/// Codes of a square matrix of 4 bits read by columns.
fn transpose_codes(declaration: &WeightDecl, parts: &mut [Vec<u8>; 3]) {
    let width = declaration.shape[1];
    let code = |codes: &[u8], index: usize| codes[index / 2] >> (index % 2 * 4) & 15;
    let old = parts[0].clone();
    for (index, byte) in parts[0].iter_mut().enumerate() {
        let turned = |index: usize| code(&old, index % width * width + index / width);
        *byte = turned(2 * index) | turned(2 * index + 1) << 4;
    }
}

/// The graph with one node changed; names stay with the values that stand for the nodes.
fn mutated(graph: &Graph, name: &str, edit: Edit) -> Result<Graph, BuildError> {
    let mut builder = Builder::new(&graph.name);
    let mut values: Vec<ValueId> = vec![];
    for input in &graph.inputs {
        values.push(builder.input(&input.name, input.ty.clone()));
    }
    for weight in &graph.weights {
        builder.weight(weight.clone());
    }
    for state in &graph.states {
        builder.state(state.clone());
    }
    let mut stands_for = vec![];
    for node in &graph.nodes {
        let mut node = node.clone();
        for operand in &mut node.operands {
            *operand = values[operand.0 as usize];
        }
        let replaced = match node.name.as_deref() == Some(name) {
            true => edit(&mut builder, &mut node)?,
            false => None,
        };
        let state: Option<StateId> = node.state;
        let value = match replaced {
            Some(value) => value,
            None => builder.push(node.op, node.operands, node.weights, state)?,
        };
        if let Some(name) = node.name {
            stands_for.push((name, value));
        }
        values.push(value);
    }
    for (name, value) in stands_for {
        builder.output(name, value);
    }
    Ok(builder.finish())
}

/// What became of one bug.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The kind.
    pub kind: &'static str,
    /// The node that has it.
    pub node: &'static str,
    /// The execution that has it.
    pub execution: &'static str,
    /// The nodes that were blamed, with the execution, and the error of the first as a share of its
    /// bound.
    pub blamed: Vec<(&'static str, String, f64)>,
}

impl Trial {
    /// Whether this is the graph as it is.
    fn honest(&self) -> bool {
        self.node.is_empty()
    }

    /// Whether the execution was blamed at all; of the graph as it is, that it was not.
    pub fn caught(&self) -> bool {
        if self.honest() {
            return self.blamed.is_empty();
        }
        self.blamed
            .iter()
            .any(|(execution, ..)| *execution == self.execution)
    }

    /// Whether it alone was blamed, at the node alone.
    pub fn located(&self) -> bool {
        self.honest() && self.blamed.is_empty()
            || matches!(&self.blamed[..], [(execution, node, _)] if *execution == self.execution && node == self.node)
    }
}

/// Trials, or what could not be built, compiled or run.
pub type Trials = Result<Vec<Trial>, Box<dyn std::error::Error>>;

/// The nodes of an execution that are wrong by themselves.
fn blamed(
    case: &Case,
    execution: &dyn Execution,
    given: &Graph,
    weights: &Arc<dyn WeightSource>,
) -> Result<Vec<(String, f64)>, ExecutionError> {
    let data = case.data();
    let inputs = data.named();
    let true_weights: Arc<dyn WeightSource> = data.weights.clone();
    let observed = execution.run(given, &case.bindings, weights, &inputs)?;
    let nodes = local(
        &case.graph,
        &case.bindings,
        &true_weights,
        &inputs,
        &observed,
    )?;
    Ok(nodes
        .into_iter()
        .filter(|node| !node.deviation.within())
        .map(|node| (node.deviation.output, node.deviation.share))
        .collect())
}

/// Puts every bug into one execution, alternating, and looks for it in all.
///
/// # Errors
/// If an execution cannot run at all.
pub fn trials() -> Trials {
    let case = toy::decoder()?;
    let honest = watched(&case.graph);
    let data = case.data();
    let mut trials = vec![];
    let executions = [MlxExecution::Kernels, MlxExecution::Operations];
    for (index, (kind, node, bug)) in BUGS.iter().enumerate() {
        let mut weights = (*data.weights).clone();
        let graph = match bug {
            Bug::Node(edit) => mutated(&case.graph, node, *edit)?,
            Bug::Weight(name, damage) => {
                let declaration = case
                    .graph
                    .weights
                    .iter()
                    .find(|weight| weight.name == *name);
                if let (Some(declaration), Some(parts)) = (declaration, weights.get_mut(name)) {
                    damage(declaration, parts);
                }
                honest.clone()
            }
        };
        let faulty = executions[index % 2];
        let mut trial = Trial {
            kind,
            node,
            execution: faulty.name(),
            blamed: vec![],
        };
        for execution in executions {
            let (given, weights): (&Graph, Arc<dyn WeightSource>) = match execution == faulty {
                true => (&graph, Arc::new(weights.clone())),
                false => (&honest, data.weights.clone()),
            };
            for (node, share) in blamed(&case, &execution, given, &weights)? {
                trial.blamed.push((execution.name(), node, share));
            }
        }
        trials.push(trial);
    }
    Ok(trials)
}

/// Graphs that one run of the compiler takes.
const BATCH: usize = 8;

/// Puts `count` of the bugs in nodes, spread evenly, into what IREE compiles. The first trial is of the
/// graph as it is, where nothing may be blamed; its kind is `none`.
///
/// # Errors
/// If a graph cannot be built, compiled or run.
pub fn compiled_trials(count: usize) -> Trials {
    let case = toy::decoder()?;
    let edits: Vec<(&'static str, &'static str, Edit)> = BUGS
        .iter()
        .filter_map(|(kind, node, bug)| match bug {
            Bug::Node(edit) => Some((*kind, *node, *edit)),
            Bug::Weight(..) => None,
        })
        .collect();
    let count = count.min(edits.len());
    let mut given = vec![("none", "", watched(&case.graph))];
    for index in 0..count {
        let (kind, node, edit) = edits[index * edits.len() / count];
        given.push((kind, node, mutated(&case.graph, node, edit)?));
    }
    let data = case.data();
    let inputs = data.named();
    let weights: Arc<dyn WeightSource> = data.weights.clone();
    let mut trials = vec![];
    for batch in given.chunks(BATCH) {
        // Weights and inputs follow from their names, so that these are the case's own.
        let cases: Vec<Case> = batch
            .iter()
            .map(|(.., graph)| Case {
                graph: graph.clone(),
                ..case.clone()
            })
            .collect();
        let outcomes = IreeExecution.run_batch(&cases.iter().collect::<Vec<_>>());
        for ((kind, node, _), outcome) in batch.iter().zip(outcomes) {
            let nodes = local(&case.graph, &case.bindings, &weights, &inputs, &outcome?)?;
            let wrong = nodes.into_iter().filter(|node| !node.deviation.within());
            trials.push(Trial {
                kind,
                node,
                execution: IreeExecution.name(),
                blamed: wrong
                    .map(|node| {
                        let Deviation { output, share, .. } = node.deviation;
                        (IreeExecution.name(), output, share)
                    })
                    .collect(),
            });
        }
    }
    Ok(trials)
}

/// What stands above the table in the book.
pub const INTRODUCTION: &str = "\
# Injected bugs

The oracle is tested with bugs of known kinds, each put into one execution of a small decoder that has one of everything:
by changing the graph or the weight that this execution is given. *Caught* says that the execution was blamed; *located*,
that it alone was, at that node alone. `cargo xtask oracle --level bugs` prints this table, and a test holds the page to it.
";

/// The table of all trials, as the book shows it.
pub fn table(trials: &[Trial]) -> String {
    let mut table = String::from(
        "| bug | execution | node | caught | located | error, in bounds |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    let yes = |yes| if yes { "yes" } else { "no" };
    for trial in trials {
        let share = trial
            .blamed
            .iter()
            .map(|(.., share)| *share)
            .fold(0.0, f64::max);
        let magnitude = match share.is_finite() {
            true => format!("10<sup>{}</sup>", share.max(1.0).log10().floor()),
            false => "no bound".into(),
        };
        table.push_str(&format!(
            "| {} | {} | `{}` | {} | {} | {magnitude} |\n",
            trial.kind,
            trial.execution,
            trial.node,
            yes(trial.caught()),
            yes(trial.located()),
        ));
    }
    table
}

/// Runs the level: every bug on MLX or kernels, and `compiled` of them on IREE.
pub fn run(compiled: usize) -> (Vec<Level>, String) {
    let mut levels = vec![];
    let mut told = String::new();
    let mut hold = |name: &str, run: &dyn Fn() -> Trials| {
        let begin = Instant::now();
        let trials = run();
        let mut caught = Level::new(format!("bugs caught, {name}"));
        let mut located = Level::new(format!("bugs located exactly, {name}"));
        match trials {
            Err(error) => caught.fail(Failure {
                execution: "oracle".into(),
                reason: known::full(&*error),
                case: String::new(),
            }),
            Ok(trials) => {
                for trial in &trials {
                    count(&mut caught, trial, trial.caught());
                    count(&mut located, trial, trial.located());
                }
                told.push_str(&table(&trials));
            }
        }
        caught.seconds = begin.elapsed().as_secs_f64();
        levels.extend([caught, located]);
    };
    hold("mlx and kernels", &trials);
    if compiled > 0 {
        hold("iree-cpu", &|| compiled_trials(compiled));
    }
    (levels, told)
}

fn count(level: &mut Level, trial: &Trial, holds: bool) {
    match holds {
        true => level.pass(0.0, String::new),
        false => level.fail(Failure {
            execution: trial.execution.into(),
            reason: format!(
                "{} at `{}`: blamed {:?}",
                trial.kind, trial.node, trial.blamed
            ),
            case: String::new(),
        }),
    }
}
