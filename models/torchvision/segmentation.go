package torchvision

import (
	"fmt"

	"github.com/optimem/optimem/layers"
)

// segmentations are FCN, DeepLabV3 and LRASPP, each over the features of a classifier: torchvision/models/segmentation.
// Whether there is an auxiliary head shows in the names.
var segmentations = &family{
	classes: layers.Classes{
		"torchvision.models._utils.IntermediateLayerGetter":   {Forward: layerGetterForward},
		"torchvision.models.segmentation.fcn.FCN":             {Forward: segmentationForward},
		"torchvision.models.segmentation.fcn.FCNHead":         layers.Unary((*layers.Trace).Each),
		"torchvision.models.segmentation.deeplabv3.DeepLabV3": {Forward: segmentationForward},
		"torchvision.models.segmentation.deeplabv3.ASPPConv":  layers.Unary((*layers.Trace).Each),
		"torchvision.models.segmentation.deeplabv3.ASPP":      layers.Unary(asppForward),
		"torchvision.models.segmentation.deeplabv3.ASPPPooling": layers.Unary(
			func(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
				return resize(t, t.Each(m, x), x)
			}),
		"torchvision.models.segmentation.deeplabv3.DeepLabHead": layers.Unary((*layers.Trace).Each),
		"torchvision.models.segmentation.lraspp.LRASPP":         {Forward: lrasppForward},
		"torchvision.models.segmentation.lraspp.LRASPPHead":     {Forward: lrasppHeadForward},
	},
	names: []string{
		"fcn_resnet50", "fcn_resnet101", "deeplabv3_resnet50", "deeplabv3_resnet101", "deeplabv3_mobilenet_v3_large",
		"lraspp_mobilenet_v3_large",
	},
	make: func(name string, o Options) *layers.Module {
		s := segmentationKnown[name]
		s.classes = o.classesOr(21)
		return s.module()
	},
	infer: inferSegmentation,
}

// A segmentation is the sizes of one: the head, the net that finds the features, and the classes.
type segmentation struct {
	head      string // fcn, deeplabv3 or lraspp
	resnet    resnet
	mobilenet mobilenetV3 // where it has blocks it is used, else the resnet
	classes   int
	auxiliary int // classes of the auxiliary head, 0 where there is none
	inner     int // lraspp: channels inside the head
}

var segmentationKnown = map[string]segmentation{
	"fcn_resnet50":                 {head: "fcn", resnet: resnetSizes["resnet50"]},
	"fcn_resnet101":                {head: "fcn", resnet: resnetSizes["resnet101"]},
	"deeplabv3_resnet50":           {head: "deeplabv3", resnet: resnetSizes["resnet50"]},
	"deeplabv3_resnet101":          {head: "deeplabv3", resnet: resnetSizes["resnet101"]},
	"deeplabv3_mobilenet_v3_large": {head: "deeplabv3", mobilenet: mobilenetsV3Known["mobilenet_v3_large"]},
	"lraspp_mobilenet_v3_large":    {head: "lraspp", mobilenet: mobilenetsV3Known["mobilenet_v3_large"], inner: 128},
}

func (s segmentation) module() *layers.Module {
	backbone := layers.New("torchvision.models._utils.IntermediateLayerGetter", nil)
	var low, high int               // channels of the features
	lowName, lowRole := "", "aux"   // where the features of more detail are, and what they are for
	highName, highRole := "", "out" // where those that see the most are
	if len(s.mobilenet.blocks) > 0 {
		backbone.Children = s.mobilenet.features(true).Children
		lowName, low = s.mobilenet.detailed()
		highName, high = fmt.Sprint(len(s.mobilenet.blocks)+1), 6*s.mobilenet.blocks[len(s.mobilenet.blocks)-1].out
	} else {
		lowName, highName = "layer3", "layer4"
		high = s.resnet.addStages(backbone, true)
		low = high / 2
	}
	if s.head == "lraspp" {
		lowRole, highRole = "low", "high"
	}
	returned := map[string]any{highName: highRole}
	if s.auxiliary > 0 || s.head == "lraspp" {
		returned[lowName] = lowRole
	}
	backbone.Attrs = map[string]any{"return_layers": returned}

	if s.head == "lraspp" {
		return layers.New("torchvision.models.segmentation.lraspp.LRASPP", nil).
			Add("backbone", backbone).
			Add("classifier", lrasppHead(low, high, s.inner, s.classes))
	}
	class, head := "torchvision.models.segmentation.fcn.FCN", fcnHead
	if s.head == "deeplabv3" {
		class, head = "torchvision.models.segmentation.deeplabv3.DeepLabV3", deepLabHead
	}
	m := layers.New(class, nil).Add("backbone", backbone).Add("classifier", head(high, s.classes))
	if s.auxiliary > 0 {
		return m.Add("aux_classifier", fcnHead(low, s.auxiliary))
	}
	return m.Add("aux_classifier", nil)
}

