"""The text of a tensor, formatted on the host: PyTorch's formatter would run, and compile, about twenty ops on the device."""
import torch
from torch import _tensor_str

# Up to here a tensor is read whole, which takes less time than compiling a program that picks out what is printed.
_WHOLE_BYTES = 4 << 20


class _Edges:
    """What _tensor_str_with_formatter asks of a tensor that it summarizes. `read` holds of each dimension of `shape` the
    first and last edgeitems, or all where there are not more."""

    def __init__(self, read: torch.Tensor, shape: torch.Size):
        self.read, self.shape, self.dtype = read, shape, read.dtype

    def dim(self) -> int:
        return len(self.shape)

    def size(self, dim: int) -> int:
        return self.shape[dim]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: int | slice) -> "_Edges | torch.Tensor":
        if isinstance(place, slice):  # one end of a row
            return self.read[place]
        skipped = self.shape[0] - self.read.shape[0]
        return _Edges(self.read[place if place < _tensor_str.PRINT_OPTS.edgeitems else place - skipped], self.shape[1:])

    def tolist(self) -> list:
        return self.read.tolist()


def _read_edges(tensor: torch.Tensor) -> torch.Tensor:
    edge = _tensor_str.PRINT_OPTS.edgeitems
    index = []
    for d, size in enumerate(tensor.shape):
        places = torch.arange(size) if size <= 2 * edge else torch.cat([torch.arange(edge), torch.arange(size - edge, size)])
        index.append(places.reshape([-1 if i == d else 1 for i in range(tensor.dim())]))
    return tensor[tuple(index)].cpu()


def tensor_str(tensor: torch.Tensor, indent: int, original) -> str:
    """torch._tensor_str._tensor_str of a tensor of the device: reads it, or of a huge one what is printed, once."""
    options = _tensor_str.PRINT_OPTS
    if tensor.numel() <= options.threshold or tensor.nbytes <= _WHOLE_BYTES:
        return original(tensor.cpu(), indent)
    read = _read_edges(tensor).resolve_conj().resolve_neg()
    if read.dtype.is_floating_point and read.dtype.itemsize == 1:
        read = read.half()  # as PyTorch prints float8
    parts = [read.real, read.imag] if read.is_complex() else [read]
    formatters = [_tensor_str._Formatter(part) for part in parts]
    return _tensor_str._tensor_str_with_formatter(_Edges(read, tensor.shape), indent, True, *formatters)
