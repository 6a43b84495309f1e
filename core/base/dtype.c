#include "pj/dtype.h"

enum { FLOAT = 1, COMPLEX = 2, SIGNED = 4, UNSIGNED = 8 };

typedef struct dtype_info {
  const char *name;
  uint8_t size;
  uint8_t kind;
  uint8_t math;
} dtype_info;

static const dtype_info DTYPES[PJ_DTYPE_COUNT] = {
    [PJ_INVALID] = {"invalid", 0, 0, PJ_INVALID},
    [PJ_PRED] = {"i1", 1, 0, PJ_PRED},
    [PJ_S8] = {"i8", 1, SIGNED, PJ_S8},
    [PJ_S16] = {"i16", 2, SIGNED, PJ_S16},
    [PJ_S32] = {"i32", 4, SIGNED, PJ_S32},
    [PJ_S64] = {"i64", 8, SIGNED, PJ_S64},
    [PJ_U8] = {"ui8", 1, UNSIGNED, PJ_U8},
    [PJ_U16] = {"ui16", 2, UNSIGNED, PJ_U16},
    [PJ_U32] = {"ui32", 4, UNSIGNED, PJ_U32},
    [PJ_U64] = {"ui64", 8, UNSIGNED, PJ_U64},
    [PJ_F16] = {"f16", 2, FLOAT, PJ_F32},
    [PJ_F32] = {"f32", 4, FLOAT, PJ_F32},
    [PJ_F64] = {"f64", 8, FLOAT, PJ_F64},
    [PJ_BF16] = {"bf16", 2, FLOAT, PJ_F32},
    [PJ_C64] = {"complex<f32>", 8, COMPLEX, PJ_C64},
    [PJ_C128] = {"complex<f64>", 16, COMPLEX, PJ_C128},
    [PJ_F8E5M2] = {"f8E5M2", 1, FLOAT, PJ_F32},
    [PJ_F8E4M3FN] = {"f8E4M3FN", 1, FLOAT, PJ_F32},
    [PJ_F8E4M3B11FNUZ] = {"f8E4M3B11FNUZ", 1, FLOAT, PJ_F32},
    [PJ_F8E5M2FNUZ] = {"f8E5M2FNUZ", 1, FLOAT, PJ_F32},
    [PJ_F8E4M3FNUZ] = {"f8E4M3FNUZ", 1, FLOAT, PJ_F32},
};

static const dtype_info *info(pj_dtype dtype) {
  return &DTYPES[(unsigned)dtype < PJ_DTYPE_COUNT ? dtype : PJ_INVALID];
}

size_t pj_dtype_size(pj_dtype dtype) { return info(dtype)->size; }
const char *pj_dtype_name(pj_dtype dtype) { return info(dtype)->name; }
bool pj_dtype_is_float(pj_dtype dtype) { return info(dtype)->kind == FLOAT; }
bool pj_dtype_is_complex(pj_dtype dtype) { return info(dtype)->kind == COMPLEX; }
bool pj_dtype_is_integer(pj_dtype dtype) { return (info(dtype)->kind & (SIGNED | UNSIGNED)) != 0; }
bool pj_dtype_is_signed(pj_dtype dtype) { return info(dtype)->kind == SIGNED; }
pj_dtype pj_math_dtype(pj_dtype dtype) { return (pj_dtype)info(dtype)->math; }

pj_dtype pj_real_dtype(pj_dtype dtype) {
  return dtype == PJ_C64 ? PJ_F32 : dtype == PJ_C128 ? PJ_F64 : dtype;
}
