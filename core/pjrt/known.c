#include "pj/pjrt.h"

// The files of the first four were opened; the names of the others are those of the JAX wheels' own loaders
// (jax-ml/jax jax_plugins/cuda, ROCm/rocm-jax jax_plugins/rocm).
static const pj_known_plugin KNOWN[] = {
    {"lammps-cpu", "lammps-jax-pjrt-cpu", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so", "cpu"},
    {"fastatomstruct-cpu", "fastatomstruct-xla-cpu", "fastatomstruct_xla_cpu/libpjrt_cpu.so", "cpu"},
    {"xla-cpu", "xla-cpu-pjrt", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", "cpu"},
    {"libtpu", "libtpu", "libtpu/libtpu.so", "tpu"},
    {"cuda13", "jax-cuda13-pjrt", "jax_plugins/xla_cuda13/xla_cuda_plugin.so", "cuda"},
    {"cuda12", "jax-cuda12-pjrt", "jax_plugins/xla_cuda12/xla_cuda_plugin.so", "cuda"},
    {"rocm7", "jax-rocm7-pjrt", "jax_plugins/xla_rocm7/xla_rocm_plugin.so", "rocm"},
};

const pj_known_plugin *pj_known_plugins(size_t *out_count) {
  *out_count = sizeof KNOWN / sizeof KNOWN[0];
  return KNOWN;
}
