#!/usr/bin/env python3
"""Records what transformers' image processors make of the pictures beside this, for TestProcessors: processors.json.gz.

The processors are those with Pillow; DINOv3's is with torchvision, which is the only one there is. Needs transformers 5, Pillow and
torchvision. How far torchvision's processors are from Pillow's is printed.
"""

import gzip
import io
import json
import pathlib

import numpy as np
import transformers
from PIL import Image
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.convnext.image_processing_pil_convnext import ConvNextImageProcessorPil
from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
from transformers.models.dinov3_vit.image_processing_dinov3_vit import DINOv3ViTImageProcessor
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

HERE = pathlib.Path(__file__).parent
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
ALL = {"do_resize": True, "do_rescale": True, "do_normalize": True, "rescale_factor": 0.00392156862745098}

# What folders say: of which they are is in the name.
CONFIGS = {
    "clip-vit-base-patch32": (CLIPImageProcessorPil, {
        "crop_size": 224, "do_center_crop": True, "do_normalize": True, "do_resize": True,
        "feature_extractor_type": "CLIPFeatureExtractor", **CLIP, "resample": 3, "size": 224}),
    "siglip-base-patch16-224": (SiglipImageProcessorPil, {
        **ALL, **HALF, "image_processor_type": "SiglipImageProcessor", "processor_class": "SiglipProcessor", "resample": 3,
        "size": {"height": 224, "width": 224}}),
    "vit-base-patch16-224": (ViTImageProcessorPil, {
        "do_normalize": True, "do_resize": True, **HALF, "size": 224, "feature_extractor_type": "ViTFeatureExtractor"}),
    "vit of defaults": (ViTImageProcessorPil, {"image_processor_type": "ViTImageProcessorFast"}),
    "deit-small-patch16-224": (DeiTImageProcessorPil, {
        "crop_size": 224, "do_center_crop": True, "do_normalize": True, "do_resize": True,
        "feature_extractor_type": "DeiTFeatureExtractor", **IMAGENET, "resample": 3, "size": 256}),
    "dinov2-base": (BitImageProcessorPil, {
        **ALL, **IMAGENET, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True, "do_convert_rgb": True,
        "image_processor_type": "BitImageProcessor", "resample": 3, "size": {"shortest_edge": 256}}),
    "an odd crop": (BitImageProcessorPil, {
        **ALL, **IMAGENET, "crop_size": {"height": 31, "width": 31}, "do_center_crop": True, "image_processor_type": "BitImageProcessor",
        "resample": 3, "size": {"shortest_edge": 48}}),
    "dinov3-vits16": (DINOv3ViTImageProcessor, {
        **ALL, **IMAGENET, "image_processor_type": "DINOv3ViTImageProcessorFast", "resample": 2, "size": {"height": 224, "width": 224},
        "do_center_crop": None, "crop_size": None, "do_pad": None, "data_format": "channels_first", "device": None}),
    "dinov3 smaller": (DINOv3ViTImageProcessor, {
        **ALL, **IMAGENET, "image_processor_type": "DINOv3ViTImageProcessor", "resample": 3, "size": {"height": 24, "width": 32}}),
    "convnext-tiny-224": (ConvNextImageProcessorPil, {
        "crop_pct": 0.875, "do_normalize": True, "do_resize": True, "feature_extractor_type": "ConvNextFeatureExtractor", **IMAGENET,
        "resample": 3, "size": 224}),
    "convnext-base-384": (ConvNextImageProcessorPil, {
        **ALL, **IMAGENET, "crop_pct": 1.0, "image_processor_type": "ConvNextImageProcessor", "resample": 3,
        "size": {"shortest_edge": 384}}),
    "resnet-50": (ConvNextImageProcessorPil, {
        "crop_pct": 0.875, "do_normalize": True, "do_resize": True, "feature_extractor_type": "ConvNextFeatureExtractor", **IMAGENET,
        "resample": 3, "size": 224}),
    "no rescaling": (ViTImageProcessorPil, {
        **HALF, "do_rescale": False, "image_processor_type": "ViTImageProcessor", "resample": 1, "size": {"height": 20, "width": 30}}),
    "rescaling alone": (ViTImageProcessorPil, {
        "do_normalize": False, "do_resize": False, "rescale_factor": 0.0078125, "image_processor_type": "ViTImageProcessor"}),
}
FILES = ["odd.png", "wide.png", "tall.png", "rgb.jpg", "lossy_odd.webp"]


def main():
    cases, far = [], 0.0
    for name, (processor, config) in CONFIGS.items():
        kwargs = {k: v for k, v in config.items() if not k.endswith("_type") and k != "processor_class"}
        p = processor(**kwargs)
        for file in FILES:
            image = Image.open(HERE / file).convert("RGB")
            x = np.asarray(p(image, return_tensors="np")["pixel_values"])[0].astype(np.float32)
            values = x.reshape(-1)
            cases.append({
                "name": name, "config": config if file == FILES[0] else None, "file": file, "height": x.shape[1], "width": x.shape[2],
                "values": [float(values[i * 2654435761 % values.size]) for i in range(24)],
            })
            other = getattr(transformers, processor.__name__.removesuffix("Pil"))
            if other is not processor:
                y = np.asarray(other(**kwargs)(image, return_tensors="pt")["pixel_values"])[0]
                if y.shape == x.shape and config.get("do_rescale", True):
                    far = max(far, float(np.abs(y - x).max()))
    print(f"torchvision's processors differ from Pillow's by {far:.4f} at most")
    out = io.StringIO()
    out.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
    (HERE / "processors.json.gz").write_bytes(gzip.compress(out.getvalue().encode(), 9, mtime=0))


main()
