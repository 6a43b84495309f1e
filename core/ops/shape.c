// Ops that move elements without computing: joining, repeating, turning, rolling, shuffling, cutting triangles.
#include "ops/lowering.h"
#include "ops/reduce.h"
#include "ops/room.h"

// ---- joining --------------------------------------------------------------------------------------------------------

enum { PARTS_AT_ONCE = 64 };

// Concatenates list argument 0 along `dim` of the result: any number of tensors, PARTS_AT_ONCE a time.
static void return_joined(pj_lowering *l, int dim, bool new_dim) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  hlo_value parts[PARTS_AT_ONCE];
  int count = 0, total = pj_list_count(l, 0);
  for (int i = 0; i < total; ++i) {
    hlo_value x = pj_list_tensor(l, 0, i);
    if (hlo_failed(h)) return;
    if (new_dim) x = hlo_keep(h, x, dim);
    else if (x.rank == 1 && x.dims[0] == 0) continue;   // PyTorch skips these, whatever the others' shape
    bool fits = x.rank == type.rank;
    for (int d = 0; fits && d < x.rank; ++d) fits = d == dim || x.dims[d] == type.dims[d];
    if (!pj_require(l, fits, PJ_INVALID_ARGUMENT, "Sizes of tensors must match except in dimension %d.", dim)) return;
    if (count == PARTS_AT_ONCE) {
      parts[0] = hlo_concatenate(h, parts, count, dim);
      count = 1;
    }
    parts[count++] = hlo_convert(h, x, type.dtype);
  }
  pj_return(l, 0, count ? hlo_concatenate(h, parts, count, dim) : hlo_full(h, type.dtype, type.rank, type.dims, 0));
}

// The first tensor has room for the others: they are written behind what counts of it.
static void return_grown(pj_lowering *l, int dim) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  const pj_signature *s = l->signature;
  const pj_operand *first = &s->operands[s->elements[s->arguments[0].first]];
  hlo_value grown = hlo_convert(h, pj_list_tensor(l, 0, 0), type.dtype), start[PJ_MAX_RANK];
  hlo_value end = l->operands[first->length];
  for (int d = 0; d < type.rank; ++d) start[d] = hlo_constant_int(h, PJ_S64, 0);
  for (int i = 1; i < pj_list_count(l, 0); ++i) {
    hlo_value x = hlo_convert(h, pj_list_tensor(l, 0, i), type.dtype);
    start[dim] = end;
    grown = hlo_dynamic_update_slice(h, grown, x, start);
    end = hlo_add(h, end, hlo_constant_int(h, PJ_S64, x.dims[dim]));
  }
  pj_return(l, 0, grown);
}

// aten::cat(tensors, dim)
static void lower_cat(pj_lowering *l) {
  int dim = pj_dim(l, 1, pj_result_type(l, 0).rank);
  if (pj_list_count(l, 0) && pj_list_present(l, 0, 0) && pj_room_is_growth(l->signature, dim)) return_grown(l, dim);
  else return_joined(l, dim, false);
}

// aten::stack(tensors, dim)
static void lower_stack(pj_lowering *l) { return_joined(l, pj_dim(l, 1, pj_result_type(l, 0).rank), true); }

// aten::block_diag(tensors): matrices along the diagonal of zeros; vectors and numbers count as one row
static void lower_block_diag(pj_lowering *l) {
  hlo *h = l->h;
  pj_type type = pj_result_type(l, 0);
  hlo_value zero = hlo_constant(h, type.dtype, 0), sum = hlo_full(h, type.dtype, type.rank, type.dims, 0);
  int64_t row = 0, column = 0;
  for (int i = 0; i < pj_list_count(l, 0); ++i) {
    hlo_value x = hlo_convert(h, pj_list_tensor(l, 0, i), type.dtype);
    if (!pj_require(l, x.rank <= 2, PJ_INVALID_ARGUMENT,
                    "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input %d has %d dimensions", i,
                    x.rank))
      return;
    while (x.rank < 2) x = hlo_keep(h, x, 0);
    int64_t low[] = {row, column}, high[] = {type.dims[0] - row - x.dims[0], type.dims[1] - column - x.dims[1]};
    hlo_value placed = hlo_pad(h, x, zero, low, high, NULL);
    sum = type.dtype == PJ_PRED ? hlo_or(h, sum, placed) : hlo_add(h, sum, placed);
    row += x.dims[0];
    column += x.dims[1];
  }
  pj_return(l, 0, sum);
}

// ---- repeating ------------------------------------------------------------------------------------------------------

