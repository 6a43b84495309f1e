"""torch.profiler on the device, and TORCH_LOGS."""
import contextlib
import json
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch
from child import run
from compare import counted
from torch.profiler import ProfilerActivity, profile, record_function

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
HERE = Path(__file__).name
MODES = pytest.mark.parametrize("mode", ["strict", "fused"])


@pytest.fixture
def trace(tmp_path):
    """trace(prof): the spans of its Chrome trace, by category."""

    def read(prof) -> dict[str, list[dict]]:
        prof.export_chrome_trace(str(tmp_path / "trace.json"))
        spans = {}
        for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]:
            if event["ph"] == "X":
                spans.setdefault(event["cat"], []).append(event)
        return spans

    return read


def ends(span) -> float:
    return span["ts"] + span["dur"]


def is_inside(inner, outer) -> bool:
    return outer["ts"] <= inner["ts"] and ends(inner) <= ends(outer) and inner["tid"] == outer["tid"]


def work(columns: int) -> None:
    """A few programs, a write through a view, transfers both ways."""
    x = torch.arange(3.0 * columns).reshape(3, columns).to("tpu")
    y = (x * 2 + 1).relu()
    y[1].mul_(x[0])
    assert y.sum().item() > 0
    assert y.cpu().shape == x.cpu().shape


@MODES
def test_each_execution_compile_and_transfer_is_one_span(mode, trace):
    with torch.tpu.set_eager_mode(mode):
        columns = {"strict": 83, "fused": 89}[mode]  # met nowhere else, so that programs are made
        torch.tpu.synchronize()
        with profile(activities=BOTH) as prof:
            counts = counted(lambda: work(columns))
    spans = trace(prof)
    made = [s for s in spans["privateuse1_runtime"] if s["name"].startswith(("compile ", "load "))]
    assert len(spans["kernel"]) == counts["executions"] > 0
    assert len(made) == counts["programs"] > 0
    assert sum(s["args"]["from"] == "compiler" for s in made) == counts["compiles"]
    assert all(s["args"]["reason"].startswith("new ") for s in made)
    moved = {way: sum(s["args"]["bytes"] for s in spans["gpu_memcpy"] if s["name"].startswith(f"Memcpy {way} f32["))
             for way in ("HtoD", "DtoH")}
    assert moved == {"HtoD": counts["bytes_to_device"], "DtoH": counts["bytes_to_host"]}
    for span in spans["kernel"] + spans["gpu_memcpy"] + made:
        assert HERE in span["args"]["line"], span


@MODES
def test_a_span_is_named_by_its_ops_and_the_line_that_called_them(mode, trace):
    x = torch.ones(7, 11, device="tpu")
    x.cpu()
    with torch.tpu.set_eager_mode(mode), profile(activities=BOTH) as prof:
        here = sys._getframe().f_lineno
        y = x + x
        (y * x).cpu()
    kernels = trace(prof)["kernel"]
    lines = [int(k["args"]["line"].rpartition(":")[2]) for k in kernels]
    assert lines == ([here + 1, here + 2] if mode == "strict" else [here + 1])
    if mode == "strict":
        assert [k["name"].partition("(")[0] for k in kernels] == ["aten::add.Tensor", "aten::mul.Tensor"]
        assert all(k["args"]["ops"] == 1 for k in kernels)
    else:
        (kernel,) = kernels
        assert kernel["name"] == "aten::add.Tensor + aten::mul.Tensor"
        assert kernel["args"]["ops"] == 2 and kernel["args"]["cut"] == "a value is read"


def test_a_program_that_serves_many_lines_is_told_with_each_of_them(trace):
    x = torch.ones(5, device="tpu")
    x + x
    with torch.tpu.set_eager_mode("strict"), profile(activities=BOTH) as prof:
        x + x
        x + x
    first, second = (int(k["args"]["line"].rpartition(":")[2]) for k in trace(prof)["kernel"])
    assert second == first + 1


@pytest.mark.eager("strict")
def test_the_devices_time_belongs_to_the_op_that_asked_for_it(trace):
    x = torch.ones(128, 128, device="tpu")
    x @ x
    with profile(activities=BOTH) as prof:
        x @ x
    averages = {row.key: row for row in prof.key_averages()}
    (kernel,) = (event for event in prof.events() if event.device_type == torch.autograd.DeviceType.PrivateUse1)
    assert kernel.name == "aten::mm(f32[128,128], f32[128,128])" and kernel.time_range.elapsed_us() > 0
    assert averages["aten::mm"].self_device_time_total == averages[kernel.name].self_device_time_total > 0
    assert averages["aten::mm"].device_time_total == averages["aten::matmul"].device_time_total
    assert "Self TPU" in prof.key_averages().table(sort_by="self_device_time_total")
    (op,) = (event for event in prof.events() if event.name == "aten::mm")
    assert trace(prof)["kernel"][0]["args"]["External id"] == kernel.linked_correlation_id == op.id


