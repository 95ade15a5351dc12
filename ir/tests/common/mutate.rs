//! Damage to a legal graph, and what the verifier must say about it.

use crate::generate::Tape;
use mlxcel_ir::{DType, Graph, Node, Op, StateId, ValueId, WeightFormat, WeightId};

/// Damages the graph, or gives `None` where it has nothing to damage this way.
type Mutation = fn(&mut Graph, &mut Tape<'_>) -> Option<()>;

/// Each kind of damage by name, and a part of the reason that the verifier must give.
pub(crate) const MUTATIONS: &[(&str, Mutation, &str)] = &[
    ("operand below", operand_below, "is not defined above"),
    ("operand missing", operand_missing, "operands ("),
    ("weight unknown", weight_unknown, "no weight"),
    ("state unknown", state_unknown, "no state"),
    ("state missing", state_missing, "needs a state"),
    ("state superfluous", state_superfluous, "takes no state"),
    ("type changed", type_changed, "the type must be"),
    ("rank changed", rank_changed, "the type must be"),
    ("append repeated", append_repeated, "a second time"),
    (
        "node name repeated",
        node_name_repeated,
        "the name is taken already",
    ),
    (
        "weight name repeated",
        weight_name_repeated,
        "the name is taken already",
    ),
    (
        "state name repeated",
        state_name_repeated,
        "the name is taken already",
    ),
    (
        "input name repeated",
        input_name_repeated,
        "the name is taken already",
    ),
    (
        "output name repeated",
        output_name_repeated,
        "the name is taken already",
    ),
    ("output name empty", output_name_empty, "the name is empty"),
    ("output unknown", output_unknown, "there is no value"),
    ("bits", bits, "bits must be 2, 3, 4, 5, 6 or 8"),
    ("group", group, "must divide the last dimension"),
    (
        "weight element type",
        weight_type,
        "must be a floating-point type",
    ),
    ("size too large", size, "more bytes than can be addressed"),
    ("attribute without text", attribute, "attribute `window`"),
];

fn node<'g>(
    graph: &'g mut Graph,
    tape: &mut Tape<'_>,
    fits: impl Fn(&Node) -> bool,
) -> Option<&'g mut Node> {
    let mut fitting: Vec<&mut Node> = graph.nodes.iter_mut().filter(|node| fits(node)).collect();
    let index = tape.below(fitting.len());
    (index < fitting.len()).then(|| fitting.swap_remove(index))
}

fn operand_below(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    let index = tape.below(graph.nodes.len());
    let values = graph.inputs.len() + graph.nodes.len();
    let own = graph.inputs.len() + index;
    let operand = graph.nodes.get_mut(index)?.operands.first_mut()?;
    *operand = ValueId((own + tape.below(values - own + 2)) as u32);
    Some(())
}

fn operand_missing(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    let node = node(graph, tape, |node| !node.operands.is_empty())?;
    node.operands.pop().map(|_| ())
}

fn weight_unknown(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    let unknown = WeightId(graph.weights.len() as u32);
    let node = node(graph, tape, |node| !node.weights.is_empty())?;
    *node.weights.first_mut()? = unknown;
    Some(())
}

fn stateful(node: &Node) -> bool {
    node.state.is_some()
}

fn state_unknown(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    let unknown = StateId(graph.states.len() as u32);
    node(graph, tape, stateful)?.state = Some(unknown);
    Some(())
}

fn state_missing(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    node(graph, tape, stateful)?.state = None;
    Some(())
}

fn state_superfluous(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    node(graph, tape, |node| !stateful(node))?.state = Some(StateId(0));
    Some(())
}

fn type_changed(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    // The last node, so that no other one disagrees first.
    let ty = &mut graph.nodes.last_mut()?.ty;
    let others = DType::ALL.into_iter().filter(|dtype| *dtype != ty.dtype);
    let others: Vec<DType> = others.collect();
    ty.dtype = others[tape.below(others.len())];
    Some(())
}

fn rank_changed(graph: &mut Graph, _: &mut Tape<'_>) -> Option<()> {
    graph.nodes.last_mut()?.ty.shape.push(1.into());
    Some(())
}

fn append_repeated(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    let mut again = node(graph, tape, stateful)?.clone();
    again.name = None;
    graph.nodes.push(again);
    Some(())
}

fn node_name_repeated(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    let named = node(graph, tape, |node| node.name.is_some())?.name.clone();
    let mut again = graph.nodes.first()?.clone();
    again.name = named;
    graph.nodes.push(again);
    Some(())
}

fn repeat<T: Clone>(items: &mut Vec<T>, tape: &mut Tape<'_>) -> Option<()> {
    let again = items.get(tape.below(items.len()))?.clone();
    items.push(again);
    Some(())
}

fn weight_name_repeated(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    repeat(&mut graph.weights, tape)
}

fn state_name_repeated(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    repeat(&mut graph.states, tape)
}

fn input_name_repeated(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    let index = tape.below(graph.inputs.len() - 1);
    graph.inputs[index + 1].name = graph.inputs[index].name.clone();
    Some(())
}

fn output_name_repeated(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    repeat(&mut graph.outputs, tape)
}

fn output_name_empty(graph: &mut Graph, _: &mut Tape<'_>) -> Option<()> {
    graph.outputs.last_mut()?.name.clear();
    Some(())
}

fn output_unknown(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    let values = graph.inputs.len() + graph.nodes.len();
    graph.outputs.last_mut()?.value = ValueId((values + tape.below(3)) as u32);
    Some(())
}

fn affine(graph: &mut Graph) -> Option<(&mut u8, &mut usize)> {
    let formats = graph.weights.iter_mut().map(|weight| &mut weight.format);
    formats.into_iter().find_map(|format| match format {
        WeightFormat::Affine { bits, group, .. } => Some((bits, group)),
        _ => None,
    })
}

fn bits(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    *affine(graph)?.0 = [0, 1, 10, 7, 9, 255][tape.below(6)];
    Some(())
}

fn group(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    *affine(graph)?.1 = [0, 3, 64, usize::MAX][tape.below(4)];
    Some(())
}

fn weight_type(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    let index = tape.below(graph.weights.len());
    graph.weights.get_mut(index)?.format = WeightFormat::Dense(DType::I32);
    Some(())
}

fn size(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    let index = tape.below(graph.weights.len());
    graph.weights.get_mut(index)?.shape = vec![0, usize::MAX / 2, 3];
    Some(())
}

fn attribute(graph: &mut Graph, tape: &mut Tape<'_>) -> Option<()> {
    let attention = |node: &Node| matches!(node.op, Op::Attention { .. });
    match &mut node(graph, tape, attention)?.op {
        Op::Attention { window, .. } => *window = Some(usize::MAX),
        _ => return None,
    }
    Some(())
}
