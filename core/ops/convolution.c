// Convolutions in any number of spatial dimensions, transposed or not, and their gradients.
//
// Layouts are PyTorch's: input (batch, channels, spatial...), weight (out channels, in channels / groups, spatial...),
// or (in channels, out channels / groups, spatial...) when transposed.
#include "ops/lowering.h"
#include "ops/reduce.h"

typedef struct conv {
  int spatial;
  int64_t stride[PJ_MAX_RANK], padding[PJ_MAX_RANK], dilation[PJ_MAX_RANK], output_padding[PJ_MAX_RANK];
  int64_t groups;
  bool transposed;
} conv;

// One number stands for all dimensions.
static bool read_sizes(pj_lowering *l, int argument, int spatial, int64_t least, const char *what, int64_t *out) {
  int count;
  const int64_t *values = pj_ints(l, argument, &count);
  if (!pj_require(l, count == 1 || count == spatial, PJ_INVALID_ARGUMENT,
                  "expected %s to be a single integer value or a "
                  "list of %d values to match the convolution dimensions, but got %d values",
                  what, spatial, count))
    return false;
  for (int d = 0; d < spatial; ++d) {
    out[d] = values[count == 1 ? 0 : d];
    if (!pj_require(l, out[d] >= least, PJ_INVALID_ARGUMENT, "%s %s is not supported",
                    least ? "non-positive" : "negative", what))
      return false;
  }
  return true;
}

// Reads stride, padding, dilation, transposed, output_padding and groups from `first` on, and checks them against the
// types of input and weight, as PyTorch's check_shape_forward does.
static bool read_conv(pj_lowering *l, int first, pj_type input, pj_type weight, conv *c) {
  c->spatial = weight.rank - 2;
  if (!pj_require(l, c->spatial >= 1, PJ_INVALID_ARGUMENT, "weight should have at least three dimensions") ||
      !pj_require(l, input.rank == weight.rank, PJ_INVALID_ARGUMENT, "Expected %d-dimensional input for %d-dimensional "
                  "weight, but got %d-dimensional input instead", weight.rank, weight.rank, input.rank) ||
      !read_sizes(l, first, c->spatial, 1, "stride", c->stride) ||
      !read_sizes(l, first + 1, c->spatial, 0, "padding", c->padding) ||
      !read_sizes(l, first + 2, c->spatial, 1, "dilation", c->dilation))
    return false;
  c->transposed = pj_bool(l, first + 3);
  c->groups = pj_int(l, first + 5);
  for (int d = 0; d < c->spatial; ++d) c->output_padding[d] = 0;
  if (c->transposed && !read_sizes(l, first + 4, c->spatial, 0, "output_padding", c->output_padding)) return false;
  if (!pj_require(l, c->groups > 0, PJ_INVALID_ARGUMENT, "non-positive groups is not supported") ||
      !pj_require(l, weight.dims[0] >= c->groups && weight.dims[0] % c->groups == 0, PJ_INVALID_ARGUMENT,
                  "expected weight to be at least %lld at dimension 0 and divisible by groups, but got %lld",
                  (long long)c->groups, (long long)weight.dims[0]))
    return false;
  int64_t channels = c->transposed ? weight.dims[0] : weight.dims[1] * c->groups;
  if (!pj_require(l, input.dims[1] == channels, PJ_INVALID_ARGUMENT, "Given groups=%lld, expected input to have %lld "
                  "channels, but got %lld channels instead", (long long)c->groups, (long long)channels,
                  (long long)input.dims[1]))
    return false;
  for (int d = 0; d < c->spatial; ++d) {
    int64_t extent = c->dilation[d] * (weight.dims[d + 2] - 1) + 1;
    if (!c->transposed &&
        !pj_require(l, input.dims[d + 2] + 2 * c->padding[d] >= extent, PJ_INVALID_ARGUMENT,
                    "Calculated padded input size per channel: %lld. Kernel size: %lld. Kernel size can't "
                    "be greater than actual input size",
                    (long long)(input.dims[d + 2] + 2 * c->padding[d]), (long long)extent))
      return false;
    if (c->transposed &&
        !pj_require(l, c->output_padding[d] < c->stride[d] || c->output_padding[d] < c->dilation[d],
                    PJ_INVALID_ARGUMENT,
                    "output padding must be smaller than either stride or dilation, but "
                    "got output_padding %lld, stride %lld, dilation %lld",
                    (long long)c->output_padding[d], (long long)c->stride[d], (long long)c->dilation[d]))
      return false;
  }
  return true;
}

