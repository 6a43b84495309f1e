// Element types. The numbers are those of PJRT_Buffer_Type (pjrt_c_api.h), so no table translates them.
#ifndef PJ_DTYPE_H_
#define PJ_DTYPE_H_

#include "pj/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// The most dimensions a tensor on the device can have; the bridge refuses more.
#define PJ_MAX_RANK 16

typedef enum pj_dtype {
  PJ_INVALID = 0,
  PJ_PRED = 1,
  PJ_S8 = 2,
  PJ_S16 = 3,
  PJ_S32 = 4,
  PJ_S64 = 5,
  PJ_U8 = 6,
  PJ_U16 = 7,
  PJ_U32 = 8,
  PJ_U64 = 9,
  PJ_F16 = 10,
  PJ_F32 = 11,
  PJ_F64 = 12,
  PJ_BF16 = 13,
  PJ_C64 = 14,
  PJ_C128 = 15,
  PJ_F8E5M2 = 16,
  PJ_F8E4M3FN = 17,
  PJ_F8E4M3B11FNUZ = 18,
  PJ_F8E5M2FNUZ = 19,
  PJ_F8E4M3FNUZ = 20,
  PJ_DTYPE_COUNT
} pj_dtype;

// Bytes of one element; 0 for PJ_INVALID.
PJ_EXPORT size_t pj_dtype_size(pj_dtype dtype);

// StableHLO's spelling of the element type ("f32", "i64", "ui8", "i1", "complex<f32>").
PJ_EXPORT const char *pj_dtype_name(pj_dtype dtype);

PJ_EXPORT bool pj_dtype_is_float(pj_dtype dtype);    // fp8, f16, bf16, f32, f64
PJ_EXPORT bool pj_dtype_is_complex(pj_dtype dtype);
PJ_EXPORT bool pj_dtype_is_integer(pj_dtype dtype);  // signed or unsigned, not PRED
PJ_EXPORT bool pj_dtype_is_signed(pj_dtype dtype);   // signed integers

// The type that PyTorch's kernels compute in: float32 for fp8, f16 and bf16, else the type itself.
PJ_EXPORT pj_dtype pj_math_dtype(pj_dtype dtype);

// The real type of a complex type's parts (C64 -> F32); any other type is returned unchanged.
PJ_EXPORT pj_dtype pj_real_dtype(pj_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
