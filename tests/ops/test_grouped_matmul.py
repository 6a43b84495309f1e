import pytest
import torch
from harness import compare, run

NAME = "aten::_grouped_mm"
# Ends of four groups of 300 rows: several tiles of 128, a partial one, an empty group, a group of one row.
ENDS = {"uneven": [130, 130, 131, 300], "all in one": [0, 300, 300, 300], "a tile each": [75, 150, 225, 300]}


def matrix(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
def test_every_group_of_rows_is_multiplied_by_its_own_matrix(dtype, ends):
    offs = torch.tensor(ends, dtype=torch.int32)
    rows, matrices = matrix(300, 16, dtype=dtype), matrix(4, 16, 24, dtype=dtype)
    compare(NAME, rows, matrices, offs, meta=False)
    compare(NAME, rows, matrix(4, 24, 16, dtype=dtype).transpose(1, 2), offs, meta=False)
    compare(NAME, matrices.transpose(1, 2), rows.t(), offs, meta=False)
    # Sums of up to 300 terms: a half result may round to its other neighbour, and float32 sums in another order.
    close = {} if dtype != torch.float32 else dict(rtol=1e-5, atol=2e-5)
    compare(NAME, rows.t(), matrix(300, 24, dtype=dtype), offs, meta=False, **close)


def test_without_offsets_it_is_a_batched_product():
    compare(NAME, matrix(3, 8, 16), matrix(3, 16, 4), meta=False)


def test_rows_beyond_the_last_end_are_zero():
    rows, matrices, offs = matrix(12, 8), matrix(2, 8, 4), torch.tensor([3, 5], dtype=torch.int32)
    got = run(NAME, rows, matrices, offs, results=[torch.empty(12, 4)])[0]
    assert torch.equal(got[5:], torch.zeros(7, 4))
    torch.testing.assert_close(got[3:5], rows[3:5] @ matrices[1])


def test_an_infinite_matrix_stays_in_its_group():
    rows, matrices = matrix(12, 8), matrix(2, 8, 4)
    matrices[0] = torch.inf
    compare(NAME, rows, matrices, torch.tensor([3, 12], dtype=torch.int32), meta=False)


def test_bad_arguments_give_the_cpus_errors():
    a, b, offs = matrix(12, 8), matrix(2, 8, 4), torch.tensor([3, 12], dtype=torch.int32)
    wide = matrix(12, 16)
    for bad in [(a.double(), b.double(), offs), (a, b), (a, b, offs.long()), (wide, b, offs), (a[0], b, offs),
                (a, matrix(3, 8, 4), offs), (b, b.transpose(1, 2), offs), (a, b, offs, matrix(2, 4)),
                (a, b, offs, None, torch.bfloat16)]:
        with pytest.raises(RuntimeError) as expected:
            torch.ops.aten._grouped_mm(*bad)
        with pytest.raises(RuntimeError) as got:
            run(NAME, *bad, results=[torch.empty(12, 4)])
        assert str(expected.value).split("\n")[0].split(", got")[0] in str(got.value)


def test_an_end_out_of_range_is_told():
    offs = torch.tensor([3, 13], dtype=torch.int32)
    with pytest.raises(IndexError):
        run(NAME, matrix(12, 8), matrix(2, 8, 4), offs, results=[torch.empty(12, 4)])
