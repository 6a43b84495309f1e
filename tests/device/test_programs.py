"""What PyTorch does with whole programs: transforms, tracing, export, custom ops, modes, compilation."""
import io

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn as nn
import torch.nn.functional as F
from child import run
from compare import EXACT, ROUNDING, like_cpu, same
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap

# ---- torch.func and forward derivatives ------------------------------------------------------------------------------


def vmaps(d):
    x = torch.linspace(-1, 1, 12, device=d).reshape(3, 4)
    images = torch.linspace(0, 1, 100, device=d).reshape(4, 1, 5, 5)
    return (vmap(lambda a: (a * a).sum())(x), vmap(torch.dot, (0, None))(x, x[1]), vmap(vmap(torch.sin))(x),
            vmap(lambda a: F.conv2d(a[None], torch.ones(1, 1, 2, 2, device=d)))(images),
            vmap(lambda a: F.cross_entropy(a[None], torch.zeros(1, dtype=torch.long, device=d)))(x),
            vmap(torch.linalg.inv)(torch.eye(3, device=d).repeat(2, 1, 1) * 2), vmap(torch.sort, chunk_size=2)(x)[0],
            vmap(lambda a: a.softmax(-1), in_dims=1, out_dims=1)(x),
            vmap(lambda a, i: a[i])(x, torch.tensor([0, 3, 1], device=d)))


def derivatives(d):
    x = torch.linspace(-1, 1, 5, device=d)

    def f(a):
        return (a.sin() * a**2).sum()

    _, pull = vjp(torch.tanh, x)
    return (grad(f)(x), grad(grad(lambda a: a**3))(x[3]), hessian(f)(x), jvp(f, (x,), (x + 1,)), jacfwd(torch.exp)(x),
            jacrev(torch.exp)(x), pull(x), vmap(grad(f))(x[:, None] * x), torch.autograd.functional.hvp(f, x, x + 1))


def per_sample_gradients(d):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).to(d)
    x, y = torch.linspace(-1, 1, 20).reshape(5, 4).to(d), torch.tensor([0, 1, 1, 0, 1]).to(d)

    def loss(params, x, y):
        return F.cross_entropy(functional_call(model, params, (x[None],)), y[None])

    return vmap(grad(loss), (None, 0, 0))(dict(model.named_parameters()), x, y)


def ensemble(d):
    torch.manual_seed(0)
    models = [nn.Linear(4, 2).to(d) for _ in range(3)]
    params, buffers = stack_module_state(models)
    x = torch.linspace(-1, 1, 8).reshape(2, 4).to(d)
    return vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(params, buffers)


def duals(d):
    with forward_ad.dual_level():
        torch.manual_seed(0)
        layer = nn.Linear(3, 2).to(d)
        x = forward_ad.make_dual(torch.linspace(0, 1, 3).to(d), torch.full((3,), 2.0).to(d))
        results = ((x * x).exp(), layer(x), F.layer_norm(x, (3,)), F.softmax(x, 0), x.sum() * torch.ones(2, device=d))
        return [forward_ad.unpack_dual(r)[:] for r in results]


@pytest.mark.parametrize("program", [vmaps, derivatives, per_sample_gradients, ensemble, duals],
                         ids=lambda f: f.__name__)
def test_transforms_are_the_cpus(program, native):
    like_cpu(program, **ROUNDING)


def test_random_numbers_under_vmap_are_the_same_or_different_as_asked():
    x = torch.zeros(3, 50, device="tpu")
    same_rows = vmap(lambda a: a + torch.rand(50, device="tpu"), randomness="same")(x)
    different = vmap(lambda a: a + torch.rand(50, device="tpu"), randomness="different")(x)
    assert torch.equal(same_rows[0], same_rows[2]) and not torch.equal(different[0], different[2])
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda a: a + torch.rand(50, device="tpu"))(x)