// detailed returns where the features of most detail are that segmentation uses, and their channels: the third stage
// that halves the picture, counted from the end of all stages but the last.
func (v mobilenetV3) detailed() (name string, channels int) {
	stages := []int{0}
	for i, b := range v.blocks {
		if b.stride > 1 {
			stages = append(stages, i+1)
		}
	}
	stages = append(stages, len(v.blocks)+1)
	at := stages[max(len(stages)-4, 0)]
	if at == 0 {
		return "0", v.blocks[0].in
	}
	return fmt.Sprint(at), v.blocks[at-1].out
}

func fcnHead(in, classes int) *layers.Module {
	return numbered("torchvision.models.segmentation.fcn.FCNHead",
		layers.Conv2d(in, in/4, 3, layers.Padding(1), layers.NoBias), layers.BatchNorm2d(in/4), layers.ReLU(),
		layers.Dropout(0.1), layers.Conv2d(in/4, classes, 1))
}

func deepLabHead(in, classes int) *layers.Module {
	const width = 256
	convs := layers.ModuleList(
		layers.Sequential(layers.Conv2d(in, width, 1, layers.NoBias), layers.BatchNorm2d(width), layers.ReLU()))
	for _, rate := range []int{12, 24, 36} {
		appendTo(convs, numbered("torchvision.models.segmentation.deeplabv3.ASPPConv",
			layers.Conv2d(in, width, 3, layers.Padding(rate), layers.Dilation(rate), layers.NoBias),
			layers.BatchNorm2d(width), layers.ReLU()))
	}
	appendTo(convs, numbered("torchvision.models.segmentation.deeplabv3.ASPPPooling",
		layers.AdaptiveAvgPool2d(1), layers.Conv2d(in, width, 1, layers.NoBias), layers.BatchNorm2d(width),
		layers.ReLU()))
	return numbered("torchvision.models.segmentation.deeplabv3.DeepLabHead",
		layers.New("torchvision.models.segmentation.deeplabv3.ASPP", nil).
			Add("convs", convs).
			Add("project", layers.Sequential(layers.Conv2d(len(convs.Children)*width, width, 1, layers.NoBias),
				layers.BatchNorm2d(width), layers.ReLU(), layers.Dropout(0.5))),
		layers.Conv2d(width, width, 3, layers.Padding(1), layers.NoBias), layers.BatchNorm2d(width), layers.ReLU(),
		layers.Conv2d(width, classes, 1))
}

func lrasppHead(low, high, inner, classes int) *layers.Module {
	return layers.New("torchvision.models.segmentation.lraspp.LRASPPHead", nil).
		Add("cbr", layers.Sequential(
			layers.Conv2d(high, inner, 1, layers.NoBias), layers.BatchNorm2d(inner), layers.ReLU(layers.InPlace))).
		Add("scale", layers.Sequential(
			layers.AdaptiveAvgPool2d(1), layers.Conv2d(high, inner, 1, layers.NoBias), layers.Sigmoid())).
		Add("low_classifier", layers.Conv2d(low, classes, 1)).
		Add("high_classifier", layers.Conv2d(inner, classes, 1))
}

