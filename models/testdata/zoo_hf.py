"""Architectures of the transformers library, two layers each and narrow."""

import torch
import transformers as T
from torch.export import Dim

from zoo_spec import Case, In, Spec, ids, image, literal, model

AUTO = Dim.DYNAMIC
TEXT = dict(vocab_size=200, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def hf(name, config, cls, options, cases, dynamic=None, **kwargs):
    @model("hf", name)
    def spec():
        c = config(**options)
        m = cls(c)
        if getattr(m.config, "use_cache", False):
            m.config.use_cache = False
        text = f"transformers.{cls.__name__}({config.__name__}(" + ", ".join(
            f"{k}={v!r}" for k, v in options.items()) + "))"
        return Spec(m, cases, text, dynamic, **kwargs)


def tokens(*shapes, **more):
    return [Case((), {"input_ids": ids(*s)} | {k: f(*s) for k, f in more.items()}) for s in shapes]


def padded(b, s):
    """An attention mask with rows of different lengths."""
    mask = torch.ones(b, s, dtype=torch.int64)
    for i in range(b):
        mask[i, s - i % s:] = 0
    return literal(mask)


SEQ = {"input_ids": {0: AUTO, 1: AUTO}}
MASKED = {"input_ids": {0: AUTO, 1: AUTO}, "attention_mask": {0: AUTO, 1: AUTO}}


def causal(name, config, cls, dynamic=False, shapes=((2, 9),), drop=(), **more):
    options = {k: v for k, v in TEXT.items() if k not in drop} | more
    if dynamic:
        shapes = ((2, 9), (3, 13), (2, 5))
    hf(name, config, cls, options, tokens(*shapes), SEQ if dynamic else None)


hf("bert_mask", T.BertConfig, T.BertModel, TEXT, tokens((2, 9), (3, 12), attention_mask=padded), MASKED)
hf("distilbert", T.DistilBertConfig, T.DistilBertModel,
   dict(vocab_size=200, dim=48, hidden_dim=80, n_layers=2, n_heads=4, max_position_embeddings=64),
   tokens((2, 9), (4, 7)), SEQ)
hf("roberta", T.RobertaConfig, T.RobertaModel, TEXT | {"pad_token_id": 1}, tokens((2, 9)))
hf("electra", T.ElectraConfig, T.ElectraModel, TEXT | {"embedding_size": 24}, tokens((2, 9), attention_mask=padded))
hf("albert", T.AlbertConfig, T.AlbertModel, TEXT | {"embedding_size": 24}, tokens((2, 9)))
hf("deberta_v2", T.DebertaV2Config, T.DebertaV2Model,
   TEXT | {"relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"], "share_att_key": True,
           "norm_rel_ebd": "layer_norm", "max_relative_positions": 16}, tokens((2, 9)))
hf("modernbert", T.ModernBertConfig, T.ModernBertModel,
   TEXT | {"num_hidden_layers": 3, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2},
   tokens((2, 11), attention_mask=padded))

GPT2 = dict(vocab_size=200, n_embd=48, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2,
            attn_implementation="eager")  # with the fused attention run_decompositions() refuses a batch of 2
hf("gpt2", T.GPT2Config, T.GPT2LMHeadModel, GPT2, tokens((2, 9), (3, 13), (2, 5)), SEQ)
causal("llama", T.LlamaConfig, T.LlamaForCausalLM, True, num_key_value_heads=2)
causal("opt", T.OPTConfig, T.OPTForCausalLM, drop=("intermediate_size",), ffn_dim=80, word_embed_proj_dim=48)
causal("bloom", T.BloomConfig, T.BloomForCausalLM,
       drop=("num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings"),
       n_layer=2, n_head=4)
causal("gpt_neox", T.GPTNeoXConfig, T.GPTNeoXForCausalLM, True)
hf("gptj", T.GPTJConfig, T.GPTJForCausalLM,
   dict(vocab_size=200, n_embd=48, n_layer=2, n_head=4, n_positions=64, rotary_dim=8, bos_token_id=1, eos_token_id=2),
   tokens((2, 9)))
causal("falcon", T.FalconConfig, T.FalconForCausalLM, drop=("intermediate_size",), ffn_hidden_size=80)
causal("mistral", T.MistralConfig, T.MistralForCausalLM, True, num_key_value_heads=2, head_dim=12, sliding_window=6)
causal("qwen2", T.Qwen2Config, T.Qwen2ForCausalLM, True, num_key_value_heads=2)
causal("qwen3", T.Qwen3Config, T.Qwen3ForCausalLM, num_key_value_heads=2, head_dim=16)
causal("gemma", T.GemmaConfig, T.GemmaForCausalLM, num_key_value_heads=1, head_dim=16)
causal("gemma2", T.Gemma2Config, T.Gemma2ForCausalLM, num_key_value_heads=2, head_dim=16, sliding_window=4,
       query_pre_attn_scalar=16)
causal("phi", T.PhiConfig, T.PhiForCausalLM)
causal("phi3", T.Phi3Config, T.Phi3ForCausalLM, num_key_value_heads=2)
causal("olmo2", T.Olmo2Config, T.Olmo2ForCausalLM, num_key_value_heads=2)
causal("mixtral", T.MixtralConfig, T.MixtralForCausalLM, num_key_value_heads=2, num_local_experts=4,
       num_experts_per_tok=2)
causal("qwen2_moe", T.Qwen2MoeConfig, T.Qwen2MoeForCausalLM, num_key_value_heads=2, num_experts=4,
       num_experts_per_tok=2, moe_intermediate_size=40, shared_expert_intermediate_size=56)
