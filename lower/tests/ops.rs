//! Every primitive and composite op compiles for the machine at hand.

use mlxcel_ir::*;
use mlxcel_lower::{FunctionSpec, Target, compile_graphs};

type Build = fn(&mut Builder) -> Result<ValueId, BuildError>;

fn f32(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape.iter().copied())
}

fn spec(name: &str, build: Build) -> FunctionSpec {
    let mut builder = Builder::new(name);
    builder.input("x", f32(&[2, 3, 8]));
    builder.input("y", f32(&[2, 3, 8]));
    builder.input("i", TensorType::new(DType::I32, [2usize]));
    let value = build(&mut builder).unwrap();
    builder.output("out", value);
    FunctionSpec {
        name: name.into(),
        graph: builder.finish(),
        bindings: Bindings::new(),
    }
}

const X: ValueId = ValueId(0);
const Y: ValueId = ValueId(1);
const I: ValueId = ValueId(2);

#[test]
fn ops_compile() {
    let functions: &[(&str, Build)] = &[
        ("add", |b| b.add(X, Y)),
        ("erf", |b| b.erf(X)),
        ("argmax", |b| b.argmax(X)),
        ("take_row", |b| b.take_row(X, I)),
        ("gather", |b| b.gather(X, I)),
        ("softmax", |b| b.softmax(X)),
        ("reduce", |b| b.reduce(X, Reduction::Min, 1)),
        ("table", |b| b.table(vec![0.5, -1.0, 3.25], DType::BF16)),
    ];
    let functions: Vec<_> = functions.iter().map(|(name, build)| spec(name, *build)).collect();
    let compiled = compile_graphs(&functions, &Target::host()).unwrap();
    assert!(!compiled.vmfb.is_empty());
    eprintln!("{} bytes {:?} {:?}", compiled.vmfb.len(), compiled.time, compiled.compiler);
}
