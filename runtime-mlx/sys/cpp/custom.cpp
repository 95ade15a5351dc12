// A primitive whose body on the CPU is a Rust function.
#include "shim.h"

#include <cstring>
#include <stdexcept>
#include <string>

#include "mlx/backend/cpu/encoder.h"
#include "mlx/primitives.h"
#include "mlxcel-mlx-sys/src/bridge.rs.h"

namespace mx = mlx::core;

namespace mlxcel {
namespace {

// Copies a strided array into row-major order.
void pack(const Array& from, std::uint8_t* to) {
  const auto size = from.itemsize();
  const auto rank = from.ndim();
  const auto* base = from.data<std::uint8_t>();
  std::vector<std::int64_t> index(rank, 0);
  for (std::size_t element = 0; element < from.size(); ++element) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      offset += index[d] * from.strides()[d];
    }
    std::memcpy(to + element * size, base + offset * static_cast<std::int64_t>(size), size);
    for (std::size_t d = rank; d-- > 0;) {
      if (++index[d] < from.shape()[d]) {
        break;
      }
      index[d] = 0;
    }
  }
}

RawView view(const Array& array, std::uint8_t* data) {
  return RawView{
      data, array.shape().data(), array.ndim(), array.size(), from_mlx(array.dtype())};
}

class Custom : public mx::Primitive {
 public:
  Custom(mx::Stream stream, std::string name, rust::Box<KernelBox> kernel)
      : mx::Primitive(stream),
        name_(std::move(name)),
        kernel_(std::make_shared<rust::Box<KernelBox>>(std::move(kernel))) {}

  void eval_cpu(const std::vector<Array>& inputs, std::vector<Array>& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    std::vector<Array> in;
    std::vector<Array> out;
    in.reserve(inputs.size());
    out.reserve(outputs.size());
    for (const auto& input : inputs) {
      encoder.set_input_array(input);
      in.push_back(Array::unsafe_weak_copy(input));
    }
    for (auto& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
      encoder.set_output_array(output);
      out.push_back(Array::unsafe_weak_copy(output));
    }
    encoder.dispatch([kernel = kernel_, in = std::move(in), out = std::move(out)]() mutable {
      std::vector<std::vector<std::uint8_t>> packed;
      std::vector<RawView> in_views;
      std::vector<RawView> out_views;
      packed.reserve(in.size());
      in_views.reserve(in.size());
      out_views.reserve(out.size());
      for (auto& array : in) {
        auto* data = array.data<std::uint8_t>();
        if (!array.flags().row_contiguous) {
          auto& copy = packed.emplace_back(array.nbytes());
          pack(array, copy.data());
          data = copy.data();
        }
        in_views.push_back(view(array, data));
      }
      for (auto& array : out) {
        out_views.push_back(view(array, array.data<std::uint8_t>()));
      }
      run_kernel(
          **kernel,
          {in_views.data(), in_views.size()},
          {out_views.data(), out_views.size()});
    });
  }

  void eval_gpu(const std::vector<Array>&, std::vector<Array>&) override {
    throw std::runtime_error(name_ + " runs on the CPU only");
  }

  const char* name() const override {
    return name_.c_str();
  }

 private:
  std::string name_;
  std::shared_ptr<rust::Box<KernelBox>> kernel_;
};

} // namespace

std::unique_ptr<Arrays> custom(
    rust::Str name, rust::Box<KernelBox> kernel, const Arrays& inputs, Shape shapes,
    rust::Slice<const std::size_t> ranks, rust::Slice<const Dtype> dtypes, const Stream& s) {
  std::vector<mx::Shape> out_shapes;
  std::vector<mx::Dtype> out_dtypes;
  const auto* next = shapes.data();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    out_shapes.emplace_back(next, next + ranks[i]);
    out_dtypes.push_back(to_mlx(dtypes[i]));
    next += ranks[i];
  }
  auto primitive = std::make_shared<Custom>(s, std::string(name), std::move(kernel));
  return std::make_unique<Arrays>(
      Array::make_arrays(std::move(out_shapes), out_dtypes, primitive, inputs));
}

} // namespace mlxcel
