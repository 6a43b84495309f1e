"""diffusers: pipelines with random weights make the CPU's image, and FLUX takes a training step."""
import diffusers
import pytest
import torch

LATENTS = 4


def autoencoder(channels: int = LATENTS) -> diffusers.AutoencoderKL:
    return diffusers.AutoencoderKL(
        block_out_channels=(8, 8), norm_num_groups=4, latent_channels=channels, sample_size=32,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        shift_factor=0.1, scaling_factor=1.0, use_quant_conv=False, use_post_quant_conv=False)


def flux_transformer() -> diffusers.FluxTransformer2DModel:
    return diffusers.FluxTransformer2DModel(
        in_channels=4 * LATENTS, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=16, axes_dims_rope=(4, 4, 8), guidance_embeds=True)


def flux() -> diffusers.FluxPipeline:
    torch.manual_seed(0)
    return diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(), vae=autoencoder(), transformer=flux_transformer(),
        text_encoder=None, text_encoder_2=None, tokenizer=None, tokenizer_2=None)


def unet(**changed) -> diffusers.UNet2DConditionModel:
    return diffusers.UNet2DConditionModel(**{**dict(
        sample_size=8, in_channels=LATENTS, out_channels=LATENTS, block_out_channels=(8, 16), layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32, attention_head_dim=4, norm_num_groups=4), **changed})


def stable_diffusion() -> diffusers.StableDiffusionPipeline:
    torch.manual_seed(0)
    return diffusers.StableDiffusionPipeline(
        vae=autoencoder(), unet=unet(), scheduler=diffusers.EulerDiscreteScheduler(steps_offset=1), text_encoder=None,
        tokenizer=None, safety_checker=None, feature_extractor=None, requires_safety_checker=False)


def ddpm() -> diffusers.DDPMPipeline:
    torch.manual_seed(0)
    model = diffusers.UNet2DModel(sample_size=16, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
                                  attention_head_dim=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                                  up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    return diffusers.DDPMPipeline(model, diffusers.DDPMScheduler())


def embeddings(*names: str, device: str) -> dict[str, torch.Tensor]:
    """In the place of the text encoders' outputs."""
    draw = torch.Generator().manual_seed(1)
    shapes = {"prompt_embeds": (1, 6, 32), "negative_prompt_embeds": (1, 6, 32), "pooled_prompt_embeds": (1, 16)}
    return {name: torch.randn(shapes[name], generator=draw).to(device) for name in names}


PIPELINES = {
    "flux": (flux, ("prompt_embeds", "pooled_prompt_embeds"), dict(height=32, width=32, num_inference_steps=2)),
    "unet": (stable_diffusion, ("prompt_embeds", "negative_prompt_embeds"),
             dict(height=16, width=16, num_inference_steps=3, guidance_scale=5.0)),
    "ddpm": (ddpm, (), dict(num_inference_steps=3)),
}


def image(pipe, name: str, device: str) -> torch.Tensor:
    """Noise comes from a CPU generator, as diffusers' documentation advises for equal images everywhere."""
    _, embedded, options = PIPELINES[name]
    pipe.set_progress_bar_config(disable=True)
    return torch.as_tensor(pipe(**embeddings(*embedded, device=device), **options, output_type="np",
                                generator=torch.Generator().manual_seed(2)).images)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_makes_the_cpus_image(name):
    build = PIPELINES[name][0]
    expected, got = image(build().to("cpu"), name, "cpu"), image(build().to("tpu"), name, "tpu")
    # Of 256 levels, a fortieth of one.
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)


def test_a_pipeline_draws_its_noise_from_a_generator_of_the_device():
    pipe = ddpm().to("tpu")
    pipe.set_progress_bar_config(disable=True)

    def draw(seed):
        return torch.as_tensor(pipe(num_inference_steps=2, output_type="np",
                                    generator=torch.Generator("tpu").manual_seed(seed)).images)

    assert torch.equal(draw(0), draw(0)) and not torch.equal(draw(0), draw(1))


def test_model_cpu_offload_takes_the_device_by_itself_and_makes_the_same_image():
    expected, pipe = image(flux(), "flux", "cpu"), flux()
    pipe.enable_model_cpu_offload()
    assert pipe._execution_device.type == "tpu"
    # As above.
    torch.testing.assert_close(image(pipe, "flux", "tpu"), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("device_map", ["tpu", "balanced"])
def test_a_saved_pipeline_loads_onto_the_device_by_its_device_map(tmp_path, device_map):
    whole = ddpm()
    whole.save_pretrained(tmp_path)
    pipe = diffusers.DDPMPipeline.from_pretrained(tmp_path, device_map=device_map)
    assert {p.device.type for p in pipe.unet.parameters()} == {"tpu"}
    # As above.
    torch.testing.assert_close(image(pipe, "ddpm", "tpu"), image(whole, "ddpm", "cpu"), rtol=0, atol=1e-4)


def test_flux_trains_as_on_the_cpu():
    """Flow matching: the transformer learns the velocity from noise to latents."""

    def run(device):
        torch.manual_seed(0)
        model, draw = flux_transformer().to(device), torch.Generator().manual_seed(3)
        optimizer, losses = torch.optim.AdamW(model.parameters(), lr=1e-3), []
        given = embeddings("prompt_embeds", "pooled_prompt_embeds", device=device)
        ids = diffusers.FluxPipeline._prepare_latent_image_ids(1, 4, 4, device, torch.float32)
        for _ in range(3):
            clean, noise = (torch.randn(1, 16, 4 * LATENTS, generator=draw).to(device) for _ in range(2))
            t = torch.rand(1, generator=draw).to(device)
            velocity = model(
                hidden_states=(1 - t) * clean + t * noise, timestep=t, guidance=torch.ones(1, device=device),
                encoder_hidden_states=given["prompt_embeds"], pooled_projections=given["pooled_prompt_embeds"],
                txt_ids=torch.zeros(6, 3, device=device), img_ids=ids).sample
            loss = (velocity - (noise - clean)).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses

    # Steps of an optimizer let a rounding difference of the first grow.
    torch.testing.assert_close(run("tpu"), run("cpu"), rtol=1e-4, atol=1e-4)
