package layers

// shapeClasses move elements: padding, shuffles, windows as columns; and distances of two tensors.
var shapeClasses = func() Classes {
	const padding, pixels, folds, distance = "torch.nn.modules.padding.", "torch.nn.modules.pixelshuffle.",
		"torch.nn.modules.fold.", "torch.nn.modules.distance."
	all := Classes{
		pixels + "PixelShuffle": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
			return t.Op("pixel_shuffle", x, m.Int("upscale_factor"))
		}),
		pixels + "PixelUnshuffle": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
			return t.Op("pixel_unshuffle", x, m.Int("downscale_factor"))
		}),
		"torch.nn.modules.channelshuffle.ChannelShuffle": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
			return t.Op("channel_shuffle", x, m.Int("groups"))
		}),
		folds + "Fold": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
			return t.Op("col2im", x, m.Ints("output_size", 2), m.Ints("kernel_size", 2), m.Ints("dilation", 2),
				m.Ints("padding", 2), m.Ints("stride", 2))
		}),
		folds + "Unfold": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
			return t.Op("im2col", x, m.Ints("kernel_size", 2), m.Ints("dilation", 2), m.Ints("padding", 2),
				m.Ints("stride", 2))
		}),
		"torch.nn.modules.flatten.Flatten": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
			return t.Op("flatten.using_ints", x, m.Int("start_dim"), m.Int("end_dim"))
		}),
		"torch.nn.modules.flatten.Unflatten": Unary(func(t *Trace, m *Module, x Tensor) Tensor {
			n := 1
			switch sizes := m.Attrs["unflattened_size"].(type) {
			case []any:
				n = len(sizes)
			case []int:
				n = len(sizes)
			}
			return t.Op("unflatten.int", x, m.Int("dim"), m.Ints("unflattened_size", n))
		}),
		distance + "CosineSimilarity": {Forward: func(t *Trace, m *Module, args ...any) any {
			x, y := two(m, args)
			return t.Op("cosine_similarity", x, y, m.Int("dim"), m.Float("eps"))
		}, Inputs: []Port{{Name: "x1"}, {Name: "x2"}}},
		distance + "PairwiseDistance": {Forward: func(t *Trace, m *Module, args ...any) any {
			x, y := two(m, args)
			return t.Op("pairwise_distance", x, y, m.Float("norm"), m.Float("eps"), m.Bool("keepdim"))
		}, Inputs: []Port{{Name: "x1"}, {Name: "x2"}}},
	}
	for n, d := range map[int]string{1: "1d", 2: "2d", 3: "3d"} {
		all[padding+"ConstantPad"+d] = constantPad(n)
		all[padding+"ZeroPad"+d] = constantPad(n)
		all[padding+"ReflectionPad"+d] = padBy(n, "reflect")
		all[padding+"ReplicationPad"+d] = padBy(n, "replicate")
		all[padding+"CircularPad"+d] = padBy(n, "circular")
	}
	return all
}()

func constantPad(n int) Class {
	c := Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op("pad", x, m.Ints("padding", 2*n), "constant", m.Float("value"))
	})
	c.Defaults = map[string]any{"value": 0.0}
	return c
}

func padBy(n int, mode string) Class {
	return Unary(func(t *Trace, m *Module, x Tensor) Tensor {
		return t.Op("pad", x, m.Ints("padding", 2*n), mode)
	})
}

// PixelShuffle is torch.nn.PixelShuffle.
func PixelShuffle(factor int) *Module {
	return New("torch.nn.modules.pixelshuffle.PixelShuffle", map[string]any{"upscale_factor": factor})
}

// ChannelShuffle is torch.nn.ChannelShuffle.
func ChannelShuffle(groups int) *Module {
	return New("torch.nn.modules.channelshuffle.ChannelShuffle", map[string]any{"groups": groups})
}

// ZeroPad2d is torch.nn.ZeroPad2d: left, right, top, bottom, or one number for all.
func ZeroPad2d(padding ...int) *Module {
	return made("torch.nn.modules.padding.ZeroPad2d", map[string]any{"value": 0.0}, []Option{Padding(padding...)})
}

// Flatten is torch.nn.Flatten.
func Flatten(opts ...Option) *Module {
	return made("torch.nn.modules.flatten.Flatten", map[string]any{"start_dim": 1, "end_dim": -1}, opts)
}
