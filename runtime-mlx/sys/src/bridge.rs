//! The functions of the shim, as the crate `cxx` sees them: C++ exceptions arrive as `Err`.

use crate::custom::KernelBox;
use crate::memory::Owner;

#[allow(unreachable_pub, missing_docs, clippy::too_many_arguments)]
#[cxx::bridge(namespace = "mlxcel")]
pub(crate) mod ffi {
    /// Element types that the shim knows; MLX has more.
    #[derive(Debug, PartialEq, Eq, Hash, Clone, Copy)]
    enum Dtype {
        Bool,
        I32,
        U32,
        F16,
        BF16,
        F32,
    }

    /// Operations of one tensor, element by element.
    #[derive(Debug, Clone, Copy)]
    enum Unary {
        Negate,
        Abs,
        Exp,
        Log,
        Log1p,
        Rsqrt,
        Sqrt,
        Sin,
        Cos,
        Tanh,
        Sigmoid,
        Erf,
        Not,
        Sign,
    }

    /// Operations of two tensors, element by element, with broadcasting.
    #[derive(Debug, Clone, Copy)]
    enum Binary {
        Add,
        Subtract,
        Multiply,
        Divide,
        FloorDivide,
        Maximum,
        Minimum,
        Power,
        Equal,
        NotEqual,
        Less,
        LessEqual,
        Greater,
        GreaterEqual,
        And,
        Or,
    }

    /// Reductions of one dimension.
    #[derive(Debug, Clone, Copy)]
    enum Reduction {
        Sum,
        Max,
        Min,
    }

    /// A tensor as a custom primitive sees it.
    #[derive(Clone, Copy)]
    struct RawView {
        data: *mut u8,
        shape: *const i32,
        rank: usize,
        elements: usize,
        dtype: Dtype,
    }

    extern "Rust" {
        type Owner;
        type KernelBox;
        fn run_kernel(kernel: &KernelBox, inputs: &[RawView], outputs: &[RawView]) -> Result<()>;
    }