static hlo_convolution_spec spec_of(const conv *c) {
  hlo_convolution_spec spec = {.spatial = c->spatial,
                               .input_feature = 1,
                               .output_feature = 1,
                               .kernel_input_feature = 1,
                               .feature_groups = c->groups,
                               .batch_groups = 1};
  for (int d = 0; d < c->spatial; ++d) {
    spec.input_spatial[d] = spec.kernel_spatial[d] = spec.output_spatial[d] = d + 2;
    spec.stride[d] = spec.lhs_dilation[d] = spec.rhs_dilation[d] = 1;
  }
  return spec;
}

// The convolution up to `size` windows in each spatial dimension; an output_padding may leave room for more.
static hlo_value forward(pj_lowering *l, const conv *c, hlo_value input, hlo_value weight, const int64_t *size) {
  hlo_convolution_spec spec = spec_of(c);
  for (int d = 0; d < c->spatial; ++d) {
    int64_t extent = c->dilation[d] * (weight.dims[d + 2] - 1) + 1;
    spec.stride[d] = c->stride[d];
    spec.rhs_dilation[d] = c->dilation[d];
    spec.pad_low[d] = c->padding[d];
    spec.pad_high[d] = (size[d] - 1) * c->stride[d] + extent - input.dims[d + 2] - c->padding[d];
  }
  return hlo_convolution(l->h, input, weight, &spec, input.dtype);
}

// (groups a, b, ...) to (groups b, a, ...): exchanges the roles of the channels within each group.
static hlo_value swap_group_channels(pj_lowering *l, hlo_value weight, int64_t groups) {
  hlo *h = l->h;
  int64_t dims[PJ_MAX_RANK] = {groups, weight.dims[0] / groups};
  for (int d = 1; d < weight.rank; ++d) dims[d + 1] = weight.dims[d];
  hlo_value swapped = hlo_swap(h, hlo_reshape(h, weight, weight.rank + 1, dims), 1, 2);
  dims[0] = groups * weight.dims[1];
  dims[1] = weight.dims[0] / groups;
  for (int d = 2; d < weight.rank; ++d) dims[d] = weight.dims[d];
  return hlo_reshape(h, swapped, weight.rank, dims);
}

// The adjoint of `forward` in its input: `size` (of the result's spatial dimensions) tells the output padding. It is
// the convolution of the stretched gradient with the turned kernel.
static hlo_value adjoint(pj_lowering *l, const conv *c, hlo_value grad, hlo_value weight, const int64_t *size) {
  hlo_convolution_spec spec = spec_of(c);
  int turned[PJ_MAX_RANK];
  for (int d = 0; d < c->spatial; ++d) {
    int64_t reach = c->dilation[d] * (weight.dims[d + 2] - 1), stretched = (grad.dims[d + 2] - 1) * c->stride[d] + 1;
    spec.lhs_dilation[d] = c->stride[d];
    spec.rhs_dilation[d] = c->dilation[d];
    turned[d] = d + 2;
    spec.pad_low[d] = reach - c->padding[d];
    spec.pad_high[d] = size[d] - stretched + c->padding[d];
  }
  if (c->groups == 1) {
    spec.kernel_input_feature = 0;
    spec.kernel_output_feature = 1;
  } else {
    weight = swap_group_channels(l, weight, c->groups);
  }
  // Turned by an op of its own: XLA:CPU runs a convolution with window_reversal element by element, 20 times slower.
  return hlo_convolution(l->h, grad, hlo_reverse(l->h, weight, turned, c->spatial), &spec, grad.dtype);
}

// (n, groups c, ...) as (c, groups n, ...): what were the batches are features, group by group.
static hlo_value batches_as_features(hlo *h, hlo_value x, int64_t groups) {
  int64_t n = x.dims[0], c = x.dims[1] / groups, dims[PJ_MAX_RANK] = {n, groups, c};
  for (int d = 2; d < x.rank; ++d) dims[d + 1] = x.dims[d];
  hlo_value y = hlo_swap(h, hlo_reshape(h, x, x.rank + 1, dims), 0, 2);
  dims[0] = c, dims[1] = groups * n;
  for (int d = 2; d < x.rank; ++d) dims[d] = x.dims[d];
  return hlo_reshape(h, y, x.rank, dims);
}

