// A view, compiled to array steps.
#ifndef PJ_VIEW_PROGRAM_H_
#define PJ_VIEW_PROGRAM_H_

#include "view/box.h"

// Windows of a dense array, one for each point of an index space: what a gather reads and a scatter writes.
// The window of point x starts at the element offset + sum of x[j] * strides[j], counted in row-major order.
typedef struct view_windows {
  int rank;
  int64_t dims[PJ_MAX_RANK], size[PJ_MAX_RANK];  // of the array and of a window
  int index_rank;
  int64_t index_sizes[PJ_MAX_RANK], strides[PJ_MAX_RANK];
  int64_t offset;
  bool sorted;  // from point to point the windows start at ever higher places
} view_windows;

typedef enum view_step_kind {
  VIEW_ZEROS,      // a new array of zeros, for views without elements
  VIEW_BITCAST,    // as hlo_bitcast
  VIEW_RESHAPE,
  VIEW_SLICE,
  VIEW_PAD,        // of the last dimension, with zeros; negative cuts
  VIEW_TRANSPOSE,
  VIEW_BROADCAST,
  VIEW_GATHER,     // result dims: the number of windows, then the window's own
  VIEW_CONJ,
  VIEW_NEG,
} view_step_kind;

typedef struct view_step {
  view_step_kind kind;
  pj_type type;  // of the result
  union {
    struct {
      int64_t start[PJ_MAX_RANK], limit[PJ_MAX_RANK], step[PJ_MAX_RANK];
      bool moves;  // its start is where the view starts at run time
    } slice;
    struct {
      int64_t low, high;
    } pad;
    int permutation[PJ_MAX_RANK];  // transpose: result dim i is operand dim permutation[i]
    int result_dims[PJ_MAX_RANK];  // broadcast: operand dim i is result dim result_dims[i]
    view_windows windows;
  };
} view_step;

// Two steps for each dimension, and what dtypes and bits need.
enum { VIEW_MAX_STEPS = 2 * PJ_MAX_RANK + 16 };

typedef struct view_program {
  pj_type in, out;
  int count;
  view_step steps[VIEW_MAX_STEPS];
} view_program;

// The view's elements from the base. For views that pj_view_check accepts. `moves`: the view is at offset 0, and starts
// where it is told at run time (pj_view_moves).
void view_read_program(const pj_type *base, const pj_view *view, bool moves, view_program *out_program);

typedef enum view_write_kind {
  VIEW_KEEP,     // there is nothing to write
  VIEW_REPLACE,  // the source is the whole target
  VIEW_UPDATE,   // one dynamic_update_slice at box.start
  VIEW_MERGE,    // the box has steps: the region that it spans is read, merged with the source, and updated
  VIEW_SCATTER,  // the source is the windows of the target
} view_write_kind;

// target = base program(base); written = kind(target, source program(source)); result = result program(written).
// When the base has more bytes than the target can hold (a byte count that is no multiple of the view's element size),
// the result replaces the first `head` elements of the flat base; else head is 0.
typedef struct view_write {
  view_write_kind kind;
  view_program source, base, result;
  view_box box;
  view_windows windows;
  int64_t head;
} view_write;

// For views that pj_view_check accepts and that do not overlap themselves.
void view_write_program(const pj_type *base, const pj_view *view, view_write *out_write);

// The base as the view's dtype sees it: the same bytes, less those at the end that do not fill an element.
pj_type view_base_type(const pj_type *base, pj_dtype dtype);

// What view_read_program and view_write_program are built from: they append steps, but none that would change nothing.
void view_program_start(view_program *program, const pj_type *type);
void view_program_reshape(view_program *program, int rank, const int64_t *dims);
void view_program_transpose(view_program *program, const int *permutation);
void view_program_retype(view_program *program, const pj_type *type);  // trims what view_base_type leaves out
void view_program_bits(view_program *program, const pj_view *view);    // the conj and neg bits

// Windows of the runs over the base's own dimensions where each fits in a row of them, else over the flat base.
void view_windows_of_runs(const view_runs *runs, int64_t offset, const pj_type *base, view_windows *out_windows);
int64_t view_windows_count(const view_windows *windows);

#endif
