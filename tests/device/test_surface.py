"""What CUDA programs and libraries ask for by name: there, or absent with a sentence that says what to do."""
import importlib.util

import pytest
import torch
import torch.nn as nn
from child import run
from compare import EXACT, same
from torch.profiler import ProfilerActivity, profile


def test_the_modules_amp_is_that_of_the_device():
    x = torch.randn(4, 4, device="tpu", requires_grad=True)
    with torch.tpu.amp.autocast(dtype=torch.float16):
        assert (x @ x).dtype is torch.float16
    with torch.tpu.amp.autocast(enabled=False):
        assert (x @ x).dtype is torch.float32

    class Square(torch.autograd.Function):
        @staticmethod
        @torch.tpu.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            assert not torch.is_autocast_enabled("tpu")
            return x * x

        @staticmethod
        @torch.tpu.amp.custom_bwd
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0]

    scaler, step = torch.tpu.amp.GradScaler(init_scale=1024.0), torch.optim.SGD([x], 0.5)
    before = x.detach().clone()
    with torch.tpu.amp.autocast():
        loss = Square.apply(x).sum()
    scaler.scale(loss).backward()
    same(x.grad, 2048 * before)
    scaler.step(step)
    same(x, torch.zeros(4, 4), **EXACT)


@pytest.mark.parametrize("name", ["CUDAGraph", "utilization", "MemPool", "nvtx", "set_sync_debug_mode"])
def test_a_name_of_cudas_that_has_no_meaning_here_is_absent_and_says_what_to_do(name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}': .+"):
        getattr(torch.tpu, name)
    assert not hasattr(torch.tpu, name)


def test_who_has_the_chips_and_the_hosts_cache_can_be_asked():
    assert "process" in torch.tpu.list_gpu_processes()
    torch.tpu.empty_host_cache()
    with pytest.raises(RuntimeError, match="tpu:99 does not exist"):
        torch.tpu.list_gpu_processes(99)


def test_a_profile_tells_the_memory_that_ops_take_and_give_back(tmp_path):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], profile_memory=True) as prof:
        x = torch.ones(250, 1000).to("tpu")
        y = x.relu()
        del x
        torch.tpu.synchronize()
    del y
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["aten::_to_copy"].self_device_memory_usage == rows["aten::relu"].self_device_memory_usage == 1_000_000
    assert rows["[memory]"].self_device_memory_usage == -1_000_000  # x, outside of any op
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    assert '"Device Type": 20' in (tmp_path / "trace.json").read_text()


def test_data_parallel_is_its_module_on_one_device_and_refuses_several():
    x = torch.randn(4, 3, device="tpu")
    net = nn.Linear(3, 2).to("tpu")
    for parallel in (nn.DataParallel(net), nn.DataParallel(net, device_ids=[0])):
        same(parallel(x), net(x), **EXACT)
        assert parallel.module is net and list(parallel.state_dict())[0].startswith("module.")
    with pytest.raises(NotImplementedError, match="DistributedDataParallel"):
        nn.DataParallel(net, device_ids=[0, 1])
    same(nn.DataParallel(nn.Linear(3, 2))(x.cpu()).shape, torch.Size([4, 2]))


def test_ahead_of_time_inductor_says_what_to_do_instead():
    program = torch.export.export(nn.Linear(2, 2).to("tpu"), (torch.ones(1, 2, device="tpu"),))
    with pytest.raises(NotImplementedError, match="torch.export.save"):
        torch._inductor.aoti_compile_and_package(program)


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="JAX is not installed")
def test_arrays_of_jax_come_and_go():
    run("""
    import jax, numpy as np  # in a process of its own: JAX starts threads, and sets libtpu's variables
    x = torch.randn(3, 4)
    array = jax.numpy.asarray(np.from_dlpack(x.to("tpu"), device="cpu"))
    np.testing.assert_array_equal(np.asarray(array), x.numpy())
    assert torch.equal(torch.from_dlpack(array * 2).to("tpu").cpu(), x * 2)
    assert torch.tpu.get_device_properties().platform == "cpu"
    try:
        jax.dlpack.from_dlpack(x.to("tpu"))
    except TypeError as error:  # JAX knows no devices but its own
        assert "unsupported device type" in str(error)
    else:
        assert False
    """)


def test_truncated_normal_numbers_of_a_distributed_tensor_are_those_of_a_plain_one():
    run("""
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore
    dist.init_process_group("cpu:fake,tpu:fake", store=FakeStore(), rank=0, world_size=1)
    mesh = init_device_mesh("tpu", (1,))
    plain = torch.zeros(80, 40, device="tpu")
    split = distribute_tensor(plain.clone(), mesh, [Shard(0)])
    for x in (plain, split):
        torch.manual_seed(0)
        torch.nn.init.trunc_normal_(x, std=2, a=-1, b=3)
    assert torch.equal(split.to_local(), plain)
    assert -1 <= plain.min() and plain.max() <= 3 and 0.8 < plain.std() < 1.2  # 1.02
    """)
