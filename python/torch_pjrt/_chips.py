"""The TPU chips of this machine by their device files, and which processes have them open. Nothing is loaded."""
import os
import pathlib
from typing import NamedTuple

DEV, IOMMU_GROUPS = pathlib.Path("/dev"), pathlib.Path("/sys/kernel/iommu_groups")
_GOOGLE = "0x1ae0"  # PCI vendor; a VFIO group may as well hold a graphics card that is lent to a virtual machine


class Holder(NamedTuple):
    pid: int
    command: str
    file: str


def device_files() -> list[str]:
    """/dev/accel0 ... (up to TPU v4), and the VFIO groups with a device of Google's (later ones)."""
    accel = [f for f in DEV.glob("accel[0-9]*") if not f.is_dir()]
    vfio = [f for f in (DEV / "vfio").glob("[0-9]*")
            if any(v.read_text().strip() == _GOOGLE for v in (IOMMU_GROUPS / f.name / "devices").glob("*/vendor"))]
    return sorted(map(str, accel + vfio))


def holders() -> tuple[list[Holder], int]:
    """The other processes that have a chip's device file open, and how many processes this user may not look into."""
    files, found, refused = set(device_files()), [], 0
    for process in pathlib.Path("/proc").glob("[0-9]*") if files else ():
        if process.name == str(os.getpid()):
            continue
        try:
            opened = {os.readlink(fd.path) for fd in os.scandir(process / "fd")}
            command = (process / "comm").read_text().strip()
        except PermissionError:
            refused += 1
        except OSError:  # it ended, or closed a file, meanwhile
            continue
        else:
            found += [Holder(int(process.name), command, file) for file in sorted(files & opened)]
    return found, refused