func inferSegmentation(d shapes) []candidate {
	var s segmentation
	switch {
	case d.size("classifier.cbr.0.weight", 0) > 0:
		s.head, s.inner = "lraspp", d.size("classifier.cbr.0.weight", 0)
		s.classes = d.size("classifier.high_classifier.weight", 0)
	case d.size("classifier.0.project.0.weight", 0) > 0:
		s.head, s.classes = "deeplabv3", d.size("classifier.4.weight", 0)
	default:
		s.head, s.classes = "fcn", d.size("classifier.4.weight", 0)
	}
	s.auxiliary = d.size("aux_classifier.4.weight", 0)
	net := ""
	if r, name, ok := d.resnet("backbone."); ok {
		s.resnet, net = r, name
	} else if v, ok := d.mobilenetV3("backbone."); ok {
		s.mobilenet, net = v, "mobilenet_v3_large"
	} else {
		return nil
	}
	return []candidate{{name: s.head + "_" + net, root: s.module()}}
}

// layerGetterForward runs the modules one after the other and gives the results of some, by the names of their roles.
func layerGetterForward(t *layers.Trace, m *layers.Module, args ...any) any {
	if len(args) != 1 {
		t.Fail("takes one tensor, not %d arguments", len(args))
	}
	x := one(t, args[0])
	roles, _ := m.Attrs["return_layers"].(map[string]any)
	var features layers.Fields
	for _, c := range m.Children {
		x = t.Child(m, c.Name, x)
		if role, ok := roles[c.Name].(string); ok {
			features = append(features, layers.Field{Name: role, Value: x})
		}
	}
	return features
}

// feature returns one of the results of a backbone.
func feature(t *layers.Trace, features any, role string) layers.Tensor {
	list, _ := features.(layers.Fields)
	for _, f := range list {
		if f.Name == role {
			return one(t, f.Value)
		}
	}
	t.Fail("the backbone gives no features %q", role)
	return nil
}

// resize is a bilinear interpolation to the height and width of another picture.
func resize(t *layers.Trace, x, like layers.Tensor) layers.Tensor {
	s := like.Shape()
	if len(s) != 4 {
		t.Fail("takes [batch, channels, height, width], not %v", s)
	}
	return t.Op("upsample_bilinear2d.vec", x, []int(s[2:]), false, nil)
}

func segmentationForward(t *layers.Trace, m *layers.Module, args ...any) any {
	if len(args) != 1 {
		t.Fail("takes one tensor, not %d arguments", len(args))
	}
	x := one(t, args[0])
	features := t.ChildOf(m, "backbone", x)
	out := t.Child(m, "classifier", feature(t, features, "out"))
	result := layers.Fields{{Name: "out", Value: resize(t, out, x)}}
	if m.Has("aux_classifier") {
		aux := t.Child(m, "aux_classifier", feature(t, features, "aux"))
		result = append(result, layers.Field{Name: "aux", Value: resize(t, aux, x)})
	}
	return result
}

func asppForward(t *layers.Trace, m *layers.Module, x layers.Tensor) layers.Tensor {
	convs := m.Child("convs")
	if convs == nil {
		t.Fail("no convolutions")
	}
	var parts []layers.Tensor
	for _, c := range convs.Children {
		parts = append(parts, t.Child(convs, c.Name, x))
	}
	return t.Child(m, "project", t.Op("cat", parts, 1))
}

func lrasppForward(t *layers.Trace, m *layers.Module, args ...any) any {
	if len(args) != 1 {
		t.Fail("takes one tensor, not %d arguments", len(args))
	}
	x := one(t, args[0])
	out := one(t, t.ChildOf(m, "classifier", t.ChildOf(m, "backbone", x)))
	return layers.Fields{{Name: "out", Value: resize(t, out, x)}}
}

func lrasppHeadForward(t *layers.Trace, m *layers.Module, args ...any) any {
	if len(args) != 1 {
		t.Fail("takes the features, not %d arguments", len(args))
	}
	low, high := feature(t, args[0], "low"), feature(t, args[0], "high")
	x := t.Child(m, "cbr", high)
	x = t.Op("mul.Tensor", x, t.Child(m, "scale", high))
	x = resize(t, x, low)
	return t.Op("add.Tensor", t.Child(m, "low_classifier", low), t.Child(m, "high_classifier", x))
}