// aten::repeat(self, repeats): every dimension that many times, new dimensions in front
static void lower_repeat(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  int rank;
  const int64_t *repeats = pj_ints(l, 1, &rank);
  pj_type type = pj_result_type(l, 0);
  if (!pj_require(l, rank >= x.rank, PJ_INVALID_ARGUMENT, "Number of dimensions of repeat dims can not be smaller than "
                  "number of dimensions of tensor"))
    return;
  // [d] becomes [repeats, d]; dimensions that are not repeated, or are 1, need no second one.
  int64_t dims[2 * PJ_MAX_RANK];
  int map[PJ_MAX_RANK], total = 0;
  hlo_value folded = x;
  folded.rank = 0;
  for (int d = 0; d < rank; ++d) {
    int from = d - (rank - x.rank);
    int64_t size = from < 0 ? 1 : x.dims[from];
    if (repeats[d] != 1 || from < 0) dims[total++] = repeats[d];
    if (from < 0 || size == 1) continue;
    map[folded.rank] = total;
    folded.dims[folded.rank++] = size;
    dims[total++] = size;
  }
  if (!pj_require(l, total <= PJ_MAX_RANK, PJ_INVALID_ARGUMENT, "repeat: too many dimensions")) return;
  x = hlo_reshape(h, x, folded.rank, folded.dims);
  pj_return(l, 0, hlo_reshape(h, hlo_broadcast_in_dim(h, x, total, dims, map), type.rank, type.dims));
}

// ---- turning and rolling --------------------------------------------------------------------------------------------

// aten::flip(self, dims)
static void lower_flip(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  int dims[PJ_MAX_RANK], count = pj_dims(l, 1, x.rank, false, dims);
  pj_return(l, 0, count ? hlo_reverse(l->h, x, dims, count) : x);
}

// aten::rot90(self, k, dims): k quarter turns in the plane of two dimensions
static void lower_rot90(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  int64_t k = ((pj_int(l, 1) % 4) + 4) % 4;
  int dims[PJ_MAX_RANK], count = pj_dims(l, 2, x.rank, false, dims);
  if (!pj_require(l, count == 2, PJ_INVALID_ARGUMENT, "expected total rotation dims == 2, but got dims = %d", count))
    return;
  switch (k) {
    case 1: x = hlo_swap(h, hlo_reverse(h, x, &dims[1], 1), dims[0], dims[1]); break;
    case 2: x = hlo_reverse(h, x, dims, 2); break;
    case 3: x = hlo_swap(h, hlo_reverse(h, x, &dims[0], 1), dims[0], dims[1]); break;
    default: break;
  }
  pj_return(l, 0, x);
}

static hlo_value roll_dim(pj_lowering *l, hlo_value x, int dim, int64_t shift) {
  int64_t size = x.dims[dim];
  shift = size ? ((shift % size) + size) % size : 0;
  if (!shift) return x;
  hlo_value parts[] = {hlo_slice_dim(l->h, x, dim, size - shift, size), hlo_slice_dim(l->h, x, dim, 0, size - shift)};
  return hlo_concatenate(l->h, parts, 2, dim);
}

// aten::roll(self, shifts, dims): without dims, of the flattened tensor
static void lower_roll(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  int count, listed;
  const int64_t *shifts = pj_ints(l, 1, &count), *dims = pj_ints(l, 2, &listed);
  if (!pj_require(l, count > 0, PJ_INVALID_ARGUMENT, "`shifts` required") ||
      !pj_require(l, listed == count || (!listed && count == 1), PJ_INVALID_ARGUMENT,
                  "shifts and dimensions must align. shifts: %d, dims:%d", count, listed) || hlo_failed(l->h))
    return;
  if (!listed) {
    hlo_value rolled = roll_dim(l, hlo_flatten(l->h, x), 0, shifts[0]);
    pj_return(l, 0, hlo_reshape(l->h, rolled, x.rank, x.dims));
    return;
  }
  for (int i = 0; i < listed; ++i) {
    int64_t dim = dims[i] < 0 ? dims[i] + x.rank : dims[i];
    if (!pj_require(l, dim >= 0 && dim < x.rank, PJ_OUT_OF_RANGE, "Dimension out of range (expected to be in range of "
                    "[%d, %d], but got %lld)", -x.rank, x.rank - 1, (long long)dims[i]))
      return;
    x = roll_dim(l, x, (int)dim, shifts[i]);
  }
  pj_return(l, 0, x);
}

// ---- shuffling ------------------------------------------------------------------------------------------------------

// aten::channel_shuffle(self, groups): channels [groups, n] become [n, groups]
static void lower_channel_shuffle(pj_lowering *l) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  int64_t groups = pj_int(l, 1);
  if (!pj_require(l, x.rank > 2, PJ_INVALID_ARGUMENT,
                  "channel_shuffle expects input with > 2 dims, but got input with sizes "
                  "of %d dims",
                  x.rank) ||
      !pj_require(l, groups > 0, PJ_INVALID_ARGUMENT, "Number of groups to divide channels in must be positive.") ||
      !pj_require(l, x.dims[1] % groups == 0, PJ_INVALID_ARGUMENT, "Number of channels must be divisible by groups."))
    return;
  int64_t rest = 1;
  for (int d = 2; d < x.rank; ++d) rest *= x.dims[d];
  hlo_value split = hlo_reshape(h, x, 4, (int64_t[]){x.dims[0], groups, x.dims[1] / groups, rest});
  pj_return(l, 0, hlo_reshape(h, hlo_swap(h, split, 1, 2), x.rank, x.dims));
}

