"""Other packages that drive TPUs from PyTorch, and which of them has the device "tpu" in this process."""
import functools
import importlib.util
import sys
from typing import NamedTuple

from torch_pjrt import _chips, _env

# What each takes: torch_tpu PyTorch's spare device, as we do; torch_xla a device of its own, and the chips.
OTHERS = ("torch_tpu", "torch_xla")


class Decision(NamedTuple):
    driver: str  # "torch_pjrt" or one of OTHERS
    others: tuple[str, ...]  # of OTHERS, those that are installed
    sentence: str  # for the user, where several are installed and nobody chose, or the choice cannot be; else ""


@functools.cache  # once, since torch_pjrt._compat may then put a stand-in for torch_tpu in its place
def decide() -> Decision:
    """Imports none of the packages."""
    others = tuple(name for name in OTHERS if name in sys.modules or importlib.util.find_spec(name))
    try:
        chosen = _env.get("TORCH_PJRT_DRIVER")
    except ValueError as error:  # `import torch` goes on; the first use of the device raises it
        return Decision("torch_pjrt", others, str(error))
    if chosen in OTHERS and chosen not in others:
        return Decision(chosen, others, f'nothing drives the device "tpu": TORCH_PJRT_DRIVER={chosen}, and {chosen} is '
                                        "not installed")
    if chosen != "auto" or not others:
        return Decision("torch_pjrt" if chosen == "auto" else chosen, others, "")
    # torch_tpu 0.2.0 registers its device only where there is a chip, and then nobody else can.
    if "torch_tpu" in others and _chips.device_files():
        return Decision("torch_tpu", others, 'torch_tpu drives the device "tpu"; torch_pjrt is installed too and does '
                                             "with TORCH_PJRT_DRIVER=torch_pjrt")
    words = " and ".join(others) + (" is" if len(others) == 1 else " are")
    sentence = (f'torch_pjrt drives the device "tpu"; {words} installed too, and TORCH_PJRT_DRIVER={others[0]} keeps '
                "torch_pjrt out")
    if "torch_xla" in others:
        sentence += " (Transformers takes torch_xla first, unless USE_TORCH_XLA=0)"
    return Decision("torch_pjrt", others, sentence)