@MODES
def test_ranges_and_ops_nest_as_on_the_cpu(mode, trace):
    def program(x):
        with record_function("outer"):
            x = x + 1
            with record_function("inner"):
                x = x * 2
        return x

    def nesting(device):
        x = torch.ones(3, device=device)
        with profile(activities=BOTH) as prof:
            program(x).cpu()
        spans = trace(prof)
        found = spans["user_annotation"] + [s for s in spans["cpu_op"] if s["name"] in ("aten::add", "aten::mul")]
        assert len(found) == 4
        return {s["name"]: sorted(o["name"] for o in found if o is not s and is_inside(s, o)) for s in found}

    with torch.tpu.set_eager_mode(mode):
        assert nesting("tpu") == nesting("cpu") == {"outer": [], "inner": ["outer"], "aten::add": ["outer"],
                                                    "aten::mul": ["inner", "outer"]}


def test_the_work_of_a_device_follows_in_one_row_and_the_hosts_call_is_within_its_op(trace):
    x = torch.ones(300, 300, device="tpu")
    with torch.tpu.set_eager_mode("strict"), profile(activities=BOTH) as prof:
        y = x
        for _ in range(20):
            y = y @ x
    spans = trace(prof)
    kernels = sorted(spans["kernel"], key=lambda s: s["ts"])
    assert len(kernels) == 20 and {(k["pid"], k["tid"]) for k in kernels} == {(0, 0)}
    for before, after in zip(kernels, kernels[1:]):
        assert ends(before) <= after["ts"] + 0.002  # microseconds: the trace rounds each number to nanoseconds
    calls = {s["args"]["correlation"]: s for s in spans["privateuse1_runtime"] if "correlation" in s["args"]}
    ops = {s["args"]["External id"]: s for s in spans["cpu_op"]}
    for kernel in kernels:
        call = calls[kernel["args"]["correlation"]]
        op = ops[kernel["args"]["External id"]]
        assert op["name"] == "aten::mm" and is_inside(call, op) and call["ts"] <= kernel["ts"]


def test_threads_and_the_backward_pass_are_told_each_on_its_own_thread(trace):
    weight = torch.ones(6, 6, device="tpu", requires_grad=True)

    def train():
        (weight @ weight).sum().backward()

    train()
    with torch.tpu.set_eager_mode("strict"), profile(activities=BOTH) as prof:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        train()
    spans = trace(prof)
    ops = {s["args"]["External id"]: s for s in spans["cpu_op"]}
    calls = [s for s in spans["privateuse1_runtime"] if s["name"] == "PJRT_LoadedExecutable_Execute"]
    assert len(calls) == len(spans["kernel"]) > 0
    for call in calls:
        if "External id" in call["args"]:  # PyTorch follows the ops of the thread that profiles, and of its backward
            assert call["tid"] == ops[call["args"]["External id"]]["tid"]
    assert len({call["tid"] for call in calls}) == 3


def test_a_compiled_graph_is_one_span(trace):
    f = torch.compile(lambda x: (x * 3 + 1).relu().sum())
    x = torch.ones(17, device="tpu")
    f(x).item()
    with profile(activities=BOTH) as prof:
        f(x).item()
    (kernel,) = trace(prof)["kernel"]
    assert HERE in kernel["args"]["line"]


def test_only_what_runs_within_the_profile_is_told(trace):
    x = torch.ones(4, device="tpu")
    (x + 1).cpu()
    with torch.tpu.set_eager_mode("strict"):
        with profile(activities=BOTH) as prof:
            x + 2
        x + 3
        x.cpu()
    spans = trace(prof)
    assert len(spans["kernel"]) == 1 and "gpu_memcpy" not in spans


def test_a_profile_of_the_cpu_alone_has_none_of_the_devices_spans(trace):
    x = torch.ones(4, device="tpu")
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        (x + 1).cpu()
    assert trace(prof).keys().isdisjoint({"kernel", "gpu_memcpy", "privateuse1_runtime"})


def test_a_schedule_gives_each_cycle_its_own_spans(trace):
    cycles = []
    x = torch.ones(9, device="tpu")
    x = x + 1
    with torch.tpu.set_eager_mode("strict"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, that events of earlier cycles are gone
        with profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2),
                     on_trace_ready=lambda prof: cycles.append(len(trace(prof)["kernel"]))) as prof:
            for _ in range(8):
                x = x + 1
                prof.step()
    assert cycles == [2, 2]


def test_an_exception_within_a_profile_leaves_it_readable(trace):
    x = torch.ones(4, device="tpu")
    with contextlib.suppress(ZeroDivisionError), torch.tpu.set_eager_mode("strict"):
        with profile() as prof:
            x + 1
            1 / 0
    assert len(trace(prof)["kernel"]) == 1