// Reshapes x, whose last three dimensions are (channels, height, width), to `split` behind one leading dimension, and
// transposes these five by `order`.
static void return_shuffled(pj_lowering *l, hlo_value x, const int64_t split[5], const int order[5]) {
  int64_t dims[6] = {1, split[0], split[1], split[2], split[3], split[4]};
  int map[6] = {0};
  for (int d = 0; d < x.rank - 3; ++d) dims[0] *= x.dims[d];
  for (int i = 0; i < 5; ++i) map[i + 1] = order[i] + 1;
  pj_return_reshaped(l, 0, hlo_transpose(l->h, hlo_reshape(l->h, x, 6, dims), map));
}

// aten::pixel_shuffle(self, upscale_factor): (c r r, h, w) to (c, h r, w r)
static void lower_pixel_shuffle(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  int64_t r = pj_int(l, 1);
  if (!pj_require(
          l, x.rank >= 3 && r > 0 && x.dims[x.rank - 3] % (r * r) == 0, PJ_INVALID_ARGUMENT,
          "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor"))
    return;
  int64_t c = x.dims[x.rank - 3], rows = x.dims[x.rank - 2], columns = x.dims[x.rank - 1];
  return_shuffled(l, x, (int64_t[]){c / (r * r), r, r, rows, columns}, (int[]){0, 3, 1, 4, 2});
}

// aten::pixel_unshuffle(self, downscale_factor): (c, h r, w r) to (c r r, h, w)
static void lower_pixel_unshuffle(pj_lowering *l) {
  hlo_value x = pj_tensor(l, 0);
  int64_t r = pj_int(l, 1);
  if (!pj_require(l, x.rank >= 3 && r > 0 && x.dims[x.rank - 2] % r == 0 && x.dims[x.rank - 1] % r == 0,
                  PJ_INVALID_ARGUMENT, "pixel_unshuffle expects height and width to be divisible by downscale_factor"))
    return;
  int64_t c = x.dims[x.rank - 3], rows = x.dims[x.rank - 2] / r, columns = x.dims[x.rank - 1] / r;
  return_shuffled(l, x, (int64_t[]){c, rows, r, columns, r}, (int[]){0, 2, 4, 1, 3});
}

// ---- triangles ------------------------------------------------------------------------------------------------------

// columns - rows of the last two dimensions of x.
static hlo_value distance_to_diagonal(pj_lowering *l, hlo_value x) {
  hlo_value columns = hlo_iota(l->h, PJ_S64, x.rank, x.dims, x.rank - 1);
  return hlo_sub(l->h, columns, hlo_iota(l->h, PJ_S64, x.rank, x.dims, x.rank - 2));
}

typedef hlo_value (*comparison)(hlo *, hlo_value, hlo_value);

static void return_triangle(pj_lowering *l, comparison kept) {
  hlo *h = l->h;
  hlo_value x = pj_tensor(l, 0);
  if (!pj_require(l, x.rank >= 2, PJ_INVALID_ARGUMENT, "input tensor must have at least 2 dimensions")) return;
  hlo_value inside = kept(h, distance_to_diagonal(l, x), hlo_constant_int(h, PJ_S64, pj_int(l, 1)));
  pj_return(l, 0, hlo_select(h, inside, x, hlo_full(h, x.dtype, x.rank, x.dims, 0)));
}

// aten::tril(self, diagonal), aten::triu(self, diagonal)
static void lower_tril(pj_lowering *l) { return_triangle(l, hlo_le); }
static void lower_triu(pj_lowering *l) { return_triangle(l, hlo_ge); }

PJ_LOWERINGS(shape_lowerings) = {
    {.name = "aten::cat", .lower = lower_cat},
    {.name = "aten::stack", .lower = lower_stack},
    {.name = "aten::block_diag", .lower = lower_block_diag},
    {.name = "aten::repeat", .lower = lower_repeat},
    {.name = "aten::flip", .lower = lower_flip},
    {.name = "aten::rot90", .lower = lower_rot90},
    {.name = "aten::roll", .lower = lower_roll},
    {.name = "aten::channel_shuffle", .lower = lower_channel_shuffle},
    {.name = "aten::pixel_shuffle", .lower = lower_pixel_shuffle},
    {.name = "aten::pixel_unshuffle", .lower = lower_pixel_unshuffle},
    {.name = "aten::tril", .lower = lower_tril},
    {.name = "aten::triu", .lower = lower_triu},
    {0},
};
