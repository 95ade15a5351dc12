// Arrays, lists of arrays, streams and memory.
#include "shim.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "mlxcel-mlx-sys/src/bridge.rs.h"

namespace mx = mlx::core;

namespace mlxcel {

mx::Dtype to_mlx(Dtype dtype) {
  switch (dtype) {
    case Dtype::Bool:
      return mx::bool_;
    case Dtype::I32:
      return mx::int32;
    case Dtype::U32:
      return mx::uint32;
    case Dtype::F16:
      return mx::float16;
    case Dtype::BF16:
      return mx::bfloat16;
    case Dtype::F32:
      return mx::float32;
  }
  throw std::invalid_argument("unknown element type");
}

Dtype from_mlx(mx::Dtype dtype) {
  switch (dtype.val()) {
    case mx::Dtype::Val::bool_:
      return Dtype::Bool;
    case mx::Dtype::Val::int32:
      return Dtype::I32;
    case mx::Dtype::Val::uint32:
      return Dtype::U32;
    case mx::Dtype::Val::float16:
      return Dtype::F16;
    case mx::Dtype::Val::bfloat16:
      return Dtype::BF16;
    case mx::Dtype::Val::float32:
      return Dtype::F32;
    default:
      throw std::invalid_argument("an element type that the shim does not know");
  }
}

bool gpu_available() {
  return mx::is_available(mx::Device(mx::Device::gpu));
}

std::unique_ptr<Stream> new_stream(bool gpu) {
  auto device = mx::Device(gpu ? mx::Device::gpu : mx::Device::cpu);
  // A stream of `new_stream` belongs to the thread that made it; this kind may move.
  return std::make_unique<Stream>(mx::new_thread_unsafe_stream(device));
}

bool stream_is_gpu(const Stream& stream) {
  return stream.device == mx::Device::gpu;
}

void synchronize(const Stream& stream) {
  mx::synchronize(stream);
}

std::size_t active_memory() {
  return mx::get_active_memory();
}

std::size_t peak_memory() {
  return mx::get_peak_memory();
}

std::size_t cache_memory() {
  return mx::get_cache_memory();
}

std::size_t set_cache_limit(std::size_t bytes) {
  return mx::set_cache_limit(bytes);
}

void clear_cache() {
  mx::clear_cache();
}

void exact_arithmetic() {
  // Read by MLX at its first product: whether f32 products on a GPU may round to TF32.
  ::setenv("MLX_ENABLE_TF32", "0", /* overwrite */ 0);
  // Read at the first fused function: on the CPU it would call a compiler at run time.
  ::setenv("MLX_DISABLE_COMPILE", "1", /* overwrite */ 0);
}

Result copy(const Array& array) {
  return boxed(array);
}

Result from_bytes(rust::Slice<const std::uint8_t> data, Shape shape, Dtype dtype) {
  auto memory = mx::allocator::malloc(data.size());
  std::memcpy(memory.buffer().raw_ptr(), data.data(), data.size());
  auto array = Array(std::move(memory), to_shape(shape), to_mlx(dtype));
  if (array.nbytes() != data.size()) {
    throw std::invalid_argument("the bytes do not fill the shape");
  }
  return boxed(std::move(array));
}

Result from_memory(
    const std::uint8_t* data, Shape shape, Dtype dtype, rust::Box<Owner> owner) {
  auto held = std::make_shared<rust::Box<Owner>>(std::move(owner));
  if (!gpu_available()) {
    // The CPU allocator keeps a block's size in front of its data, and a buffer points at the size.
    // A buffer that the allocator does not own is never asked for its size, so pointing one word in
    // front of foreign memory is enough; the check holds this against the MLX that is loaded.
    auto foreign = const_cast<std::uint8_t*>(data);
    auto buffer = mx::allocator::Buffer(foreign - sizeof(std::size_t));
    if (buffer.raw_ptr() == foreign) {
      auto memory = mx::allocator::Data(buffer, [held](mx::allocator::Buffer) {});
      return boxed(Array(std::move(memory), to_shape(shape), to_mlx(dtype)));
    }
  }
  auto mx_shape = to_shape(shape);
  std::size_t bytes = to_mlx(dtype).size();
  for (auto size : mx_shape) {
    bytes *= static_cast<std::size_t>(size);
  }
  return from_bytes({data, bytes}, shape, dtype);
}

Shape shape(const Array& array) {
  return {array.shape().data(), array.shape().size()};
}

Dtype dtype(const Array& array) {
  return from_mlx(array.dtype());
}

std::size_t byte_size(const Array& array) {
  return array.nbytes();
}

bool is_contiguous(const Array& array) {
  return array.is_available() && array.flags().row_contiguous;
}

const std::uint8_t* data(const Array& array) {
  if (!is_contiguous(array)) {
    throw std::invalid_argument("the array is not evaluated, or not contiguous");
  }
  return array.data<std::uint8_t>();
}

void wait(const Array& array) {
  // A handle of its own: `wait` is not const, since it drops the event once it has fired.
  auto handle = array;
  handle.eval();
}

std::unique_ptr<Arrays> new_arrays() {
  return std::make_unique<Arrays>();
}

void push(Arrays& list, const Array& array) {
  list.push_back(array);
}

std::size_t length(const Arrays& list) {
  return list.size();
}

Result get(const Arrays& list, std::size_t index) {
  return boxed(list.at(index));
}

void eval(const Arrays& list) {
  mx::eval(list);
}

void async_eval(const Arrays& list) {
  mx::async_eval(list);
}

} // namespace mlxcel
