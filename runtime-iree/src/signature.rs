//! What an exported function takes and returns, read from what the compiler left in the module.

use mlxcel_ir::DType;

/// The types of a function's arguments and results, in MLIR's notation, for instance
/// `tensor<1x32xi32>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The name, without the module's.
    pub name: String,
    /// Types of the arguments.
    pub inputs: Vec<String>,
    /// Types of the results.
    pub outputs: Vec<String>,
}

impl Signature {
    /// Reads a declaration as the compiler attaches it to a function:
    /// `sync func @add(%input0: tensor<4xf32>) -> (%output0: tensor<4xf32>)`.
    pub(crate) fn parse(name: &str, declaration: &str) -> Option<Self> {
        let (_, rest) = declaration.split_once('@')?;
        let (_, rest) = rest.split_once('(')?;
        let (inputs, rest) = types(rest)?;
        let outputs = match rest.split_once('(') {
            Some((_, rest)) => types(rest)?.0,
            None => Vec::new(),
        };
        Some(Self {
            name: name.to_string(),
            inputs,
            outputs,
        })
    }

    /// Whether the argument `index` is a tensor of this type. Compiled functions do not tell signed
    /// from unsigned integers.
    pub(crate) fn accepts(&self, index: usize, dtype: DType, shape: &[usize]) -> bool {
        let same_type =
            |expected: DType| expected == dtype || (expected.is_integer() && dtype.is_integer());
        self.inputs
            .get(index)
            .and_then(|input| tensor(input))
            .is_some_and(|(dims, expected)| dims == shape && same_type(expected))
    }
}

/// A tensor type in MLIR's notation.
pub(crate) fn tensor_type(dtype: DType, shape: &[usize]) -> String {
    let dims: String = shape.iter().map(|dim| format!("{dim}x")).collect();
    let element = match dtype {
        DType::Bool => "i1",
        DType::U32 => "ui32",
        other => other.name(),
    };
    format!("tensor<{dims}{element}>")
}

/// Splits `%a: T, %b: U) rest` into its types and the rest. Attributes in braces are left out.
fn types(list: &str) -> Option<(Vec<String>, &str)> {
    let mut found = Vec::new();
    let mut depth = 0usize;
    let mut start = 0;
    for (position, byte) in list.bytes().enumerate() {
        let ends = match byte {
            b'<' | b'(' | b'{' | b'[' => {
                depth += 1;
                false
            }
            b')' if depth == 0 => true,
            b'>' | b')' | b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                false
            }
            b',' => depth == 0,
            _ => false,
        };
        if ends {
            let item = list.get(start..position)?.trim();
            if !item.is_empty() {
                let (_, kind) = item.split_once(':')?;
                let kind = kind.split('{').next().unwrap_or(kind);
                found.push(kind.trim().to_string());
            }
            start = position + 1;
            if byte == b')' {
                return Some((found, list.get(start..)?));
            }
        }
    }
    None
}

fn tensor(text: &str) -> Option<(Vec<usize>, DType)> {
    let inner = text.strip_prefix("tensor<")?.strip_suffix('>')?;
    let mut parts: Vec<&str> = inner.split('x').collect();
    let element = parts.pop()?;
    let dtype = match element {
        "i1" | "i8" => DType::Bool,
        "ui32" => DType::U32,
        "si32" => DType::I32,
        other => other.parse().ok()?,
    };
    let shape = parts
        .into_iter()
        .map(|dim| dim.parse().ok())
        .collect::<Option<Vec<_>>>()?;
    Some((shape, dtype))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_declarations() {
        let check = |declaration, expect: Option<(&[&str], &[&str])>| {
            let actual = Signature::parse("f", declaration);
            let actual = actual.as_ref().map(|signature| {
                let text = |list: &[String]| list.join(" ");
                (text(&signature.inputs), text(&signature.outputs))
            });
            let expect = expect.map(|(inputs, outputs)| (inputs.join(" "), outputs.join(" ")));
            assert_eq!(actual, expect, "{declaration}");
        };
        check(
            "sync func @f(%input0: tensor<4xf32>, %input1: tensor<1x2xi32> {iree.abi.output = 0 : index}) -> (%output0: tensor<f32>)",
            Some((&["tensor<4xf32>", "tensor<1x2xi32>"], &["tensor<f32>"])),
        );
        check("sync func @f() -> ()", Some((&[], &[])));
        check("sync func @f(%x: i32)", Some((&["i32"], &[])));
        check("sync func @f(%x: tensor<4xf32>", None);
        check("func f(%x: i32)", None);
        check("", None);
    }

    #[test]
    fn reads_tensor_types() {
        let check = |text, expect: Option<(&[usize], DType)>| {
            let expect = expect.map(|(shape, dtype)| (shape.to_vec(), dtype));
            assert_eq!(tensor(text), expect, "{text}");
        };
        check("tensor<4x5xf32>", Some((&[4, 5], DType::F32)));
        check("tensor<bf16>", Some((&[], DType::BF16)));
        check("tensor<?xf32>", None);
        check("tensor<4xi4>", None);
        check("i32", None);
    }

    proptest! {
        #[test]
        fn no_declaration_panics(text in ".*") {
            let _ = Signature::parse("f", &text);
        }

        #[test]
        fn tensor_types_round_trip(
            shape in prop::collection::vec(0usize..5000, 0..5),
            dtype in prop::sample::select(DType::ALL.to_vec()),
        ) {
            prop_assert_eq!(tensor(&tensor_type(dtype, &shape)), Some((shape, dtype)));
        }
    }
}
