import pytest
import torch
from checks import FLOATS, INF, SPECIAL, check, check_against, layouts, make
from harness import overload


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["aten::_softmax", "aten::_log_softmax"])
def test_softmax_and_its_backward_equal_the_cpus(name, dtype):
    for x in (*layouts(dtype), SPECIAL.to(dtype)):
        for dim in (0, -1):
            check(name, x, dim, False)
            y = overload(name)(x, dim, False)
            check(f"{name}_backward_data", make(dtype, *x.shape, seed=1), y, dim, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_safe_softmax_gives_zeros_for_rows_of_minus_infinity(dtype):
    x = make(dtype, 3, 4)
    x[1] = -INF
    check("aten::_safe_softmax", x, -1)
    check("aten::_safe_softmax", x, 0)


def test_masked_softmax_leaves_out_what_the_mask_marks():
    x = make(torch.float32, 2, 3, 4, 4)
    for mask, kind in ((make(torch.bool, 4, 4), 0), (make(torch.bool, 2, 4), 1), (make(torch.bool, 2, 3, 4, 4), 2)):
        mask[..., 0] = False
        check_against("aten::_masked_softmax", [torch._masked_softmax(x, mask, -1, kind)], x, mask, -1, kind)
    y = torch.softmax(x, -1)
    expected = torch.ops.aten._masked_softmax_backward(x, y, mask, -1)
    check_against("aten::_masked_softmax_backward", [expected], x, y, mask, -1)
