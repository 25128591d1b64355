package torchvision

import (
	"math"
	"regexp"
	"strconv"

	"github.com/optimem/optimem/layers"
	"github.com/optimem/optimem/tensor"
)

// vits are the Vision Transformers: torchvision/models/vision_transformer.py.
var vits = &family{
	classes: layers.Classes{
		"torchvision.models.vision_transformer.VisionTransformer": layers.Unary(vitForward),
		"torchvision.models.vision_transformer.Encoder":           layers.Unary(vitEncoderForward),
		"torchvision.models.vision_transformer.EncoderBlock":      layers.Unary(vitBlockForward),
		"torchvision.models.vision_transformer.MLPBlock":          layers.Unary((*layers.Trace).Each),
	},
	names: []string{"vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14"},
	make: func(name string, o Options) *layers.Module {
		v := vitSizes[name]
		v.image = 224
		return v.module(o.classes())
	},
	infer: inferVit,
	spelling: func(name string) string { // of the published weights, from a time before MLPBlock was an MLP
		if m := vitLinear.FindStringSubmatch(name); m != nil {
			return m[1] + map[string]string{"1": "0", "2": "3"}[m[2]] + m[3]
		}
		return name
	},
	inputs: func(root *layers.Module) []layers.Port {
		size, _ := root.Attrs["image_size"].(int)
		return []layers.Port{{
			Name: "x", DType: tensor.Float32, Shape: tensor.Shape{-1, 3, size, size},
			Dims: []string{"batch", "", "", ""},
		}}
	},
}

var vitLinear = regexp.MustCompile(`^(encoder\.layers\.encoder_layer_\d+\.mlp\.)linear_([12])(\.(?:weight|bias))$`)

// A vit is the sizes of one.
type vit struct {
	patch, depth, heads, width, mlp int
	image                           int
	// hidden is the width of the layer before the head, 0 where there is none.
	hidden int
}

var vitSizes = map[string]vit{
	"vit_b_16": {patch: 16, depth: 12, heads: 12, width: 768, mlp: 3072},
	"vit_b_32": {patch: 32, depth: 12, heads: 12, width: 768, mlp: 3072},
	"vit_l_16": {patch: 16, depth: 24, heads: 16, width: 1024, mlp: 4096},
	"vit_l_32": {patch: 32, depth: 24, heads: 16, width: 1024, mlp: 4096},
	"vit_h_14": {patch: 14, depth: 32, heads: 16, width: 1280, mlp: 5120},
}

func (v vit) module(classes int) *layers.Module {
	norm := func() *layers.Module { return layers.LayerNorm(v.width, layers.Eps(1e-6)) }
	blocks := layers.Sequential()
	for i := range v.depth {
		feed := mlp(v.width, []int{v.mlp, v.width}, gelu, 0)
		feed.Class = "torchvision.models.vision_transformer.MLPBlock"
		blocks.Add("encoder_layer_"+strconv.Itoa(i),
			layers.New("torchvision.models.vision_transformer.EncoderBlock", map[string]any{"num_heads": v.heads}).
				Add("ln_1", norm()).
				Add("self_attention", layers.MultiheadAttention(v.width, v.heads, layers.Attr("batch_first", true))).
				Add("dropout", layers.Dropout(0)).
				Add("ln_2", norm()).
				Add("mlp", feed))
	}
	side := v.image / v.patch
	encoder := layers.New("torchvision.models.vision_transformer.Encoder", nil).
		Param("pos_embedding", 1, side*side+1, v.width).
		Add("dropout", layers.Dropout(0)).
		Add("layers", blocks).
		Add("ln", norm())
	heads, width := layers.Sequential(), v.width
	if v.hidden > 0 {
		heads.Add("pre_logits", layers.Linear(width, v.hidden)).Add("act", layers.Tanh())
		width = v.hidden
	}
	return layers.New("torchvision.models.vision_transformer.VisionTransformer", map[string]any{
		"image_size": v.image, "patch_size": v.patch, "hidden_dim": v.width,
	}).
		Param("class_token", 1, 1, v.width).
		Add("conv_proj", layers.Conv2d(3, v.width, v.patch, layers.Stride(v.patch))).
		Add("encoder", encoder).
		Add("heads", heads.Add("head", layers.Linear(width, classes)))
}

