//! Headers that IREE's GPU drivers are compiled against. The drivers' libraries are loaded when they are used,
//! so nothing else of CUDA or ROCm is needed to build.

use super::component::Component;

/// `.deps/cuda-headers`, in the layout that IREE's build expects of `IREE_CUDA_DEPS_DIR`.
pub(super) const CUDA: Component = Component {
    name: "the CUDA headers",
    folder: "cuda-headers",
    requirements: include_str!("../../requirements/cuda.txt"),
    install: |workspace, component| {
        component.extract(
            workspace,
            &[
                ("nvidia/cuda_runtime/include/", "include/"),
                ("nvidia/cuda_nvcc/include/crt/", "include/crt/"),
                ("nvidia/cuda_cccl/include/nv/", "include/nv/"),
                ("nvidia/cuda_nvcc/nvvm/libdevice/", "nvvm/libdevice/"),
            ],
        )
    },
};

/// `.deps/hip-headers`, which IREE's build knows as `HIP_API_HEADERS_ROOT`.
pub(super) const HIP: Component = Component {
    name: "the HIP headers",
    folder: "hip-headers",
    requirements: include_str!("../../requirements/rocm.txt"),
    install: |workspace, component| {
        component.extract(workspace, &[("triton/backends/amd/include/hip/", "hip/")])
    },
};
