"""The nets of diffusion pipelines, narrow."""

import diffusers as D
from torch import nn

from zoo_spec import Case, In, Spec, image, literal, model


def config(cls, options):
    return f"diffusers.{cls.__name__}(" + ", ".join(f"{k}={v!r}" for k, v in options.items()) + ")"


@model("diff", "unet2dcond")
def unet():
    options = dict(sample_size=12, in_channels=4, out_channels=4, layers_per_block=2, block_out_channels=(32, 48, 64),
                   down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                   up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
                   cross_attention_dim=24, norm_num_groups=8, attention_head_dim=8)
    return Spec(D.UNet2DConditionModel(**options),
                [Case((In((2, 4, 12, 12)), literal([17, 803]), In((2, 7, 24))), {"return_dict": False})],
                config(D.UNet2DConditionModel, options))


VAE = dict(in_channels=3, out_channels=3, latent_channels=4, block_out_channels=(16, 24, 32), layers_per_block=2,
           down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3, norm_num_groups=8,
           sample_size=36)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.vae = D.AutoencoderKL(**VAE)
        self.vae.decoder, self.vae.post_quant_conv = None, None

    def forward(self, sample):
        dist = self.vae.encode(sample).latent_dist
        return dist.mode(), dist.std


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.vae = D.AutoencoderKL(**VAE)
        self.vae.encoder, self.vae.quant_conv = None, None

    def forward(self, z):
        return self.vae.decode(z, return_dict=False)[0]


@model("diff", "vae_encode")
def vae_encode():
    return Spec(Encoder(), [Case((image(1, 3, 36, 44),))], config(D.AutoencoderKL, VAE) + ".encode")


@model("diff", "vae_decode")
def vae_decode():
    return Spec(Decoder(), [Case((In((1, 4, 9, 11)),))], config(D.AutoencoderKL, VAE) + ".decode")


@model("diff", "dit")
def dit():
    options = dict(num_attention_heads=3, attention_head_dim=16, in_channels=4, out_channels=8, num_layers=2,
                   sample_size=10, patch_size=2, num_embeds_ada_norm=20)
    return Spec(D.DiTTransformer2DModel(**options),
                [Case((In((2, 4, 10, 10)), literal([17, 803]), literal([3, 11])), {"return_dict": False})],
                config(D.DiTTransformer2DModel, options))


@model("diff", "sd3")
def sd3():
    options = dict(sample_size=12, patch_size=2, in_channels=4, num_layers=3, attention_head_dim=16,
                   num_attention_heads=3, joint_attention_dim=40, caption_projection_dim=48, pooled_projection_dim=24,
                   out_channels=4, pos_embed_max_size=9)
    return Spec(D.SD3Transformer2DModel(**options),
                [Case((), {"hidden_states": In((2, 4, 12, 10)), "encoder_hidden_states": In((2, 5, 40)),
                           "pooled_projections": In((2, 24)), "timestep": literal([17, 803]), "return_dict": False})],
                config(D.SD3Transformer2DModel, options))
