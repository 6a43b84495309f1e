// A StableHLO module under construction: typed functions that append one operation each and give its value.
//
// Errors are kept, not returned: the first one stays in the module, every later call does nothing and gives the invalid
// value, and hlo_finish returns the error. So a lowering reads like the formula that it is.
//
// Shapes: every value knows its element type and dimensions. Elementwise functions of several operands want one element
// type and broadcast dimensions as PyTorch does (aligned at the last, 1 stretches). Reductions drop the reduced
// dimensions; hlo_keep puts them back as 1. A dimension given alone (`dim`) may be negative: it counts from the end.
// Source of the semantics: the StableHLO specification, version 1.0 and later, only ops of VHLO 0.9 (the oldest that
// current plugins accept), and CHLO where noted.
#ifndef PJ_HLO_HLO_H_
#define PJ_HLO_HLO_H_

#include "pj/dtype.h"

typedef struct hlo hlo;

// A value of the module, passed by value. id < 0: invalid (an error happened before).
typedef struct hlo_value {
  int32_t id;
  pj_dtype dtype;
  int32_t rank;
  int64_t dims[PJ_MAX_RANK];
} hlo_value;

// ---- module ---------------------------------------------------------------------------------------------------------

hlo *hlo_create(void);   // never NULL: a failed allocation is the module's first error
void hlo_destroy(hlo *h);

// A parameter of @main. `aliased_output` >= 0 donates the argument to that result (tf.aliasing_output), -1 does not.
hlo_value hlo_parameter(hlo *h, pj_dtype dtype, int rank, const int64_t *dims, int aliased_output);

// Ends @main with these results. The text is owned by the module and lives until hlo_destroy.
pj_status hlo_finish(hlo *h, const hlo_value *results, size_t count, const char **out_text, size_t *out_size);

