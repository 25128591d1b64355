package layers

import "strings"

// Refusal says why the modules of a class of PyTorch's are not run, "" where it is only unknown.
func Refusal(class string) string {
	if why, ok := refused[class]; ok {
		return why
	}
	for _, r := range refusedPrefixes {
		if strings.HasPrefix(class, r.prefix) {
			return r.why
		}
	}
	return ""
}

const (
	randomWindows = "its windows are random"
	lazy          = "it takes its sizes from its first input: run it once in Python, then save it"
	quantized     = "quantized modules are not run: save the model as it was before"
)

var refused = map[string]string{
	"torch.nn.modules.pooling.FractionalMaxPool2d":         randomWindows,
	"torch.nn.modules.pooling.FractionalMaxPool3d":         randomWindows,
	"torch.nn.modules.adaptive.AdaptiveLogSoftmaxWithLoss": "what it gives depends on labels, and is a loss",
	"torch.nn.utils.spectral_norm.SpectralNorm": "the spectral norm is a hook: call " +
		"torch.nn.utils.remove_spectral_norm, then save",
}

var refusedPrefixes = []struct{ prefix, why string }{
	{"torch.nn.quantized.", quantized},
	{"torch.nn.quantizable.", quantized},
	{"torch.nn.qat.", quantized},
	{"torch.nn.intrinsic.", quantized},
	{"torch.ao.nn.", quantized},
	{"torch.ao.quantization.", quantized},
	{"torch.quantization.", quantized},
	{"torch.nn.utils.parametrize.", "parametrizations are code: remove them (torch.nn.utils.parametrize), then save"},
	{"torch.jit.", "it is TorchScript: save it with torch.jit.save"},
	{"torch.fx.", "its code is Python's: export it"},
	{"torch.nn.modules.linear.Lazy", lazy},
	{"torch.nn.modules.conv.Lazy", lazy},
	{"torch.nn.modules.batchnorm.Lazy", lazy},
	{"torch.nn.modules.instancenorm.Lazy", lazy},
}
