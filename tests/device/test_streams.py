"""Streams and events: names for, and points in, the one order of a device's work."""
import threading

import pytest
import torch
from child import run
from compare import EXACT, same


def heavy(x):
    for _ in range(3):
        x = x @ x
    return x


def test_a_second_stream_sees_what_the_first_one_wrote_and_the_first_sees_its_results():
    side = torch.tpu.Stream()
    x = heavy(torch.full((256, 256), 1 / 256, device="tpu"))
    side.wait_stream(torch.tpu.current_stream())
    with torch.tpu.stream(side):
        y = x * 2
        x.add_(1)
    torch.tpu.current_stream().wait_stream(side)
    # Three products, one after the other, of sums of 256 terms, each rounded.
    same((x, y), (torch.full((256, 256), 1 + 1 / 256), torch.full((256, 256), 2 / 256)), rtol=1e-5, atol=0)


def test_a_stream_is_the_current_one_inside_its_context_only_and_of_its_thread_only():
    outer, inner = torch.tpu.Stream(), torch.Stream("tpu")
    default = torch.tpu.current_stream()
    seen = []
    with torch.tpu.stream(outer):
        assert torch.tpu.current_stream() == outer == torch.accelerator.current_stream()
        with inner:
            assert torch.tpu.current_stream() == inner
        with torch.tpu.stream(None):
            assert torch.tpu.current_stream() == outer
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_stream()))
        thread.start()
        thread.join(60)
    assert torch.tpu.current_stream() == default == torch.tpu.default_stream() == seen[0]
    with pytest.raises(ZeroDivisionError), torch.tpu.stream(outer):
        1 / 0
    assert torch.tpu.current_stream() == default


def test_streams_are_told_apart_and_have_the_types_of_torch_tpu():
    a, b = torch.tpu.Stream(), torch.tpu.Stream(priority=-1)
    assert a != b and a == torch.tpu.Stream(stream_id=a.stream_id, device_index=0, device_type=a.device_type)
    assert len({a, b, a}) == 2 and a.device == torch.device("tpu:0") and "torch.tpu.Stream" in repr(a)
    for stream in (a, torch.tpu.current_stream(), torch.tpu.default_stream()):
        assert isinstance(stream, torch.tpu.Stream) and isinstance(stream, torch.Stream)
    assert isinstance(a.record_event(), torch.tpu.Event) and not isinstance(a, torch.tpu.Event)


@pytest.mark.eager("strict", "fused")
def test_an_event_is_reached_when_the_work_before_it_is_done():
    event = torch.tpu.Event()
    assert event.query()  # never recorded
    x = heavy(torch.full((512, 512), 1 / 512, device="tpu"))
    event.record()
    event.synchronize()
    assert event.query() and torch.tpu.current_stream().query()
    side = torch.tpu.Stream()
    side.wait_event(event)
    event.wait(side)
    side.record_event(event)
    side.synchronize()
    assert event.query()
    # Sums of 512 terms, as in the first test.
    same(x[0, :2], torch.full((2,), 1 / 512), rtol=1e-5, atol=0)


def test_the_time_between_two_events_is_that_of_the_work_between_them():
    x = torch.full((1024, 1024), 1 / 1024, device="tpu")
    heavy(x).sum().item()
    begin, middle, end = (torch.tpu.Event(enable_timing=True) for _ in range(3))
    begin.record()
    middle.record()
    heavy(x)
    end.record()
    end.synchronize()
    assert 0 <= begin.elapsed_time(middle) < middle.elapsed_time(end)
    assert begin.elapsed_time(end) == pytest.approx(begin.elapsed_time(middle) + middle.elapsed_time(end), abs=1e-3)


def test_the_time_of_events_without_timing_or_not_recorded_is_refused():
    timed, plain = torch.tpu.Event(enable_timing=True), torch.tpu.Event()
    plain.record()
    for a, b in ((plain, plain), (plain, timed), (timed, timed)):
        with pytest.raises((RuntimeError, ValueError), match="enable_timing=True|recorded"):
            a.elapsed_time(b)


def test_a_tensor_that_another_stream_uses_may_be_freed_at_once():
    side = torch.tpu.Stream()
    x = torch.full((1000,), 3.0, device="tpu")
    with torch.tpu.stream(side):
        y = x * 2
    x.record_stream(side)
    del x
    z = torch.zeros(1000, device="tpu")  # would take its memory
    same((y, z), (torch.full((1000,), 6.0), torch.zeros(1000)), **EXACT)


def test_streams_and_events_of_two_devices_wait_for_each_other():
    run("""
    import torch.tpu
    other = torch.tpu.Stream("tpu:1")
    assert other.device == torch.device("tpu:1") and torch.tpu.current_device() == 0
    with torch.tpu.stream(other):
        assert torch.tpu.current_device() == 1 and torch.tpu.current_stream() == other
        x = torch.ones(300, 300, device="tpu") @ torch.ones(300, 300, device="tpu")
        assert x.device == torch.device("tpu:1")
        event = other.record_event()
    assert torch.tpu.current_device() == 0 and torch.tpu.current_stream(1) == torch.tpu.default_stream(1)
    torch.tpu.current_stream().wait_event(event)
    torch.tpu.current_stream().wait_stream(other)
    assert event.query() and (x.to("tpu:0") == 300).all()
    torch.accelerator.set_stream(other)
    assert torch.accelerator.current_device_index() == 1
    """, TORCH_PJRT_CPU_DEVICES="2")


def test_an_event_is_recorded_and_timed_on_one_device():
    run("""
    import pytest
    a, b = (torch.tpu.Event(enable_timing=True) for _ in range(2))
    a.record(torch.tpu.Stream(0))
    b.record(torch.tpu.Stream(1))
    with pytest.raises(RuntimeError, match="two devices"):
        a.elapsed_time(b)
    with pytest.raises(RuntimeError, match="Event device index 0 does not match recording stream's device index 1"):
        a.record(torch.tpu.Stream(1))
    """, TORCH_PJRT_CPU_DEVICES="2")


def test_an_event_is_not_shared_between_processes():
    with pytest.raises(NotImplementedError, match="cannot be shared between processes"):
        torch.tpu.Event(interprocess=True)


def test_a_stream_keeps_its_priority_and_nothing_is_captured():
    kept, plain = torch.tpu.Stream(priority=-1), torch.tpu.Stream()
    with torch.tpu.stream(kept):
        assert torch.tpu.current_stream().priority == kept.priority == -1
    assert plain.priority == 0 and not torch.tpu.is_current_stream_capturing()
