#include "pj/pjrt.h"

static const pj_known_plugin KNOWN[] = {
    {"lammps-cpu", "lammps-jax-pjrt-cpu", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so", "cpu"},
    {"fastatomstruct-cpu", "fastatomstruct-xla-cpu", "fastatomstruct_xla_cpu/libpjrt_cpu.so", "cpu"},
    {"xla-cpu", "xla-cpu-pjrt", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", "cpu"},
    {"libtpu", "libtpu", "libtpu/libtpu.so", "tpu"},
    {"cuda13", "jax-cuda13-plugin", "jax_plugins/xla_cuda13/xla_cuda_plugin.so", "cuda"},
    {"cuda12", "jax-cuda12-pjrt", "jax_plugins/xla_cuda12/xla_cuda_plugin.so", "cuda"},
};

const pj_known_plugin *pj_known_plugins(size_t *out_count) {
  *out_count = sizeof KNOWN / sizeof KNOWN[0];
  return KNOWN;
}
