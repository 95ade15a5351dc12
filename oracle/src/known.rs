//! Faults that libraries have: declared, each with a case that fails as long as the fault is there.

mod sine;

use crate::case::Case;
use crate::execution::{Execution, ExecutionError, IreeExecution, MlxExecution};
use crate::standard::Standard;
use crate::summary::{Failure, Level};

/// A declared limitation.
pub struct Limitation {
    /// Its name.
    pub name: &'static str,
    /// The execution that has it.
    pub execution: fn() -> Box<dyn Execution>,
    /// What is wrong and why.
    pub cause: &'static str,
    /// What the execution says of it, in part; empty where it says nothing and is wrong.
    pub says: &'static str,
    /// The units in the last place of the result that the case is held to, where the oracle's own bound is
    /// wider on account of the limitation.
    pub ulp: Option<f64>,
    /// A case that has it.
    pub case: &'static str,
}

/// Every declared limitation.
pub const KNOWN: &[Limitation] = &[
    Limitation {
        name: "rows of codes with no multiple of eight",
        execution: || Box::new(IreeExecution),
        cause: "codes are unpacked eight at a time, so groups that are no multiple of eight are refused \
                before the compiler runs; no checkpoint has such",
        says: "groups of a multiple of 8 can be compiled",
        ulp: None,
        case: include_str!("known/odd_groups.mxg"),
    },
    Limitation {
        name: "two equal results of one dispatch",
        execution: || Box::new(IreeExecution),
        cause: "a choice between a choice and one of its sides, by the same condition, is that choice. IREE's \
                compiler fuses both into one dispatch with two results, finds out there that they are equal, and \
                then has a write of the second outside of the loops that it distributes. Either alone compiles; \
                no model chooses twice by one condition",
        says: "are restricted to workgroup distributed contexts",
        ulp: None,
        case: include_str!("known/equal_results.mxg"),
    },
    Limitation {
        name: "a row taken in the orders of itself and of its attention",
        execution: || Box::new(IreeExecution),
        cause: "IREE's compiler fuses the two orders, of which one needs the attention's result, into one dispatch, \
                and places it before the attention. Each alone compiles, and so do both without a cache between \
                them; no model sorts the vectors of its attention",
        says: "does not dominate this use",
        ulp: None,
        case: include_str!("known/two_orders.mxg"),
    },
    Limitation {
        name: "error function of small numbers",
        execution: || Box::new(MlxExecution::Operations),
        cause: "MLX computes erf by an exponential, whose error of 1.5e-7 is absolute; relative to the \
                result it grows without bound towards zero. The bound of erf is absolute for that reason; \
                this case holds it to 16 units in the last place of the result",
        says: "",
        ulp: Some(16.0),
        case: include_str!("known/small_erf.mxg"),
    },
    Limitation {
        name: "sine of large angles",
        execution: || Box::new(IreeExecution),
        cause: "IREE reduces an angle by a π that is rounded to f32, so that sine and cosine are off by 2.8e-8 of \
                the angle: by 1e-5 at 355, by 1e-3 at 32768. Rotary embedding's angles are rounded to f32 anyway, \
                which is as much again; the bound of sine and cosine is wide enough for it",
        says: "",
        ulp: Some(16.0),
        case: include_str!("known/sine.mxg"),
    },
    Limitation {
        name: "sine of small negative angles",
        execution: || Box::new(IreeExecution),
        cause: "IREE reduces an angle by the multiple of π/2 below it, so that a small negative one becomes one near \
                π/2 and its sine has an absolute error of up to 4 u, 2.4e-7; `known/sine.rs` derives it, and \
                random graphs on IREE are held to it. Rotary embedding's angles are not negative",
        says: "",
        ulp: None,
        case: include_str!("known/small_sine.mxg"),
    },
    Limitation {
        name: "sum of thousands of equal numbers",
        execution: || Box::new(MlxExecution::Operations),
        cause: "MLX adds in a few lanes, one number after the other. Equal numbers are rounded the same way at \
                each addition, so that the errors add up and do not cancel: 2.8e-4 for a softmax over 32,790 \
                equal scores, twice the bound, which takes rounding errors for independent. An empty cache has \
                equal scores; that of a text has not",
        says: "",
        ulp: None,
        case: include_str!("known/equal_terms.mxg"),
    },
    Limitation {
        name: "sigmoid of f16 below -11",
        execution: || Box::new(MlxExecution::Operations),
        cause: "MLX computes 1 / (1 + e^-x) in f16, where e^-x is infinite below -11.09 and the result 0; \
                no execution of a model does so, for models are run in f32",
        says: "",
        ulp: None,
        case: include_str!("known/half_sigmoid.mxg"),
    },
    Limitation {
        name: "exponential above 88.37",
        execution: || Box::new(MlxExecution::Operations),
        cause: "MLX's exponential for CPUs gives infinity above 88.37, while f32 and bf16 reach to 88.72",
        says: "",
        ulp: None,
        case: include_str!("known/large_exp.mxg"),
    },
];

