//! What can go wrong, each with the name of the thing that is wrong.

use std::path::PathBuf;

/// An error of the runtime. After any of them the runtime stays usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A device name that is none.
    #[error("unknown device `{name}`: use local-task, local-sync, cuda:N, hip:N or vulkan:N")]
    UnknownDevice {
        /// The name.
        name: String,
    },
    /// A number of threads that is none.
    #[error("MLXCEL_THREADS is `{value}`: give a number from 1 to {maximum}")]
    Threads {
        /// What the variable holds.
        value: String,
        /// The most threads that a device can have.
        maximum: usize,
    },
    /// A device whose driver was not compiled in.
    #[error(
        "device `{device}`: this build has no driver for it; build with `--features {feature}`"
    )]
    DriverNotBuilt {
        /// The device.
        device: String,
        /// The cargo feature that adds the driver.
        feature: String,
    },
    /// A device that its driver could not open.
    #[error("device `{device}` cannot be opened: {message}")]
    DeviceUnavailable {
        /// The device.
        device: String,
        /// The driver's reason.
        message: String,
    },
    /// The device memory could not be allocated, read or written.
    #[error("{operation}: {message}")]
    Memory {
        /// What was tried.
        operation: String,
        /// The device's reason.
        message: String,
    },
    /// The compiled module is broken, or made for another device or another IREE.
    #[error("the compiled module cannot be loaded: {message}")]
    Module {
        /// IREE's reason.
        message: String,
    },
    /// The module declares a weight that nothing provides, or whose size differs.
    #[error("the weights do not fit the compiled module: {message}")]
    Weights {
        /// What is missing, or IREE's reason, which names the parameter.
        message: String,
    },
    /// A function that the module does not export.
    #[error("the compiled module has no function `{function}`; it has {known}")]
    UnknownFunction {
        /// The function.
        function: String,
        /// The functions that it has.
        known: String,
    },
    /// A wrong number of arguments.
    #[error("function `{function}` takes {expected} arguments and was given {actual}")]
    ArgumentCount {
        /// The function.
        function: String,
        /// How many it takes.
        expected: usize,
        /// How many were given.
        actual: usize,
    },
    /// An argument of the wrong type or shape.
    #[error("function `{function}`, argument {index}: expected {expected}, given {actual}")]
    Argument {
        /// The function.
        function: String,
        /// The argument's position, from 0.
        index: usize,
        /// The type that the function takes.
        expected: String,
        /// The type that was given.
        actual: String,
    },
    /// A call that failed.
    #[error("function `{function}` failed: {message}")]
    Call {
        /// The function.
        function: String,
        /// IREE's reason.
        message: String,
    },
    /// An artifact that is damaged, incomplete, or not for this build or machine.
    #[error("{}: {problem}", path.display())]
    Artifact {
        /// The file or folder at fault.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A sequence that was never created, or was released.
    #[error("sequence {0} does not exist")]
    UnknownSequence(u32),
    /// A sequence that stands twice in one step.
    #[error("sequence {0} stands twice in one step")]
    RepeatedSequence(u32),
    /// A row without new tokens.
    #[error("sequence {0} was given no tokens")]
    NoTokens(u32),
    /// A token outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocabulary} entries")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// The chosen token was asked for where the previous step chose none.
    #[error("sequence {0} has no chosen token: its previous step did not ask for one")]
    NothingChosen(u32),
    /// Something wanted that no function of the artifact returns.
    #[error("the artifact has no function for these tokens that returns `{output}`")]
    NoFunction {
        /// The output.
        output: &'static str,
    },
    /// More tokens than the cache can hold.
    #[error(
        "the context of {capacity} tokens is full: sequence {sequence} holds {length} and was \
         given {new} more"
    )]
    ContextFull {
        /// The sequence.
        sequence: u32,
        /// Tokens that it holds.
        length: usize,
        /// Tokens that it was given.
        new: usize,
        /// Tokens that the artifact was compiled for.
        capacity: usize,
    },
    /// A truncation to more tokens than there are.
    #[error("sequence {sequence} holds {length} tokens and cannot be truncated to {to}")]
    Truncate {
        /// The sequence.
        sequence: u32,
        /// Tokens that it holds.
        length: usize,
        /// Tokens that it should keep.
        to: usize,
    },
    /// A truncation that a memory rules out: it holds all of the past and no part of it.
    #[error(
        "sequence {sequence} of {length} tokens cannot be truncated to {to}: the model keeps a \
         memory of all of them; truncate to 0, or fork a sequence before you extend it"
    )]
    TruncateMemory {
        /// The sequence.
        sequence: u32,
        /// Tokens that it holds.
        length: usize,
        /// Tokens that it should keep.
        to: usize,
    },
    /// A truncation that a cache that rotates rules out: what the next token would read has made way for later
    /// tokens.
    #[error(
        "sequence {sequence} of {length} tokens cannot be truncated to {to}: the model reads a window of the \
         latest tokens, and what comes before it is no longer kept; truncate to 0, or fork a sequence before \
         you extend it"
    )]
    TruncateWindow {
        /// The sequence.
        sequence: u32,
        /// Tokens that it holds.
        length: usize,
        /// Tokens that it should keep.
        to: usize,
    },
    /// A sequence whose memories a failed step left half-way.
    #[error(
        "a step of sequence {0} failed after it had changed the sequence's memory; truncate it to 0 \
         or release it"
    )]
    HalfDone(u32),
    /// A ticket waited for twice, or before an older one.
    #[error("ticket {0} is not the oldest one outstanding: wait for tickets in order, once each")]
    UnknownTicket(u64),
    /// A saved sequence that this artifact cannot take back.
    #[error("the saved sequence cannot be restored: {0}")]
    Saved(String),
}
