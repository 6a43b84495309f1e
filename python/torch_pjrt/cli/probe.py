"""python -m torch_pjrt.cli.probe: uses the device once and says in one line of JSON what it found.

A program of its own, since a plugin that is broken may abort or hang its process; `torch-pjrt doctor` runs it.
"""
import json


def probe() -> dict:
    import torch
    from torch_pjrt import _C, _compat, _env

    torch.tpu.init()
    plugin = _C.plugin_info()
    with torch.tpu.set_fallback("error"), torch.tpu.set_eager_mode("strict"):
        for index in range(torch.tpu.device_count()):
            assert (torch.ones(3, device=f"tpu:{index}") + 1).tolist() == [2, 2, 2], f"tpu:{index} cannot add"
    counters = torch.tpu.counters()
    return {
        "plugin": {name: plugin[name] for name in ("path", "platform", "platform_version")}
        | {"api_version": ".".join(map(str, plugin["api_version"]))},
        "devices": plugin["device_kinds"],
        "compiler": {"worker": bool(_env.get("TORCH_PJRT_WORKERS")) and not _C.own_process_reason(),
                     "why_not": _C.own_process_reason(), "compiles": counters["compiles"],
                     "compile_ms": round(counters["compile_ms"]), "worker_failures": counters["worker_failures"]},
        "mode": {"eager": torch.tpu.get_eager_mode(), "fallback": _env.get("TORCH_PJRT_FALLBACK"),
                 "index_check": _env.get("TORCH_PJRT_INDEX_CHECK")},
        "accommodations": _compat.in_force,
    }


if __name__ == "__main__":
    try:
        result = probe()
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)
