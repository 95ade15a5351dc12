// Operations: each forwards to MLX on the given stream.
#include "shim.h"

#include <optional>
#include <stdexcept>

#include "mlx/fast.h"
#include "mlxcel-mlx-sys/src/bridge.rs.h"

namespace mx = mlx::core;

namespace mlxcel {

// The only element of a list, if there is one.
static std::optional<Array> optional(const Arrays& list) {
  return list.empty() ? std::nullopt : std::optional<Array>(list.front());
}

Result full(double value, Shape shape, Dtype dtype, const Stream& s) {
  if (dtype == Dtype::I32) {
    return boxed(mx::full(to_shape(shape), static_cast<std::int32_t>(value), mx::int32, s));
  }
  if (dtype == Dtype::U32) {
    return boxed(mx::full(to_shape(shape), static_cast<std::uint32_t>(value), mx::uint32, s));
  }
  return boxed(mx::full(to_shape(shape), static_cast<float>(value), to_mlx(dtype), s));
}

Result arange(std::int32_t count, Dtype dtype, const Stream& s) {
  return boxed(mx::arange(0.0, static_cast<double>(count), 1.0, to_mlx(dtype), s));
}

Result astype(const Array& x, Dtype dtype, const Stream& s) {
  return boxed(mx::astype(x, to_mlx(dtype), s));
}

Result unary(Unary kind, const Array& x, const Stream& s) {
  switch (kind) {
    case Unary::Negate:
      return boxed(mx::negative(x, s));
    case Unary::Abs:
      return boxed(mx::abs(x, s));
    case Unary::Exp:
      return boxed(mx::exp(x, s));
    case Unary::Log:
      return boxed(mx::log(x, s));
    case Unary::Log1p:
      return boxed(mx::log1p(x, s));
    case Unary::Rsqrt:
      return boxed(mx::rsqrt(x, s));
    case Unary::Sqrt:
      return boxed(mx::sqrt(x, s));
    case Unary::Sin:
      return boxed(mx::sin(x, s));
    case Unary::Cos:
      return boxed(mx::cos(x, s));
    case Unary::Tanh:
      return boxed(mx::tanh(x, s));
    case Unary::Sigmoid:
      return boxed(mx::sigmoid(x, s));
    case Unary::Erf:
      return boxed(mx::erf(x, s));
    case Unary::Not:
      return boxed(mx::logical_not(x, s));
    case Unary::Sign:
      return boxed(mx::sign(x, s));
  }
  throw std::invalid_argument("unknown operation");
}

Result binary(Binary kind, const Array& lhs, const Array& rhs, const Stream& s) {
  switch (kind) {
    case Binary::Add:
      return boxed(mx::add(lhs, rhs, s));
    case Binary::Subtract:
      return boxed(mx::subtract(lhs, rhs, s));
    case Binary::Multiply:
      return boxed(mx::multiply(lhs, rhs, s));
    case Binary::Divide:
      return boxed(mx::divide(lhs, rhs, s));
    case Binary::FloorDivide:
      return boxed(mx::floor_divide(lhs, rhs, s));
    case Binary::Maximum:
      return boxed(mx::maximum(lhs, rhs, s));
    case Binary::Minimum:
      return boxed(mx::minimum(lhs, rhs, s));
    case Binary::Power:
      return boxed(mx::power(lhs, rhs, s));
    case Binary::Equal:
      return boxed(mx::equal(lhs, rhs, s));
    case Binary::NotEqual:
      return boxed(mx::not_equal(lhs, rhs, s));
    case Binary::Less:
      return boxed(mx::less(lhs, rhs, s));
    case Binary::LessEqual:
      return boxed(mx::less_equal(lhs, rhs, s));
    case Binary::Greater:
      return boxed(mx::greater(lhs, rhs, s));
    case Binary::GreaterEqual:
      return boxed(mx::greater_equal(lhs, rhs, s));
    case Binary::And:
      return boxed(mx::logical_and(lhs, rhs, s));
    case Binary::Or:
      return boxed(mx::logical_or(lhs, rhs, s));
  }
  throw std::invalid_argument("unknown operation");
}

Result select(const Array& c, const Array& a, const Array& b, const Stream& s) {
  return boxed(mx::where(c, a, b, s));
}

Result reshape(const Array& x, Shape shape, const Stream& s) {
  return boxed(mx::reshape(x, to_shape(shape), s));
}

Result transpose(const Array& x, Shape permutation, const Stream& s) {
  return boxed(mx::transpose(x, std::vector<int>(permutation.begin(), permutation.end()), s));
}

Result broadcast(const Array& x, Shape shape, const Stream& s) {
  return boxed(mx::broadcast_to(x, to_shape(shape), s));
}

Result slice(const Array& x, Shape start, Shape stop, Shape stride, const Stream& s) {
  return boxed(mx::slice(x, to_shape(start), to_shape(stop), to_shape(stride), s));
}

Result slice_update(
    const Array& x, const Array& update, Shape start, Shape stop, const Stream& s) {
  return boxed(mx::slice_update(x, update, to_shape(start), to_shape(stop), s));
}

Result concatenate(const Arrays& list, std::int32_t axis, const Stream& s) {
  return boxed(mx::concatenate(list, axis, s));
}

Result take(const Array& x, const Array& indices, std::int32_t axis, const Stream& s) {
  return boxed(mx::take(x, indices, axis, s));
}

Result take_along(const Array& x, const Array& indices, std::int32_t axis, const Stream& s) {
  return boxed(mx::take_along_axis(x, indices, axis, s));
}

Result matmul(const Array& lhs, const Array& rhs, const Stream& s) {
  return boxed(mx::matmul(lhs, rhs, s));
}

Result reduce(Reduction kind, const Array& x, std::int32_t axis, const Stream& s) {
  switch (kind) {
    case Reduction::Sum:
      return boxed(mx::sum(x, axis, /* keepdims */ true, s));
    case Reduction::Max:
      return boxed(mx::max(x, axis, /* keepdims */ true, s));
    case Reduction::Min:
      return boxed(mx::min(x, axis, /* keepdims */ true, s));
  }
  throw std::invalid_argument("unknown reduction");
}

Result argmax(const Array& x, std::int32_t axis, const Stream& s) {
  return boxed(mx::argmax(x, axis, /* keepdims */ false, s));
}

Result contiguous(const Array& x, const Stream& s) {
  return boxed(mx::contiguous(x, /* allow_col_major */ false, s));
}

Result softmax(const Array& x, std::int32_t axis, const Stream& s) {
  return boxed(mx::softmax(x, axis, /* precise */ true, s));
}

Result dequantize(
    const Array& codes, const Array& scales, const Array& biases, std::int32_t group,
    std::int32_t bits, const Stream& s) {
  return boxed(mx::dequantize(
      codes, scales, biases, group, bits, "affine", std::nullopt, std::nullopt, s));
}

Result quantized_matmul(
    const Array& x, const Array& codes, const Array& scales, const Array& biases,
    std::int32_t group, std::int32_t bits, const Stream& s) {
  return boxed(mx::quantized_matmul(
      x, codes, scales, biases, /* transpose */ true, group, bits, "affine", s));
}

Result gather_mm(
    const Array& x, const Array& weights, const Array& chosen, const Stream& s) {
  auto transposed = mx::swapaxes(weights, -1, -2, s);
  return boxed(mx::gather_mm(
      x, transposed, std::nullopt, chosen, /* sorted_indices */ false, s));
}

Result gather_qmm(
    const Array& x, const Array& codes, const Array& scales, const Array& biases,
    const Array& chosen, std::int32_t group, std::int32_t bits, const Stream& s) {
  return boxed(mx::gather_qmm(
      x, codes, scales, biases, std::nullopt, chosen, /* transpose */ true, group, bits,
      "affine", std::nullopt, /* sorted_indices */ false, s));
}

Result rms_norm(const Array& x, const Arrays& weight, float epsilon, const Stream& s) {
  return boxed(mx::fast::rms_norm(x, optional(weight), epsilon, s));
}

Result layer_norm(
    const Array& x, const Arrays& weight, const Arrays& bias, float epsilon, const Stream& s) {
  return boxed(mx::fast::layer_norm(x, optional(weight), optional(bias), epsilon, s));
}

Result rope(
    const Array& x, std::int32_t dims, bool interleaved, const Array& offset,
    const Array& periods, const Stream& s) {
  return boxed(mx::fast::rope(
      x, dims, interleaved, std::nullopt, /* scale */ 1.0f, offset, periods, s));
}

Result attention(
    const Array& q, const Array& k, const Array& v, float scale, bool causal,
    const Arrays& mask, const Arrays& sinks, const Stream& s) {
  auto mode = causal ? "causal" : (mask.empty() ? "" : "array");
  return boxed(mx::fast::scaled_dot_product_attention(
      q, k, v, scale, mode, optional(mask), optional(sinks), /* force_fused */ false, s));
}

} // namespace mlxcel