/// What the outputs of a case should be, with bounds that hold of an execution in spite of its
/// declared limitations.
///
/// # Errors
/// If the graph cannot be interpreted.
pub fn expected(case: &Case, execution: &dyn Execution) -> Result<Standard, ExecutionError> {
    match execution.name() == IreeExecution.name() {
        true => sine::weakened(case).as_ref().unwrap_or(case).standard(),
        false => case.standard(),
    }
}

/// The limitation that explains what an execution said.
pub fn explains(execution: &dyn Execution, message: &str) -> Option<&'static Limitation> {
    KNOWN.iter().find(|known| {
        !known.says.is_empty()
            && (known.execution)().name() == execution.name()
            && message.contains(known.says)
    })
}

/// Whether the fault is still there.
///
/// # Errors
/// What is wrong with the case, or with what the execution says of it.
pub fn present(known: &Limitation) -> Result<bool, String> {
    let case = Case::parse(known.case).map_err(|error| error.to_string())?;
    let execution = (known.execution)();
    match case.run(&*execution) {
        Err(error) => {
            let message = full(&error);
            match !known.says.is_empty() && message.contains(known.says) {
                true => Ok(true),
                false => Err(message),
            }
        }
        Ok(observed) if known.ulp.is_some() => {
            let standard = case.standard().map_err(|error| error.to_string())?;
            let most = known.ulp.unwrap_or(0.0) * f64::from(f32::EPSILON);
            let far = |(r, x): (f64, &f64)| (x - r).abs() > most * r.abs();
            let mut outputs = standard.0.iter().zip(&observed);
            Ok(outputs.any(|((_, tensor), observed)| {
                tensor.to_f64().into_iter().zip(&observed.values).any(far)
            }))
        }
        Ok(observed) => {
            let standard = case.standard().map_err(|error| error.to_string())?;
            Ok(standard
                .worst(&observed)
                .is_some_and(|worst| !worst.within()))
        }
    }
}

/// An error with its causes.
pub fn full(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message.push_str(": ");
        message.push_str(&cause.to_string());
        source = cause.source();
    }
    message
}

/// Runs the level: a limitation that is gone is a failure, so that its declaration goes too.
pub fn run() -> Level {
    let mut level = Level::new("declared limitations");
    for known in KNOWN {
        let begin = std::time::Instant::now();
        match present(known) {
            Ok(true) => level.pass(0.0, String::new),
            Ok(false) => level.fail(Failure {
                execution: (known.execution)().name().into(),
                reason: format!("`{}` is gone: remove its declaration", known.name),
                case: known.case.into(),
            }),
            Err(reason) => level.fail(Failure {
                execution: (known.execution)().name().into(),
                reason: format!("`{}` is another fault now: {reason}", known.name),
                case: known.case.into(),
            }),
        }
        level.seconds += begin.elapsed().as_secs_f64();
    }
    level
}
