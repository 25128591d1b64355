package models_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/tensor"
)

// recognisedConv are the convolutional models of the zoo, as recognised is of ResNet. Models of the zoo that are
// shallower than the published ones go by the name of their family.
var recognisedConv = map[string]string{
	"tv/alexnet": "alexnet", "tv/vgg11": "vgg11", "tv/vgg11_bn": "vgg11_bn", "tv/vgg13": "vgg13",
	"tv/vgg13_bn": "vgg13_bn", "tv/vgg16": "vgg16", "tv/vgg16_bn": "vgg16_bn", "tv/vgg19": "vgg19",
	"tv/vgg19_bn": "vgg19_bn", "tv/densenet121": "densenet121", "tv/densenet161": "densenet161",
	"tv/densenet169": "densenet169", "tv/densenet201": "densenet201",
	"tv/googlenet": "googlenet_no_transform", "tv/inception_v3": "inception_v3_no_transform",
	"tv/mobilenet_v2": "mobilenet_v2", "tv/mobilenet_v3_large": "mobilenet_v3_large",
	"tv/mobilenet_v3_small": "mobilenet_v3_small", "tv/shufflenet_v2_x0_5": "shufflenet_v2_x0_5",
	"tv/shufflenet_v2_x1_0": "shufflenet_v2_x1_0", "tv/shufflenet_v2_x1_5": "shufflenet_v2_x1_5",
	"tv/shufflenet_v2_x2_0": "shufflenet_v2_x2_0", "tv/squeezenet1_0": "squeezenet1_0",
	"tv/squeezenet1_1": "squeezenet1_1", "tv/mnasnet0_5": "mnasnet0_5", "tv/mnasnet0_75": "mnasnet0_75",
	"tv/mnasnet1_0": "mnasnet1_0", "tv/mnasnet1_3": "mnasnet1_3", "tv/efficientnet_b0": "efficientnet_b0",
	"tv/efficientnet_b1": "efficientnet_b1", "tv/efficientnet_b2": "efficientnet_b2",
	"tv/efficientnet_b3": "efficientnet_b3", "tv/efficientnet_b4": "efficientnet_b4",
	"tv/efficientnet_b5": "efficientnet_b5", "tv/efficientnet_b6": "efficientnet_b6",
	"tv/efficientnet_b7": "efficientnet_b7", "tv/efficientnet_v2_s": "efficientnet_v2_s",
	"tv/efficientnet_v2_m": "efficientnet", "tv/efficientnet_v2_l": "efficientnet",
	"tv/regnet_x_400mf": "regnet_x_400mf", "tv/regnet_x_800mf": "regnet_x_800mf",
	"tv/regnet_x_1_6gf": "regnet_x_1_6gf", "tv/regnet_x_3_2gf": "regnet_x_3_2gf", "tv/regnet_x_8gf": "regnet_x_8gf",
	"tv/regnet_x_16gf": "regnet_x_16gf", "tv/regnet_x_32gf": "regnet", "tv/regnet_y_400mf": "regnet_y_400mf",
	"tv/regnet_y_800mf": "regnet_y_800mf", "tv/regnet_y_1_6gf": "regnet_y_1_6gf",
	"tv/regnet_y_3_2gf": "regnet_y_3_2gf", "tv/regnet_y_8gf": "regnet_y_8gf", "tv/regnet_y_16gf": "regnet",
	"tv/regnet_y_32gf": "regnet", "tv/regnet_y_128gf": "regnet", "tv/convnext_tiny": "convnext_tiny",
	"tv/convnext_small": "convnext_small", "tv/convnext_base": "convnext", "tv/convnext_large": "convnext",

	// Sizes that nobody published, and variants that the zoo lacks.
	unpublished + "googlenet_transform":      "googlenet",
	unpublished + "inception_v3_transform":   "inception_v3",
	unpublished + "inception_v3_aux":         "inception_v3_no_transform",
	unpublished + "mobilenet_v2_x0_35":       "mobilenet_v2",
	unpublished + "mobilenet_v3_large_x0_75": "mobilenet_v3",
	unpublished + "mobilenet_v3_small_tail":  "mobilenet_v3",
	unpublished + "shufflenet_v2_small":      "shufflenet_v2",
	unpublished + "mnasnet_version_1":        "mnasnet0_5",
	unpublished + "densenet_small":           "densenet",
	unpublished + "efficientnet_small":       "efficientnet",
	unpublished + "efficientnet_v2_small":    "efficientnet",
	unpublished + "regnet_x_narrow":          "regnet",
	unpublished + "regnet_y_fifth":           "regnet",
	unpublished + "convnext_small":           "convnext",
	unpublished + "vgg_small":                "vgg",
	unpublished + "vgg_small_bn":             "vgg_bn",
}

// unpublished is where the models of other sizes lie, from the zoo.
const unpublished = "../families/tv/"

// untold are those whose weights do not tell whether the model transforms its input, with what they could be.
var untold = map[string][]string{
	"tv/googlenet":                   {"googlenet", "googlenet_no_transform"},
	"tv/inception_v3":                {"inception_v3", "inception_v3_no_transform"},
	unpublished + "inception_v3_aux": {"inception_v3", "inception_v3_no_transform"},
}

// TestRecognisedConv is TestRecognised for these. Only those that nothing tells apart are ambiguous.
func TestRecognisedConv(t *testing.T) {
	for name, arch := range recognisedConv {
		t.Run(strings.TrimPrefix(name, "../"), func(t *testing.T) {
			t.Parallel()
			recognises(t, name, arch)
			_, bare, _ := bothForms(t, name)
			_, err := models.Build(bare, models.Options{})
			var ambiguous *models.AmbiguousError
			var candidates []string
			if errors.As(err, &ambiguous) {
				candidates = ambiguous.Candidates
			}
			if diff := cmp.Diff(untold[name], candidates); diff != "" {
				t.Errorf("candidates (-want +got)\n%s", diff)
			}
		})
	}
}

// TestOlderNames runs the name that a DenseNet's weights had when its modules could have dots in theirs through to the
// graph, where weights go by the checkpoint's names.
func TestOlderNames(t *testing.T) {
	exported, bare, ref := bothForms(t, "tv/densenet121")
	weights := slices.Clone(bare.Weights)
	today := make(map[string]string)
	for i, w := range weights {
		older := strings.NewReplacer(".norm1.", ".norm.1.", ".conv1.", ".conv.1.", ".norm2.", ".norm.2.",
			".conv2.", ".conv.2.").Replace(w.Name)
		weights[i].Name, today[older] = older, w.Name
	}
	ckpt, err := loader.NewCheckpoint("older", weights, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"", "densenet121"} {
		model, err := models.Build(ckpt, models.Options{Arch: arch})
		if err != nil {
			t.Fatal(err)
		}
		c := ref.Cases[0].Inputs["x"].Shape
		want, err := exported.Graph(map[string]tensor.Shape{exported.Inputs()[0].Name: c})
		if err != nil {
			t.Fatal(err)
		}
		got, err := model.Graph(map[string]tensor.Shape{model.Inputs()[0].Name: c})
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range got.Values {
			if name, ok := today[v.Weight.Name]; ok {
				got.Values[i].Weight.Name = name
			}
		}
		if diff := cmp.Diff(describe(want), describe(got)); diff != "" {
			t.Fatalf("--arch %q: the graphs differ (-exported +older):\n%.4000s", arch, diff)
		}
	}
}
