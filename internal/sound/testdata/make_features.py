"""Records what transformers' WhisperFeatureExtractor makes of sounds that are made of whole numbers.

    python make_features.py | gzip -9n > features.json.gz

The sound: 16-bit samples, a wave that rises and falls, one that is slower and fades, and noise of a linear congruential
generator; then silence. Of each preparation it records the features at some places, as NumPy's form of the extractor
computes them (in double precision) and as PyTorch's does (in single precision).
"""

import json

import numpy
from transformers import WhisperFeatureExtractor


def sound(n):
    x, state = [], 1
    for i in range(n):
        state = (state * 1103515245 + 12345) % 2**31
        fast = abs(i % 64 - 32) * 200 - 3200
        slow = (abs(i % 500 - 250) * 80 - 10000) * (n - i) // n
        x.append(fast + slow + (state >> 16) % 201 - 100)
    return numpy.array(x, numpy.float32) / numpy.float32(32768)


def places(bins, frames):
    return [((37 * k) % bins, (k * k * 7 + 3 * k) % frames) for k in range(120)] + [(0, 0), (bins - 1, 0), (0, frames - 1)]


cases = [
    ({}, 16000 * 3 + 77),
    ({"feature_size": 128}, 16000 * 31),
    ({"feature_size": 6, "chunk_length": 1, "hop_length": 400}, 9000),
    ({"feature_size": 40, "chunk_length": 2, "n_fft": 512, "hop_length": 100, "do_normalize": True}, 20000),
    ({"feature_size": 80, "chunk_length": 1}, 0),
]
out = []
for config, n in cases:
    normalize = config.pop("do_normalize", False)
    extractor = WhisperFeatureExtractor(**config)
    kept = extractor.to_dict()
    if normalize:
        kept["do_normalize"] = True
    record = {"config": {k: v for k, v in kept.items() if k != "mel_filters"}, "samples": n}
    x = sound(n) if n else numpy.zeros(1, numpy.float32)
    by_torch = extractor(x, sampling_rate=16000, do_normalize=normalize, return_tensors="np")["input_features"][0]
    extractor._torch_extract_fbank_features = extractor._np_extract_fbank_features
    by_numpy = extractor(x, sampling_rate=16000, do_normalize=normalize, return_tensors="np")["input_features"][0]
    record["shape"] = by_numpy.shape
    at = places(*by_numpy.shape)
    record["numpy"] = [round(float(by_numpy[p]), 7) for p in at]
    record["torch"] = [round(float(by_torch[p]), 6) for p in at]
    record["sum"] = float(by_numpy.astype(numpy.float64).sum())
    record["apart"] = float(numpy.abs(by_torch - by_numpy).max())
    out.append(record)
print(json.dumps(out))
