// Products of matrices in groups, as mixtures of experts need them: the groups are runs of rows of a 2-d operand, and
// their ends are data. A loop over tiles of rows, each inside one group: the work is that of the rows and of at most
// one partial tile a group, whatever their sizes, and the program does not depend on them.
#include "ops/index.h"

enum { TILE = 128 };  // rows: what fills the matrix unit of a TPU

// Tile t holds the rows start[t] <= row < end[t] of group[t], at most `height` of them, read from row from[t] on.
typedef struct tiles {
  int64_t height, count;
  hlo_value group, from, start, end;  // s32[count]
  hlo_value rows, matrices;           // the operands
} tiles;

static hlo_value integer(hlo *h, int64_t value) { return hlo_constant_int(h, PJ_S32, value); }

static hlo_value at_least_0(hlo *h, hlo_value x) { return hlo_max(h, x, integer(h, 0)); }

// ends: s32[groups], in [0, size]. Tiles that are not needed are empty ones of the last group.
static tiles cut_into_tiles(hlo *h, hlo_value ends, int64_t size) {
  int64_t groups = ends.dims[0], filled = groups < size ? groups : size;
  tiles t = {.height = size < TILE ? size : TILE};
  t.count = (size - filled) / t.height + filled;
  hlo_value begins = hlo_concatenate(h, (hlo_value[]){hlo_full(h, PJ_S32, 1, (int64_t[]){1}, 0),
                                                      hlo_slice_dim(h, ends, 0, 0, groups - 1)}, 2, 0);
  hlo_value height = integer(h, t.height), length = at_least_0(h, hlo_sub(h, ends, begins));
  hlo_value needed = hlo_div(h, hlo_add(h, length, integer(h, t.height - 1)), height);
  hlo_value last = hlo_scan(h, HLO_ADD, needed, 0), first = hlo_sub(h, last, needed);
  hlo_value place = hlo_iota(h, PJ_S32, 1, &t.count, 0);
  hlo_value before = hlo_convert(h, hlo_le(h, hlo_keep(h, last, 0), hlo_keep(h, place, 1)), PJ_S32);
  t.group = hlo_min(h, hlo_reduce_sum(h, before, 1), integer(h, groups - 1));
  hlo_value inside = hlo_sub(h, place, hlo_take(h, first, t.group, 0));
  t.start = hlo_add(h, hlo_take(h, begins, t.group, 0), hlo_mul(h, inside, height));
  t.end = hlo_take(h, ends, t.group, 0);
  t.from = hlo_min(h, t.start, integer(h, size - t.height));
  return t;
}

static hlo_value entry(hlo *h, hlo_value table, hlo_value i) {
  return hlo_reshape(h, hlo_dynamic_slice(h, table, &i, (int64_t[]){1}), 0, NULL);
}

// Row i of the tile, as pred[height,1], belongs to it.
static hlo_value inside_tile(hlo *h, const tiles *t, hlo_value i) {
  hlo_value row = hlo_iota(h, PJ_S32, 2, (int64_t[]){t->height, 1}, 0);
  row = hlo_add(h, row, entry(h, t->from, i));
  return hlo_and(h, hlo_ge(h, row, entry(h, t->start, i)), hlo_lt(h, row, entry(h, t->end, i)));
}

static hlo_value rows_of_tile(hlo *h, const tiles *t, hlo_value x, hlo_value i) {
  return hlo_dynamic_slice(h, x, (hlo_value[]){entry(h, t->from, i), integer(h, 0)}, (int64_t[]){t->height, x.dims[1]});
}

static hlo_value matrix_of_group(hlo *h, hlo_value x, hlo_value group) {
  hlo_value start[] = {group, integer(h, 0), integer(h, 0)};
  return hlo_drop(h, hlo_dynamic_slice(h, x, start, (int64_t[]){1, x.dims[1], x.dims[2]}), 0);
}

// Loop state: tile, result.
static void more_tiles(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  const tiles *t = context;
  results[0] = hlo_lt(h, arguments[0], integer(h, t->count));
}

// result rows of the tile = rows @ matrices[group]
static void multiply_tile(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  const tiles *t = context;
  hlo_value i = arguments[0], result = arguments[1];
  hlo_value y = hlo_matmul(h, rows_of_tile(h, t, t->rows, i), matrix_of_group(h, t->matrices, entry(h, t->group, i)),
                           result.dtype);
  y = hlo_select(h, inside_tile(h, t, i), y, rows_of_tile(h, t, result, i));
  results[0] = hlo_add(h, i, integer(h, 1));
  results[1] = hlo_dynamic_update_slice(h, result, y, (hlo_value[]){entry(h, t->from, i), integer(h, 0)});
}

// result[group] += rows^T @ matrices, where both are the tile's rows of 2-d operands
static void add_tile(hlo *h, const hlo_value *arguments, hlo_value *results, void *context) {
  const tiles *t = context;
  hlo_value i = arguments[0], result = arguments[1], group = entry(h, t->group, i), inside = inside_tile(h, t, i);
  hlo_value zero = hlo_constant(h, t->rows.dtype, 0);
  hlo_value x = hlo_select(h, inside, rows_of_tile(h, t, t->rows, i), zero);
  hlo_value y = hlo_select(h, inside, rows_of_tile(h, t, t->matrices, i), zero);
  hlo_value sum = hlo_add(h, matrix_of_group(h, result, group),
                          hlo_dot_general(h, x, y, NULL, NULL, 0, (int[]){0}, (int[]){0}, 1, result.dtype));
  results[0] = hlo_add(h, i, integer(h, 1));
  hlo_value start[] = {group, integer(h, 0), integer(h, 0)};
  results[1] = hlo_dynamic_update_slice(h, result, hlo_keep(h, sum, 0), start);
}