// Sets the module's error, if it has none yet. Gives the invalid value.
hlo_value hlo_fail(hlo *h, pj_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool hlo_failed(const hlo *h);

// ---- shapes of values -----------------------------------------------------------------------------------------------

int64_t hlo_size(hlo_value x);                     // number of elements; -1 past 2^63
bool hlo_same_dims(hlo_value a, hlo_value b);

// ---- constants ------------------------------------------------------------------------------------------------------

hlo_value hlo_constant(hlo *h, pj_dtype dtype, double value);       // 0-d; inf and nan allowed; complex: the real part
hlo_value hlo_constant_int(hlo *h, pj_dtype dtype, int64_t value);  // 0-d; a value that the type lacks is an error
hlo_value hlo_full(hlo *h, pj_dtype dtype, int rank, const int64_t *dims, double value);
hlo_value hlo_constant_ints(hlo *h, pj_dtype dtype, const int64_t *values, int64_t count);  // 1-d
hlo_value hlo_constant_floats(hlo *h, pj_dtype dtype, const double *values, int64_t count); // 1-d
hlo_value hlo_iota(hlo *h, pj_dtype dtype, int rank, const int64_t *dims, int dim);
// 0-d: -inf for floats (the lowest finite value of the 8-bit types without infinity), the smallest integer, false
hlo_value hlo_lowest(hlo *h, pj_dtype dtype);
// 0-d: likewise +inf, the largest integer, true
hlo_value hlo_highest(hlo *h, pj_dtype dtype);

// ---- elementwise ----------------------------------------------------------------------------------------------------

// X(C suffix, StableHLO op)
#define HLO_UNARY_OPS(X) \
  X(neg, "stablehlo.negate") X(exp, "stablehlo.exponential") X(expm1, "stablehlo.exponential_minus_one") \
  X(log, "stablehlo.log") X(log1p, "stablehlo.log_plus_one") X(logistic, "stablehlo.logistic") \
  X(tanh, "stablehlo.tanh") \
  X(sin, "stablehlo.sine") X(cos, "stablehlo.cosine") X(sqrt, "stablehlo.sqrt") X(rsqrt, "stablehlo.rsqrt") \
  X(cbrt, "stablehlo.cbrt") \
  X(floor, "stablehlo.floor") X(ceil, "stablehlo.ceil") X(round_even, "stablehlo.round_nearest_even") \
  X(not, "stablehlo.not") X(popcnt, "stablehlo.popcnt") X(clz, "stablehlo.count_leading_zeros") \
  X(erf, "chlo.erf") X(erfc, "chlo.erfc") X(erf_inv, "chlo.erf_inv") X(lgamma, "chlo.lgamma") \
  X(digamma, "chlo.digamma") \
  X(tan, "chlo.tan") X(asin, "chlo.asin") X(acos, "chlo.acos") X(sinh, "chlo.sinh") X(cosh, "chlo.cosh") \
  X(asinh, "chlo.asinh") X(acosh, "chlo.acosh") X(atanh, "chlo.atanh") X(bessel_i1e, "chlo.bessel_i1e")
#define HLO_DECLARE_UNARY(name, op) hlo_value hlo_##name(hlo *h, hlo_value x);
HLO_UNARY_OPS(HLO_DECLARE_UNARY)
hlo_value hlo_abs(hlo *h, hlo_value x);   // the real type for a complex x
hlo_value hlo_sign(hlo *h, hlo_value x);
hlo_value hlo_atan(hlo *h, hlo_value x);

#define HLO_BINARY_OPS(X) \
  X(add, "stablehlo.add") X(sub, "stablehlo.subtract") X(mul, "stablehlo.multiply") X(div, "stablehlo.divide") \
  X(rem, "stablehlo.remainder") X(pow, "stablehlo.power") X(max, "stablehlo.maximum") X(min, "stablehlo.minimum") \
  X(and, "stablehlo.and") X(or, "stablehlo.or") X(xor, "stablehlo.xor") \
  X(shl, "stablehlo.shift_left") X(shr_logical, "stablehlo.shift_right_logical") \
  X(polygamma, "chlo.polygamma") X(zeta, "chlo.zeta") X(next_after, "chlo.next_after")
#define HLO_DECLARE_BINARY(name, op) hlo_value hlo_##name(hlo *h, hlo_value a, hlo_value b);
HLO_BINARY_OPS(HLO_DECLARE_BINARY)
hlo_value hlo_atan2(hlo *h, hlo_value a, hlo_value b);
hlo_value hlo_shr(hlo *h, hlo_value a, hlo_value b);  // arithmetic for signed, logical for unsigned types, as in C

// The operations that a reduction, a scan, a scatter or a comparator can be asked for by name.
typedef enum hlo_op { HLO_ADD, HLO_MUL, HLO_MAX, HLO_MIN, HLO_AND, HLO_OR, HLO_SECOND /* keeps the update */ } hlo_op;

// Comparisons give PRED. Floats compare unordered-false as in C; complex numbers only for equality. hlo_lt_total is
// PyTorch's order for sorting: every NaN is last, and -0 equals 0 (unlike StableHLO's TOTALORDER).
hlo_value hlo_eq(hlo *h, hlo_value a, hlo_value b);
hlo_value hlo_ne(hlo *h, hlo_value a, hlo_value b);
hlo_value hlo_lt(hlo *h, hlo_value a, hlo_value b);
hlo_value hlo_le(hlo *h, hlo_value a, hlo_value b);
hlo_value hlo_gt(hlo *h, hlo_value a, hlo_value b);
hlo_value hlo_ge(hlo *h, hlo_value a, hlo_value b);
hlo_value hlo_lt_total(hlo *h, hlo_value a, hlo_value b);
hlo_value hlo_is_nan(hlo *h, hlo_value x);     // false for non-floats; either part for complex
hlo_value hlo_is_finite(hlo *h, hlo_value x);  // true for non-floats

hlo_value hlo_select(hlo *h, hlo_value predicate, hlo_value on_true, hlo_value on_false);
hlo_value hlo_clamp(hlo *h, hlo_value low, hlo_value x, hlo_value high);  // NaN stays NaN
hlo_value hlo_complex(hlo *h, hlo_value real, hlo_value imag);
hlo_value hlo_real(hlo *h, hlo_value x);  // a non-complex value is returned unchanged
hlo_value hlo_imag(hlo *h, hlo_value x);  // zeros for a non-complex value
hlo_value hlo_conj(hlo *h, hlo_value x);

// Value conversion as PyTorch's `.to(dtype)`: to PRED is `!= 0`, complex to real drops the imaginary part, float to
// integer truncates. The same dtype is returned unchanged.
hlo_value hlo_convert(hlo *h, hlo_value x, pj_dtype dtype);

// The same bits as another element type. When the sizes differ, StableHLO's rule holds: a narrower type appends a
// dimension, a wider one consumes the last. PRED counts as one byte (goes through ui8).
hlo_value hlo_bitcast(hlo *h, hlo_value x, pj_dtype dtype);

// ---- shape ----------------------------------------------------------------------------------------------------------

hlo_value hlo_reshape(hlo *h, hlo_value x, int rank, const int64_t *dims);
// result dim i is operand dim permutation[i]
hlo_value hlo_transpose(hlo *h, hlo_value x, const int *permutation);
// transpose of two dimensions
hlo_value hlo_swap(hlo *h, hlo_value x, int a, int b);
// aligned at the last dimension, 1 stretches
hlo_value hlo_broadcast_to(hlo *h, hlo_value x, int rank, const int64_t *dims);
hlo_value hlo_broadcast_like(hlo *h, hlo_value x, hlo_value like);
// result dim dims_map[i] is operand dim i (stablehlo.broadcast_in_dim)
hlo_value hlo_broadcast_in_dim(hlo *h, hlo_value x, int rank, const int64_t *dims, const int *dims_map);
// inserts a dimension of size 1 before `dim`; -1 appends it
hlo_value hlo_keep(hlo *h, hlo_value x, int dim);
hlo_value hlo_drop(hlo *h, hlo_value x, int dim);  // removes a dimension of size 1
hlo_value hlo_flatten(hlo *h, hlo_value x);        // 1-d
// stride NULL: ones
hlo_value hlo_slice(hlo *h, hlo_value x, const int64_t *start, const int64_t *limit, const int64_t *stride);
hlo_value hlo_slice_dim(hlo *h, hlo_value x, int dim, int64_t start, int64_t limit);
// start: as many 0-d integers as x has dimensions
hlo_value hlo_dynamic_slice(hlo *h, hlo_value x, const hlo_value *start, const int64_t *sizes);
hlo_value hlo_dynamic_update_slice(hlo *h, hlo_value x, hlo_value update, const hlo_value *start);
// NULL: zeros; negative low/high cut
hlo_value hlo_pad(hlo *h, hlo_value x, hlo_value value, const int64_t *low, const int64_t *high,
                  const int64_t *interior);
hlo_value hlo_reverse(hlo *h, hlo_value x, const int *dims, int count);
hlo_value hlo_concatenate(hlo *h, const hlo_value *values, int count, int dim);

// ---- contractions ---------------------------------------------------------------------------------------------------

// Element type of the result: `dtype`. Batch dims first, then what is left of a, then of b.
hlo_value hlo_dot_general(hlo *h, hlo_value a, hlo_value b, const int *batch_a, const int *batch_b, int batch_count,
                          const int *contract_a, const int *contract_b, int contract_count, pj_dtype dtype);
// PyTorch's matmul of the last two dimensions, with equal (already broadcast) leading batch dimensions.
hlo_value hlo_matmul(hlo *h, hlo_value a, hlo_value b, pj_dtype dtype);

typedef enum hlo_precision { HLO_PRECISION_DEFAULT, HLO_PRECISION_HIGH, HLO_PRECISION_HIGHEST } hlo_precision;
void hlo_set_precision(hlo *h, hlo_precision precision);  // of the float32 contractions and convolutions that follow

typedef struct hlo_convolution_spec {
  int spatial;                       // spatial dimensions
  int input_batch, input_feature, input_spatial[PJ_MAX_RANK];
  int kernel_input_feature, kernel_output_feature, kernel_spatial[PJ_MAX_RANK];
  int output_batch, output_feature, output_spatial[PJ_MAX_RANK];
  int64_t stride[PJ_MAX_RANK], pad_low[PJ_MAX_RANK], pad_high[PJ_MAX_RANK];
  int64_t lhs_dilation[PJ_MAX_RANK], rhs_dilation[PJ_MAX_RANK];
  bool reverse[PJ_MAX_RANK];         // window_reversal
  int64_t feature_groups, batch_groups;
} hlo_convolution_spec;
hlo_value hlo_convolution(hlo *h, hlo_value input, hlo_value kernel, const hlo_convolution_spec *spec, pj_dtype dtype);

// ---- regions --------------------------------------------------------------------------------------------------------

// Writes the inside of an op: reads `arguments`, appends ops, fills `results`. May use values of the outside only where
// StableHLO allows (while, if, case). Runs at once, inside the call that takes it.
typedef void (*hlo_body)(hlo *h, const hlo_value *arguments, hlo_value *results, void *context);

// ---- reductions and windows -----------------------------------------------------------------------------------------

// Over `dims` (count of them, any order), with the identity of `op` as start.
hlo_value hlo_reduce(hlo *h, hlo_op op, hlo_value x, const int *dims, int count);
hlo_value hlo_reduce_sum(hlo *h, hlo_value x, int dim);
hlo_value hlo_reduce_max(hlo *h, hlo_value x, int dim);
hlo_value hlo_reduce_all(hlo *h, hlo_op op, hlo_value x);   // over every dimension, to 0-d
// The general form: n operands of equal dims, n 0-d starts; body has 2n arguments (n so far, n next) and n results.
void hlo_reduce_many(hlo *h, const hlo_value *operands, const hlo_value *starts, int n, const int *dims, int count,
                     hlo_body body, void *context, hlo_value *out_results);

typedef struct hlo_window {  // one entry a dimension of the operand
  int64_t size[PJ_MAX_RANK], stride[PJ_MAX_RANK], dilation[PJ_MAX_RANK], base_dilation[PJ_MAX_RANK];
  int64_t pad_low[PJ_MAX_RANK], pad_high[PJ_MAX_RANK];
} hlo_window;
hlo_window hlo_window_ones(void);  // sizes, strides and dilations 1, no padding
hlo_value hlo_reduce_window(hlo *h, hlo_op op, hlo_value x, const hlo_window *window);
void hlo_reduce_window_many(hlo *h, const hlo_value *operands, const hlo_value *starts, int n, const hlo_window *window,
                            hlo_body body, void *context, hlo_value *out_results);
// Inclusive scan along `dim` with `op`. The many form: n operands and a body of 2n arguments (n so far, n next),
// which must be associative and leave a value as it is when combined with the starts, on either side. The body is
// elementwise: it is called with 0-d arguments and with arrays.
hlo_value hlo_scan(hlo *h, hlo_op op, hlo_value x, int dim);
void hlo_scan_many(hlo *h, const hlo_value *operands, const hlo_value *starts, int n, int dim, hlo_body body,
                   void *context, hlo_value *out_results);
hlo_value hlo_select_and_scatter_max(hlo *h, hlo_value operand, hlo_value source, hlo_value start,
                                     const hlo_window *window);

// ---- indexing -------------------------------------------------------------------------------------------------------

typedef struct hlo_gather_spec {
  int offset_dims[PJ_MAX_RANK], offset_count;
  int collapsed[PJ_MAX_RANK], collapsed_count;
  int operand_batching[PJ_MAX_RANK], indices_batching[PJ_MAX_RANK], batching_count;
  int start_index_map[PJ_MAX_RANK], start_count;
  int index_vector_dim;
  int64_t slice_sizes[PJ_MAX_RANK];
  bool sorted;
} hlo_gather_spec;
hlo_value hlo_gather(hlo *h, hlo_value operand, hlo_value indices, const hlo_gather_spec *spec);

typedef struct hlo_scatter_spec {
  int update_window[PJ_MAX_RANK], update_window_count;
  int inserted[PJ_MAX_RANK], inserted_count;
  int operand_batching[PJ_MAX_RANK], indices_batching[PJ_MAX_RANK], batching_count;
  int scatter_dims[PJ_MAX_RANK], scatter_count;  // scatter_dims_to_operand_dims
  int index_vector_dim;
  bool sorted, unique;
} hlo_scatter_spec;
hlo_value hlo_scatter(hlo *h, hlo_op op, hlo_value operand, hlo_value indices, hlo_value updates,
                      const hlo_scatter_spec *spec);
// One dimension indexed by a 1-d or n-d integer tensor, as torch.index_select / embedding: result dims are
// x.dims[:dim] + indices.dims + x.dims[dim+1:]. Indices must be in range (StableHLO clamps).
hlo_value hlo_take(hlo *h, hlo_value x, hlo_value indices, int dim);

// ---- sort, loops, the rest ------------------------------------------------------------------------------------------

// comparator body: 2n 0-d arguments (a0, b0, a1, b1, ...), one PRED result.
void hlo_sort(hlo *h, const hlo_value *operands, int n, int dim, bool stable, hlo_body comparator, void *context,
              hlo_value *out_results);
// `values` largest first along the last dimension and their positions as s32 (chlo.top_k).
void hlo_top_k(hlo *h, hlo_value x, int64_t k, hlo_value *out_values, hlo_value *out_indices);
void hlo_while(hlo *h, const hlo_value *starts, int n, hlo_body condition, hlo_body body, void *context,
               hlo_value *out_results);
// stablehlo.if with values of the outside captured.
void hlo_if(hlo *h, hlo_value predicate, hlo_body on_true, hlo_body on_false, int n, void *context,
            hlo_value *out_results);

typedef enum hlo_fft_kind { HLO_FFT, HLO_IFFT, HLO_RFFT, HLO_IRFFT } hlo_fft_kind;
hlo_value hlo_fft(hlo *h, hlo_fft_kind kind, hlo_value x, const int64_t *lengths, int count);  // innermost `count` dims
hlo_value hlo_cholesky(hlo *h, hlo_value x, bool lower);
typedef enum hlo_transpose_kind { HLO_NO_TRANSPOSE, HLO_TRANSPOSE, HLO_ADJOINT } hlo_transpose_kind;
hlo_value hlo_triangular_solve(hlo *h, hlo_value a, hlo_value b, bool left, bool lower, bool unit_diagonal,
                               hlo_transpose_kind transpose);
// A custom call known to the compiler, with row-major layouts: results' types are given in and filled out.
void hlo_custom_call(hlo *h, const char *target, const char *backend_config, const hlo_value *operands, int count,
                     hlo_value *results, int result_count);
hlo_value hlo_optimization_barrier(hlo *h, hlo_value x);
// The update and the result of a write into a target more than 64 times as large, kept apart from what they would be
// fused with on XLA:CPU (API 0.115): the update, where its computation reads the target, with the write, to a kernel that
// walks over all of the target (260 us where a few rows of 256 MiB take 10 us); the write with each use of its result, to
// several kernels that each need a copy of the target.
hlo_value hlo_small_update(hlo *h, hlo_value target, hlo_value update);
hlo_value hlo_written(hlo *h, hlo_value target, hlo_value update, hlo_value result);

#endif