def test_the_profiler_without_kinetos_spans_gives_the_ops_times_on_the_device():
    x = torch.ones(200, 200, device="tpu")
    x @ x
    with torch.autograd.profiler.profile(use_device="tpu") as prof:
        x @ x
    (op,) = (event for event in prof.function_events if event.name == "aten::mm")
    assert op.device_time_total > 0


def test_marks_for_another_vendors_tool_are_refused():
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        with torch.autograd.profiler.emit_nvtx():
            torch.ones(3, device="tpu") + 1


def test_a_profile_may_begin_before_the_device_starts():
    run("""
    assert not torch.tpu.is_initialized()
    with torch.profiler.profile() as prof:
        works()
    on_device = [e for e in prof.events() if e.device_type == torch.autograd.DeviceType.PrivateUse1]
    programs = [e for e in on_device if not e.name.startswith("Memcpy")]
    assert len(programs) == torch.tpu.counters()["executions"] > 0
    """)


@pytest.mark.parametrize("plugin", ["", "/no/such/plugin.so"])
def test_a_profile_of_cpu_work_neither_starts_nor_needs_the_device(plugin):
    run("""
    with torch.profiler.profile() as prof:
        torch.ones(3) + 1
    assert "aten::add" in [event.name for event in prof.events()]
    assert not torch.tpu.is_initialized()
    """, TORCH_PJRT_PLUGIN=plugin)


def test_a_device_has_a_process_of_its_own_in_the_trace():
    run("""
    import json, os, tempfile
    with torch.profiler.profile() as prof:
        for i in range(2):
            (torch.ones(3, device=f"tpu:{i}") + 1).cpu()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        prof.export_chrome_trace(path)
        events = json.load(open(path))["traceEvents"]
    labels = {e["pid"]: e["args"]["labels"] for e in events if e["name"] == "process_labels"}
    assert labels[0] == "tpu:0" and labels[1] == "tpu:1", labels
    assert {e["pid"] for e in events if e.get("cat") == "kernel"} == {0, 1}
    """, TORCH_PJRT_CPU_DEVICES="2")


# ---- TORCH_LOGS ------------------------------------------------------------------------------------------------------

PROGRAM = """
import warnings
warnings.simplefilter("ignore")
x = torch.ones(9).to("tpu")
with torch.tpu.set_eager_mode("fused"):
    (x + x).cpu()
torch.linalg.eig(torch.ones(3, 3, device="tpu"))
made = [(row["op"], row["reason"], row["from"]) for row in torch.tpu.explain()]
cuts = torch.tpu.counters()["queue_cuts"]
fallbacks = torch.tpu.counters()["fallback_calls"]
print("counted:", len(made), cuts, fallbacks)
"""


def logged(settings: str | None, program: str = PROGRAM) -> tuple[dict[str, list[str]], list[int]]:
    """The lines of each artifact, and the program's own counts."""
    environment = {} if settings is None else {"TORCH_LOGS": settings}
    lines = run(program, **environment).splitlines()
    counts = [int(n) for line in lines if line.startswith("counted:") for n in line.split()[1:]]
    return {name: [line.partition(f"[__{name}] ")[2] for line in lines if f"[__{name}] " in line]
            for name in ("tpu_compiles", "tpu_fallbacks", "tpu_cuts")}, counts


def test_torch_logs_tells_each_compile_fallback_and_cut():
    lines, (made, cuts, fallbacks) = logged("tpu_compiles,tpu_fallbacks,tpu_cuts")
    assert [len(lines[name]) for name in ("tpu_compiles", "tpu_fallbacks", "tpu_cuts")] == [made, fallbacks, cuts]
    assert made > 0 and cuts > 0 and fallbacks == 1
    assert all(" at " in line and ": new " in line and line.endswith((" from compiler", " from disk"))
               for line in lines["tpu_compiles"])
    assert lines["tpu_fallbacks"][0].startswith("aten::linalg_eig(f32[3,3]) at ")
    assert "1 queued: a value is read" in lines["tpu_cuts"]


def test_the_whole_log_leaves_out_the_cuts_which_are_a_line_an_op():
    lines, (made, _, fallbacks) = logged("+torch_pjrt")
    assert len(lines["tpu_compiles"]) == made and len(lines["tpu_fallbacks"]) == fallbacks and not lines["tpu_cuts"]


def test_nothing_is_logged_unasked():
    lines, _ = logged(None)
    assert not any(lines.values())


def test_logs_can_be_turned_on_and_off_while_the_device_runs():
    lines, _ = logged(None, """
    works()
    torch._logging.set_logs(modules={"tpu_compiles": True})
    torch.ones(23, device="tpu").cpu()
    torch._logging.set_logs()
    torch.ones(29, device="tpu").cpu()
    """)
    assert [line.partition("(")[0] for line in lines["tpu_compiles"]] == ["aten::ones"]