# ---- modes -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_deterministic_algorithms_run_and_new_memory_holds_nan_or_the_largest_number(deterministic):
    ones = torch.ones(2, device="tpu")
    for x in (torch.empty(3, device="tpu"), torch.empty_strided((2, 2), (1, 2), device="tpu"), ones.new_empty(4),
              torch.empty_like(ones)):
        assert x.isnan().all()
    assert (torch.empty(3, dtype=torch.int16, device="tpu") == torch.iinfo(torch.int16).max).all()
    x = torch.ones(2, device="tpu").resize_(4)
    assert x[:2].tolist() == [1, 1] and x[2:].isnan().all()
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        assert torch.empty(3, device="tpu").tolist() == [0, 0, 0]
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True

    def program(d):
        x, index = torch.zeros(4, device=d), torch.tensor([0, 0, 1], device=d)
        x.index_add_(0, index, torch.ones(3, device=d))
        x.scatter_add_(0, index, torch.ones(3, device=d))
        x.index_put_((index,), torch.ones(3, device=d), accumulate=True)
        image = torch.ones(1, 1, 3, 3, device=d, requires_grad=True)
        F.interpolate(image, scale_factor=2, mode="bilinear").sum().backward()
        bag = F.embedding_bag(index[None], torch.ones(3, 2, device=d))
        refused_on_cuda = x.median(0), x.nanmedian(0), x.mode(0), torch.histc(x, 4)
        return x, x.cumsum(0), torch.bincount(index), image.grad, bag, refused_on_cuda

    like_cpu(program, **ROUNDING)


def test_inference_mode_gives_tensors_that_autograd_refuses():
    layer = nn.Linear(2, 2).to("tpu")
    with torch.inference_mode():
        y = layer(torch.ones(1, 2, device="tpu"))
        y.add_(1)[0, 0] = 4
    assert y.is_inference() and not y.requires_grad and y[0, 0] == 4
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        y * torch.ones(1, device="tpu", requires_grad=True)


def test_the_default_device_takes_all_factories():
    makers = [lambda: torch.ones(2), lambda: torch.tensor([1.0]), lambda: torch.arange(3), lambda: torch.randn(2),
              lambda: torch.randperm(4), lambda: nn.Linear(2, 2).weight, lambda: torch.eye(2),
              lambda: torch.linspace(0, 1, 3), lambda: torch.zeros_like(torch.empty(2)),
              lambda: torch.full((2,), 1), lambda: torch.randint(3, (2,))]
    for make in makers:
        with torch.device("tpu"):
            assert make().device == torch.device("tpu:0")
        assert make().device.type == "cpu"
    torch.set_default_device("tpu:0")
    try:
        assert all(make().device == torch.device("tpu:0") for make in makers)
        assert torch.get_default_device().type == "tpu"
        assert torch.ones(2, device="cpu").device.type == "cpu"
    finally:
        torch.set_default_device(None)


def test_a_module_made_on_meta_gets_memory_and_then_numbers():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    model = model.to_empty(device="tpu")
    assert all(t.device.type == "tpu" for t in (*model.parameters(), *model.buffers()))
    for layer in model:
        layer.reset_parameters()
    assert model[0].weight.abs().sum() > 0 and model[1].running_var.tolist() == [1, 1]
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        nn.Linear(2, 2, device="meta").to("tpu")


def test_offloaded_checkpointed_and_anomalous_backwards_are_the_same():
    def gradients(wrap):
        torch.manual_seed(0)
        block = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)).to("tpu")
        x = torch.linspace(-1, 1, 8).reshape(2, 4).to("tpu").requires_grad_()
        wrap(block, x).square().sum().backward()
        return [x.grad] + [p.grad for p in block.parameters()]

    def offloaded(block, x):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return block(x)

    def watched(block, x):
        with torch.autograd.detect_anomaly():
            return block(x)

    def checkpointed(block, x):
        from torch.utils.checkpoint import checkpoint_sequential
        return checkpoint_sequential(block, 2, x, use_reentrant=False)

    expected = gradients(lambda block, x: block(x))
    for wrap in (offloaded, watched, checkpointed):
        same(gradients(wrap), expected, **EXACT)


# ---- tracing ---------------------------------------------------------------------------------------------------------


def test_fake_tensors_of_the_device_have_its_shapes_and_place():
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    before = torch.tpu.counters()["executions"]
    with FakeTensorMode() as mode, torch.device("tpu"):
        x = torch.ones(2, 5, 3)
        results = [nn.LSTM(3, 4, batch_first=True)(x)[0], F.conv1d(x, torch.ones(7, 5, 2)), x @ x.mT,
                   F.scaled_dot_product_attention(*[torch.ones(1, 2, 3, 4)] * 3), x.sort()[0]]
        assert [tuple(r.shape) for r in results] == [(2, 5, 4), (2, 7, 2), (2, 5, 5), (1, 2, 3, 4), (2, 5, 3)]
        assert all(isinstance(r, FakeTensor) and r.device == torch.device("tpu:0") for r in results)
        assert x.to("cpu").device.type == "cpu"
    fake = mode.from_tensor(torch.ones(2, device="tpu"))
    assert fake.device == torch.device("tpu:0") and torch.tpu.counters()["executions"] - before <= 2