    unsafe extern "C++" {
        include!("shim.h");

        type Array;
        type Arrays;
        type Stream;

        // Devices and memory.
        fn gpu_available() -> bool;
        fn new_stream(gpu: bool) -> Result<UniquePtr<Stream>>;
        fn stream_is_gpu(stream: &Stream) -> bool;
        fn synchronize(stream: &Stream) -> Result<()>;
        fn active_memory() -> usize;
        fn peak_memory() -> usize;
        fn cache_memory() -> usize;
        fn set_cache_limit(bytes: usize) -> usize;
        fn clear_cache();
        fn exact_arithmetic();

        // Arrays.
        fn copy(array: &Array) -> UniquePtr<Array>;
        fn from_bytes(data: &[u8], shape: &[i32], dtype: Dtype) -> Result<UniquePtr<Array>>;
        unsafe fn from_memory(
            data: *const u8,
            shape: &[i32],
            dtype: Dtype,
            owner: Box<Owner>,
        ) -> Result<UniquePtr<Array>>;
        fn shape(array: &Array) -> &[i32];
        fn dtype(array: &Array) -> Result<Dtype>;
        fn byte_size(array: &Array) -> usize;
        fn is_contiguous(array: &Array) -> bool;
        fn data(array: &Array) -> Result<*const u8>;
        fn wait(array: &Array) -> Result<()>;

        // Lists of arrays.
        fn new_arrays() -> UniquePtr<Arrays>;
        fn push(list: Pin<&mut Arrays>, array: &Array);
        fn length(list: &Arrays) -> usize;
        fn get(list: &Arrays, index: usize) -> Result<UniquePtr<Array>>;
        fn eval(list: &Arrays) -> Result<()>;
        fn async_eval(list: &Arrays) -> Result<()>;

        // Operations.
        fn full(value: f64, shape: &[i32], dtype: Dtype, s: &Stream) -> Result<UniquePtr<Array>>;
        fn arange(count: i32, dtype: Dtype, s: &Stream) -> Result<UniquePtr<Array>>;
        fn astype(x: &Array, dtype: Dtype, s: &Stream) -> Result<UniquePtr<Array>>;
        fn unary(kind: Unary, x: &Array, s: &Stream) -> Result<UniquePtr<Array>>;
        fn binary(kind: Binary, lhs: &Array, rhs: &Array, s: &Stream) -> Result<UniquePtr<Array>>;
        fn select(c: &Array, a: &Array, b: &Array, s: &Stream) -> Result<UniquePtr<Array>>;
        fn reshape(x: &Array, shape: &[i32], s: &Stream) -> Result<UniquePtr<Array>>;
        fn transpose(x: &Array, permutation: &[i32], s: &Stream) -> Result<UniquePtr<Array>>;
        fn broadcast(x: &Array, shape: &[i32], s: &Stream) -> Result<UniquePtr<Array>>;
        fn slice(
            x: &Array,
            start: &[i32],
            stop: &[i32],
            stride: &[i32],
            s: &Stream,
        ) -> Result<UniquePtr<Array>>;
        fn slice_update(
            x: &Array,
            update: &Array,
            start: &[i32],
            stop: &[i32],
            s: &Stream,
        ) -> Result<UniquePtr<Array>>;
        fn concatenate(list: &Arrays, axis: i32, s: &Stream) -> Result<UniquePtr<Array>>;
        fn take(x: &Array, indices: &Array, axis: i32, s: &Stream) -> Result<UniquePtr<Array>>;
        fn take_along(
            x: &Array,
            indices: &Array,
            axis: i32,
            s: &Stream,
        ) -> Result<UniquePtr<Array>>;
        fn matmul(lhs: &Array, rhs: &Array, s: &Stream) -> Result<UniquePtr<Array>>;
        fn reduce(kind: Reduction, x: &Array, axis: i32, s: &Stream) -> Result<UniquePtr<Array>>;
        fn argmax(x: &Array, axis: i32, s: &Stream) -> Result<UniquePtr<Array>>;
        fn contiguous(x: &Array, s: &Stream) -> Result<UniquePtr<Array>>;
        fn softmax(x: &Array, axis: i32, s: &Stream) -> Result<UniquePtr<Array>>;
        fn dequantize(
            codes: &Array,
            scales: &Array,
            biases: &Array,
            group: i32,
            bits: i32,
            s: &Stream,
        ) -> Result<UniquePtr<Array>>;
        fn quantized_matmul(
            x: &Array,
            codes: &Array,
            scales: &Array,
            biases: &Array,
            group: i32,
            bits: i32,
            s: &Stream,
        ) -> Result<UniquePtr<Array>>;
        fn gather_mm(
            x: &Array,
            weights: &Array,
            chosen: &Array,
            s: &Stream,
        ) -> Result<UniquePtr<Array>>;
        fn gather_qmm(
            x: &Array,
            codes: &Array,
            scales: &Array,
            biases: &Array,
            chosen: &Array,
            group: i32,
            bits: i32,
            s: &Stream,
        ) -> Result<UniquePtr<Array>>;
        fn layer_norm(
            x: &Array,
            weight: &Arrays,
            bias: &Arrays,
            epsilon: f32,
            s: &Stream,
        ) -> Result<UniquePtr<Array>>;
        fn rms_norm(
            x: &Array,
            weight: &Arrays,
            epsilon: f32,
            s: &Stream,
        ) -> Result<UniquePtr<Array>>;
        fn rope(
            x: &Array,
            dims: i32,
            interleaved: bool,
            offset: &Array,
            periods: &Array,
            s: &Stream,
        ) -> Result<UniquePtr<Array>>;
        fn attention(
            q: &Array,
            k: &Array,
            v: &Array,
            scale: f32,
            causal: bool,
            mask: &Arrays,
            sinks: &Arrays,
            s: &Stream,
        ) -> Result<UniquePtr<Array>>;
        fn custom(
            name: &str,
            kernel: Box<KernelBox>,
            inputs: &Arrays,
            shapes: &[i32],
            ranks: &[usize],
            dtypes: &[Dtype],
            s: &Stream,
        ) -> Result<UniquePtr<Arrays>>;
    }

    impl UniquePtr<Array> {}
}

fn run_kernel(
    kernel: &KernelBox,
    inputs: &[ffi::RawView],
    outputs: &[ffi::RawView],
) -> Result<(), String> {
    crate::custom::run(kernel, inputs, outputs)
}
