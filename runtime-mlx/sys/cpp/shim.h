// What mlxcel needs of MLX, in a form that the crate `cxx` can call. Every function that may fail
// throws; `cxx` turns the exception into a Rust error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "mlx/mlx.h"
#include "rust/cxx.h"

namespace mlxcel {

using Array = mlx::core::array;
using Arrays = std::vector<mlx::core::array>;
using Stream = mlx::core::Stream;

enum class Dtype : std::uint8_t;
enum class Unary : std::uint8_t;
enum class Binary : std::uint8_t;
enum class Reduction : std::uint8_t;
struct RawView;
struct Owner;
struct KernelBox;

using Result = std::unique_ptr<Array>;
using Shape = rust::Slice<const std::int32_t>;

// Conversions shared by the files of the shim.
mlx::core::Dtype to_mlx(Dtype dtype);
Dtype from_mlx(mlx::core::Dtype dtype);
inline mlx::core::Shape to_shape(Shape shape) {
  return mlx::core::Shape(shape.begin(), shape.end());
}
inline Result boxed(Array array) {
  return std::make_unique<Array>(std::move(array));
}

bool gpu_available();
std::unique_ptr<Stream> new_stream(bool gpu);
bool stream_is_gpu(const Stream& stream);
void synchronize(const Stream& stream);
std::size_t active_memory();
std::size_t peak_memory();
std::size_t cache_memory();
std::size_t set_cache_limit(std::size_t bytes);
void clear_cache();
void exact_arithmetic();

Result copy(const Array& array);
Result from_bytes(rust::Slice<const std::uint8_t> data, Shape shape, Dtype dtype);
Result from_memory(const std::uint8_t* data, Shape shape, Dtype dtype, rust::Box<Owner> owner);
Shape shape(const Array& array);
Dtype dtype(const Array& array);
std::size_t byte_size(const Array& array);
bool is_contiguous(const Array& array);
const std::uint8_t* data(const Array& array);
void wait(const Array& array);

std::unique_ptr<Arrays> new_arrays();
void push(Arrays& list, const Array& array);
std::size_t length(const Arrays& list);
Result get(const Arrays& list, std::size_t index);
void eval(const Arrays& list);
void async_eval(const Arrays& list);

Result full(double value, Shape shape, Dtype dtype, const Stream& s);
Result arange(std::int32_t count, Dtype dtype, const Stream& s);
Result astype(const Array& x, Dtype dtype, const Stream& s);
Result unary(Unary kind, const Array& x, const Stream& s);
Result binary(Binary kind, const Array& lhs, const Array& rhs, const Stream& s);
Result select(const Array& c, const Array& a, const Array& b, const Stream& s);
Result reshape(const Array& x, Shape shape, const Stream& s);
Result transpose(const Array& x, Shape permutation, const Stream& s);
Result broadcast(const Array& x, Shape shape, const Stream& s);
Result slice(const Array& x, Shape start, Shape stop, Shape stride, const Stream& s);
Result slice_update(
    const Array& x, const Array& update, Shape start, Shape stop, const Stream& s);
Result concatenate(const Arrays& list, std::int32_t axis, const Stream& s);
Result take(const Array& x, const Array& indices, std::int32_t axis, const Stream& s);
Result take_along(const Array& x, const Array& indices, std::int32_t axis, const Stream& s);
Result matmul(const Array& lhs, const Array& rhs, const Stream& s);
Result reduce(Reduction kind, const Array& x, std::int32_t axis, const Stream& s);
Result argmax(const Array& x, std::int32_t axis, const Stream& s);
Result contiguous(const Array& x, const Stream& s);
Result softmax(const Array& x, std::int32_t axis, const Stream& s);
Result dequantize(
    const Array& codes, const Array& scales, const Array& biases, std::int32_t group,
    std::int32_t bits, const Stream& s);
Result quantized_matmul(
    const Array& x, const Array& codes, const Array& scales, const Array& biases,
    std::int32_t group, std::int32_t bits, const Stream& s);
Result gather_mm(
    const Array& x, const Array& weights, const Array& chosen, const Stream& s);
Result gather_qmm(
    const Array& x, const Array& codes, const Array& scales, const Array& biases,
    const Array& chosen, std::int32_t group, std::int32_t bits, const Stream& s);
Result rms_norm(const Array& x, const Arrays& weight, float epsilon, const Stream& s);
Result layer_norm(
    const Array& x, const Arrays& weight, const Arrays& bias, float epsilon, const Stream& s);
Result rope(
    const Array& x, std::int32_t dims, bool interleaved, const Array& offset,
    const Array& periods, const Stream& s);
Result attention(
    const Array& q, const Array& k, const Array& v, float scale, bool causal,
    const Arrays& mask, const Arrays& sinks, const Stream& s);
std::unique_ptr<Arrays> custom(
    rust::Str name, rust::Box<KernelBox> kernel, const Arrays& inputs, Shape shapes,
    rust::Slice<const std::size_t> ranks, rust::Slice<const Dtype> dtypes, const Stream& s);

} // namespace mlxcel