def test_a_program_is_exported_saved_and_run_with_other_sizes():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).to("tpu")
    x = torch.randn(2, 4).to("tpu")
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for exported in (program, program.run_decompositions(), torch.export.load(file)):
        for rows in (2, 5):
            x = torch.randn(rows, 4).to("tpu")
            same(exported.module()(x), model(x).cpu(), **ROUNDING)


def test_make_fx_records_the_ops_of_the_device():
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.linspace(-1, 1, 6).to("tpu")
    for mode in ("real", "fake", "symbolic"):
        traced = make_fx(lambda a: (a.sin() + 1).sum(), tracing_mode=mode)(x)
        assert "sin" in traced.code
        same(traced(x), (x.cpu().sin() + 1).sum(), **ROUNDING)


def test_a_custom_op_runs_the_kernel_that_python_gives_the_device():
    ran = []

    @torch.library.custom_op("torch_pjrt_programs::scale", mutates_args=())
    def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    @scale.register_kernel("tpu")
    def _(x, factor):
        ran.append(x.device.type)
        return x * factor + 0

    scale.register_fake(lambda x, factor: torch.empty_like(x))
    scale.register_autograd(lambda ctx, gradient: (gradient * ctx.factor, None),
                            setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]))
    x = torch.ones(3, device="tpu", requires_grad=True)
    y = scale(x, 3.0)
    y.sum().backward()
    same((y, x.grad), (torch.full((3,), 3.0), torch.full((3,), 3.0)), **EXACT)
    assert ran == ["tpu"] and scale(torch.ones(2), 2.0).tolist() == [2, 2]
    torch.library.opcheck(scale, (torch.ones(3, device="tpu"), 2.0), test_utils=("test_schema", "test_faketensor"))

    @torch.library.custom_op("torch_pjrt_programs::increase", mutates_args=("x",), device_types="tpu")
    def increase(x: torch.Tensor) -> None:
        x.add_(1)

    z = torch.zeros(4, device="tpu")
    increase(z[1:3])
    same(z, torch.tensor([0.0, 1, 1, 0]), **EXACT)
    library = torch.library.Library("torch_pjrt_programs", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "PrivateUse1")
    same(torch.ops.torch_pjrt_programs.twice(z), torch.tensor([0.0, 2, 2, 0]), **EXACT)


# ---- torch.compile ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends_that_compile_nothing_work(backend):
    torch._dynamo.reset()

    def program(d, compile=lambda f: torch.compile(f, backend=backend)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)).to(d)
        f = model if d == "cpu" else compile(model)
        x = torch.linspace(-1, 1, 12).reshape(3, 4).to(d).requires_grad_()
        f(x).square().sum().backward()
        return [x.grad] + [p.grad for p in model.parameters()]

    like_cpu(program, **ROUNDING)


@pytest.mark.parametrize("order", ["import torch, torch._dynamo.device_interface", "import torch_pjrt, torch._dynamo",
                                   "import torch._inductor.compile_fx, torch_pjrt"])
def test_dynamos_device_interface_is_ours_whatever_is_imported_first(order):
    run(f"""
    {order}
    from torch._dynamo.device_interface import get_interface_for_device
    interface = get_interface_for_device("tpu")
    assert interface.device_count() == torch.tpu.device_count() == 2 and interface.current_device() == 0
    assert interface.is_dtype_supported(torch.float64) and interface.is_dtype_supported(torch.float16)
    assert not interface.is_dtype_supported(torch.complex32) and interface.is_bf16_supported()
    with interface.device(1), interface.stream(interface.Stream()):
        assert interface.current_device() == 1 and interface.current_stream().device.index == 1
    assert interface.Worker.get_device_properties(0).name == torch.tpu.get_device_name()
    assert "tpu" in torch._dynamo.list_backends()
    assert torch.compile(lambda a: a * 2 + 1)(torch.ones(2, device="tpu")).tolist() == [3, 3]
    assert "jax" not in __import__("sys").modules
    """, prelude="", TORCH_PJRT_CPU_DEVICES="2")