// The loop over the tiles of `rows`, from zeros of `dims`. Rows beyond the last end stay 0.
static hlo_value over_tiles(hlo *h, hlo_value rows, hlo_value matrices, hlo_value ends, hlo_body body, int rank,
                            const int64_t *dims) {
  hlo_value zeros = hlo_full(h, pj_math_dtype(rows.dtype), rank, dims, 0);
  if (!hlo_size(zeros) || !rows.dims[0] || !ends.dims[0]) return zeros;
  tiles t = cut_into_tiles(h, ends, rows.dims[0]);
  t.rows = rows;
  t.matrices = matrices;
  hlo_value starts[] = {integer(h, 0), zeros}, results[2];
  hlo_while(h, starts, 2, more_tiles, body, &t, results);
  return results[1];
}

static bool require_grouped(pj_lowering *l, hlo_value a, hlo_value b) {
  bool flat = a.rank == 2 || b.rank == 2;
  pj_type offs = flat && pj_present(l, 2) ? pj_tensor_type(l, 2) : (pj_type){0};
  int64_t groups = b.rank == 3 ? b.dims[0] : a.rank == 3 ? a.dims[0] : offs.dims[0];
  return pj_require(l, a.dtype == PJ_F32 || a.dtype == PJ_BF16 || a.dtype == PJ_F16, PJ_INVALID_ARGUMENT,
                    "Expected mat_a to be Float32, BFloat16 or Float16 matrix, got %s", pj_dtype_name(a.dtype)) &&
         pj_require(l, a.dtype == b.dtype, PJ_INVALID_ARGUMENT,
                    "expected mat_a and mat_b to have the same dtype, but got: %s and %s", pj_dtype_name(a.dtype),
                    pj_dtype_name(b.dtype)) &&
         pj_require(l, a.rank == 2 || a.rank == 3, PJ_INVALID_ARGUMENT, "mat_a has to be 2 or 3d") &&
         pj_require(l, b.rank == 2 || b.rank == 3, PJ_INVALID_ARGUMENT, "mat_b has to be 2 or 3d") &&
         pj_require(l, a.dims[a.rank - 1] == b.dims[b.rank - 2], PJ_INVALID_ARGUMENT,
                    "contraction dimension of mat_a and mat_b must match") &&
         pj_require(l, flat == pj_present(l, 2), PJ_INVALID_ARGUMENT,
                    "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d") &&
         pj_require(l, !flat || (offs.dtype == PJ_S32 && offs.rank == 1), PJ_INVALID_ARGUMENT,
                    "Offsets have to be int32, and one a group") &&
         pj_require(l, flat ? offs.dims[0] == groups : a.dims[0] == b.dims[0], PJ_INVALID_ARGUMENT,
                    "matrix batch sizes have to match") &&
         pj_require(l, !pj_present(l, 3), PJ_INVALID_ARGUMENT, "Bias not supported yet") &&
         pj_require(l, pj_dtype_argument(l, 4, a.dtype) == a.dtype, PJ_INVALID_ARGUMENT,
                    "Grouped gemm output dtype must match `mat_a` dtype");
}

// aten::_grouped_mm(self, mat2, offs, bias, out_dtype): by the ranks of self and mat2
//   2, 3: rows of self offs[g-1] to offs[g] times mat2[g]
//   3, 2: self[g] times such columns of mat2
//   2, 2: such columns of self times such rows of mat2, one product a group
//   3, 3: a batched product
static void lower_grouped_mm(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value a = pj_tensor(l, 0), b = pj_tensor(l, 1);
  if (!require_grouped(l, a, b)) return;
  if (a.rank == 3 && b.rank == 3) {
    pj_return(l, 0, hlo_matmul(h, a, b, pj_math_dtype(a.dtype)));
    return;
  }
  bool columns = a.rank == 3;
  int64_t size = columns ? b.dims[1] : a.dims[b.rank == 2 ? 1 : 0];
  // An end is no index, but like one it must be in range: 0 to size.
  hlo_value ends = pj_index_check_from_zero(l, pj_tensor(l, 2), size + 1);
  if (columns) {  // (b^T @ a^T)^T
    int64_t dims[] = {size, a.dims[1]};
    pj_return(l, 0, hlo_swap(h, over_tiles(h, hlo_swap(h, b, 0, 1), hlo_swap(h, a, 1, 2), ends, multiply_tile, 2, dims),
                             0, 1));
  } else if (b.rank == 3) {
    int64_t dims[] = {size, b.dims[2]};
    pj_return(l, 0, over_tiles(h, a, b, ends, multiply_tile, 2, dims));
  } else {
    int64_t dims[] = {ends.dims[0], a.dims[0], b.dims[1]};
    pj_return(l, 0, over_tiles(h, hlo_swap(h, a, 0, 1), b, ends, add_tile, 3, dims));
  }
}

PJ_LOWERINGS(grouped_matmul_lowerings) = {
    {.name = "aten::_grouped_mm", .lower = lower_grouped_mm, .flags = PJ_OP_DYNAMIC},
    {0},
};