causal("granite", T.GraniteConfig, T.GraniteForCausalLM, num_key_value_heads=2, embedding_multiplier=1.5,
       residual_multiplier=0.5, logits_scaling=2.0)
causal("cohere", T.CohereConfig, T.CohereForCausalLM, num_key_value_heads=2, use_qk_norm=True)
causal("stablelm", T.StableLmConfig, T.StableLmForCausalLM, hidden_size=64, num_key_value_heads=2, use_qkv_bias=True)
causal("starcoder2", T.Starcoder2Config, T.Starcoder2ForCausalLM, num_key_value_heads=2)
hf("mamba", T.MambaConfig, T.MambaForCausalLM,
   dict(vocab_size=200, hidden_size=32, state_size=8, num_hidden_layers=2, time_step_rank=4, use_cache=False,
        pad_token_id=0, bos_token_id=1, eos_token_id=2), tokens((2, 9)))


def seq2seq(b, s, t):
    return Case((), {"input_ids": ids(b, s), "decoder_input_ids": ids(b, t)})


BOTH = {"input_ids": {0: AUTO, 1: AUTO}, "decoder_input_ids": {0: AUTO, 1: AUTO}}
hf("t5", T.T5Config, T.T5ForConditionalGeneration,
   dict(vocab_size=200, d_model=48, d_kv=12, d_ff=80, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
        relative_attention_max_distance=16, decoder_start_token_id=0, use_cache=False),
   [seq2seq(2, 9, 5), seq2seq(3, 11, 4)], BOTH)
SEQ2SEQ = dict(vocab_size=200, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
               decoder_attention_heads=4, encoder_ffn_dim=80, decoder_ffn_dim=80, max_position_embeddings=64,
               pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2, use_cache=False)
hf("bart", T.BartConfig, T.BartForConditionalGeneration, SEQ2SEQ, [seq2seq(2, 9, 5)])
hf("marian", T.MarianConfig, T.MarianMTModel, SEQ2SEQ, [seq2seq(2, 9, 5)])
hf("whisper-tiny", T.WhisperConfig, T.WhisperForConditionalGeneration,
   {k: v for k, v in SEQ2SEQ.items() if k != "max_position_embeddings"}
   | {"num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 16},
   [Case((), {"input_features": In((2, 16, 40)), "decoder_input_ids": ids(2, 5)})])

VISION = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, image_size=40,
              patch_size=8)


def pixels(*shapes):
    return [Case((), {"pixel_values": image(*s)}) for s in shapes]


PIX = {"pixel_values": {0: AUTO}}
hf("vit", T.ViTConfig, T.ViTModel, VISION, pixels((2, 3, 40, 40), (3, 3, 40, 40)), PIX)
hf("deit", T.DeiTConfig, T.DeiTModel, VISION, pixels((1, 3, 40, 40)))
hf("beit", T.BeitConfig, T.BeitModel, VISION | {"use_relative_position_bias": True, "use_mean_pooling": True},
   pixels((1, 3, 40, 40)))
hf("dinov2", T.Dinov2Config, T.Dinov2Model,
   {k: v for k, v in VISION.items() if k != "intermediate_size"} | {"image_size": 56},
   pixels((1, 3, 40, 48)))
hf("clip_vision", T.CLIPVisionConfig, T.CLIPVisionModel, VISION, pixels((2, 3, 40, 40), (4, 3, 40, 40)), PIX)
hf("clip_text", T.CLIPTextConfig, T.CLIPTextModel, TEXT | {"max_position_embeddings": 16, "eos_token_id": 199},
   tokens((2, 9)))
hf("siglip_vision", T.SiglipVisionConfig, T.SiglipVisionModel, VISION, pixels((1, 3, 40, 40)))
hf("segformer", T.SegformerConfig, T.SegformerForSemanticSegmentation,
   dict(depths=[2, 2, 2, 2], hidden_sizes=[16, 24, 32, 48], decoder_hidden_size=32, num_labels=11),
   pixels((1, 3, 67, 64)))
hf("dpt", T.DPTConfig, T.DPTForDepthEstimation,
   VISION | {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [16, 24, 32, 48],
             "fusion_hidden_size": 24}, pixels((1, 3, 40, 40)))


@model("hf", "detr")
def detr():
    backbone = T.ResNetConfig(embedding_size=16, hidden_sizes=[16, 24, 32, 48], depths=[2, 2, 2, 2], layer_type="basic",
                              out_features=["stage4"])
    c = T.DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone,
                     d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, num_queries=7,
                     decoder_attention_heads=4, encoder_ffn_dim=80, decoder_ffn_dim=80, num_labels=5)
    mask = torch.ones(1, 75, 67, dtype=torch.int64)
    mask[:, :, 50:] = 0
    return Spec(T.DetrForObjectDetection(c), [Case((), {"pixel_values": image(1, 3, 75, 67),
                                                        "pixel_mask": literal(mask)})],
                "transformers.DetrForObjectDetection(DetrConfig(backbone_config=ResNetConfig(16, [16, 24, 32, 48], "
                "depths=[2, 2, 2, 2], basic), d_model=48, 2 + 2 layers, 4 heads, 80 wide, 7 queries, 5 labels))")


SPEECH = dict(vocab_size=40, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
              conv_dim=[16, 16, 24], conv_stride=[5, 2, 2], conv_kernel=[10, 3, 2], num_feat_extract_layers=3,
              num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4)
hf("wav2vec2", T.Wav2Vec2Config, T.Wav2Vec2ForCTC, SPEECH, [Case((), {"input_values": In((2, 417))})])
hf("hubert", T.HubertConfig, T.HubertForCTC, SPEECH | {"feat_extract_norm": "layer", "do_stable_layer_norm": True},
   [Case((), {"input_values": In((1, 417))})])