// inferVit reads the sizes off the shapes. The number of heads does not show: it is that of the published model of the
// same width, else heads are 64 wide, as they are in nearly all models.
func inferVit(d shapes) []candidate {
	v := vit{
		patch: d.size("conv_proj.weight", 3),
		width: d.size("conv_proj.weight", 0),
		depth: d.count("encoder.layers.encoder_layer_", ".self_attention.in_proj_weight"),
		mlp:   d.size("encoder.layers.encoder_layer_0.mlp.0.weight", 0),
	}
	places := d.size("encoder.pos_embedding", 1) - 1
	side := int(math.Sqrt(float64(max(places, 0))))
	if !positive(v.patch, v.width, v.depth, v.mlp, places) || side*side != places || v.patch > math.MaxInt32 {
		return nil
	}
	v.image = side * v.patch
	v.hidden = d.size("heads.pre_logits.weight", 0)
	v.heads = v.width / 64
	name := "vit"
	for known, sizes := range vitSizes {
		if sizes.width == v.width {
			v.heads = sizes.heads
		}
		sizes.image, sizes.hidden, sizes.heads = v.image, v.hidden, v.heads
		if sizes == v {
			name = known
		}
	}
	if v.heads < 1 || v.width%v.heads != 0 {
		return nil
	}
	return []candidate{{name: name, root: v.module(d.size("heads.head.weight", 0))}}
}

func vitForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	shape, patch, image := x.Shape(), m.Int("patch_size"), m.Int("image_size")
	if len(shape) != 4 || patch < 1 || shape[2] != image || shape[3] != image {
		t.Fail("takes pictures of [batch, 3, %d, %d], not %v", image, image, shape)
	}
	side := image / patch
	x = t.Op("reshape", t.Child(m, "conv_proj", x), []int{shape[0], m.Int("hidden_dim"), side * side})
	x = t.Op("permute", x, []int{0, 2, 1})
	class := t.Op("expand", t.Param(m, "class_token"), []int{shape[0], -1, -1})
	x = t.Child(m, "encoder", t.Op("cat", []layers.Tensor{class, x}, 1))
	return t.Child(m, "heads", t.Op("select.int", x, 1, 0))
}

func vitEncoderForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	x = t.Op("add.Tensor", x, t.Param(m, "pos_embedding"))
	return t.Child(m, "ln", t.Child(m, "layers", t.Child(m, "dropout", x)))
}

func vitBlockForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	y := t.Child(m, "ln_1", x)
	y = first(t, t.ChildOf(m, "self_attention", y, y, y, layers.Named{"need_weights": false}))
	x = t.Op("add.Tensor", t.Child(m, "dropout", y), x)
	return t.Op("add.Tensor", x, t.Child(m, "mlp", t.Child(m, "ln_2", x)))
}

// gelu is torch.nn.GELU, which never works in place.
func gelu(...layers.Option) *layers.Module { return layers.GELU("none") }

// one returns a result that is a tensor.
func one(t *layers.Trace, result any) layers.Tensor {
	x, ok := result.(layers.Tensor)
	if !ok {
		t.Fail("got a %T where a tensor was expected", result)
	}
	return x
}

// first returns the first of several results.
func first(t *layers.Trace, results any) layers.Tensor {
	if list, ok := results.([]any); ok && len(list) > 0 {
		if x, ok := list[0].(layers.Tensor); ok {
			return x
		}
	}
	t.Fail("no tensor among the results")
	return nil
}