// The gradient in the weight of grad = forward(input, weight): input correlated with grad, batch as the summed feature.
static hlo_value weight_gradient(pj_lowering *l, const conv *c, hlo_value grad, hlo_value input, pj_type weight) {
  hlo_convolution_spec spec = spec_of(c);
  spec.input_batch = 1;
  spec.input_feature = 0;
  spec.kernel_input_feature = 0;
  spec.kernel_output_feature = 1;
  spec.output_batch = 1;
  spec.output_feature = 0;
  // Groups of batches would say it without moving anything, but XLA:CPU runs those 100 times slower.
  if (c->groups > 1) {
    input = batches_as_features(l->h, input, c->groups);
    spec.input_batch = 0;
    spec.input_feature = 1;
  }
  for (int d = 0; d < c->spatial; ++d) {
    int64_t reach = c->dilation[d] * (weight.dims[d + 2] - 1) + 1,
            stretched = (grad.dims[d + 2] - 1) * c->stride[d] + 1;
    spec.stride[d] = c->dilation[d];
    spec.rhs_dilation[d] = c->stride[d];
    spec.pad_low[d] = c->padding[d];
    spec.pad_high[d] = reach - 1 + stretched - input.dims[d + 2] - c->padding[d];
  }
  return hlo_convolution(l->h, input, grad, &spec, grad.dtype);
}

static bool is_empty(pj_type type) { return pj_type_elements(&type) == 0; }

static hlo_value zeros(pj_lowering *l, int result) {
  pj_type type = pj_result_type(l, result);
  return hlo_full(l->h, pj_math_dtype(type.dtype), type.rank, type.dims, 0);
}

// aten::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
static void lower_convolution(pj_lowering *l) {
  hlo *h = l->h;
  pj_type input = pj_tensor_type(l, 0), weight = pj_tensor_type(l, 1), output = pj_result_type(l, 0);
  conv c;
  if (!read_conv(l, 3, input, weight, &c)) return;
  hlo_value y;
  if (is_empty(input) || is_empty(weight) || is_empty(output)) y = zeros(l, 0);
  else if (c.transposed) y = adjoint(l, &c, pj_wide(l, 0), pj_wide(l, 1), output.dims + 2);
  else y = forward(l, &c, pj_wide(l, 0), pj_wide(l, 1), output.dims + 2);
  if (pj_present(l, 2)) {
    hlo_value bias = hlo_convert(h, pj_tensor(l, 2), y.dtype);
    if (!pj_require(l, bias.rank == 1 && bias.dims[0] == output.dims[1], PJ_INVALID_ARGUMENT, "expected bias to be "
                    "1-dimensional with %lld elements", (long long)output.dims[1]))
      return;
    y = hlo_add(h, y, hlo_broadcast_in_dim(h, bias, y.rank, y.dims, (int[]){1}));
  }
  pj_return(l, 0, y);
}

// The gradients of a convolution whose other arguments begin at `first`; `mask` is output_mask's position.
static void convolution_backward(pj_lowering *l, int first, int mask) {
  hlo *h = l->h;
  pj_type input = pj_tensor_type(l, 1), weight = pj_tensor_type(l, 2), output = pj_tensor_type(l, 0);
  conv c;
  if (!read_conv(l, first, input, weight, &c)) return;
  bool empty = is_empty(input) || is_empty(weight) || is_empty(output);
  hlo_value grad = pj_wide(l, 0);
  int out = pj_gradient(l, mask, 0);
  if (out >= 0)
    pj_return(l, out, empty ? zeros(l, out) : c.transposed ? forward(l, &c, grad, pj_wide(l, 2), input.dims + 2)
                                                           : adjoint(l, &c, grad, pj_wide(l, 2), input.dims + 2));
  out = pj_gradient(l, mask, 1);
  if (out >= 0)
    pj_return(l, out, empty ? zeros(l, out) : c.transposed ? weight_gradient(l, &c, pj_wide(l, 1), grad, weight)
                                                           : weight_gradient(l, &c, grad, pj_wide(l, 1), weight));
  out = pj_gradient(l, mask, 2);
  if (out < 0) return;
  int dims[PJ_MAX_RANK], count = 0;
  for (int d = 0; d < grad.rank; ++d)
    if (d != 1) dims[count++] = d;
  pj_return(l, out, hlo_reduce(h, HLO_ADD, grad, dims, count));
}

// aten::convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed,
// output_padding, groups, output_mask)
static void lower_convolution_backward(pj_lowering *l) { convolution_backward(l, 4, 10); }

// aten::convolution_backward_overrideable: the same without bias_sizes
static void lower_convolution_backward_overrideable(pj_lowering *l) { convolution_backward(l, 3, 9); }

PJ_LOWERINGS(convolution_lowerings) = {
    {.name = "aten::convolution", .lower = lower_convolution},
    {.name = "aten::convolution_overrideable", .lower = lower_convolution},
    {.name = "aten::_convolution", .lower = lower_convolution},
    {.name = "aten::convolution_backward", .lower = lower_convolution_backward},
    {.name = "aten::convolution_backward_overrideable", .lower = lower_convolution_backward_overrideable},
    {0},
};
