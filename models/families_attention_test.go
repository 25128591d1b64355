package models_test

import "testing"

// recognisedAttention are the transformers, segmentations and videos of the zoo, as recognised is of the others. Models
// of the zoo that are shallower than the published ones go by the name of their family.
var recognisedAttention = map[string]string{
	"tv/vit_b_16": "vit", "tv/vit_b_32": "vit", "tv/vit_l_16": "vit", "tv/vit_l_32": "vit", "tv/vit_h_14": "vit",
	"tv/swin_t": "swin_t", "tv/swin_s": "swin", "tv/swin_b": "swin",
	"tv/swin_v2_t": "swin_v2_t", "tv/swin_v2_s": "swin_v2", "tv/swin_v2_b": "swin_v2",
	"tv/maxvit_t":                                  "maxvit",
	"tv.segmentation/fcn_resnet50":                 "fcn_resnet50",
	"tv.segmentation/fcn_resnet101":                "fcn_resnet101",
	"tv.segmentation/deeplabv3_resnet50":           "deeplabv3_resnet50",
	"tv.segmentation/deeplabv3_resnet101":          "deeplabv3_resnet101",
	"tv.segmentation/deeplabv3_mobilenet_v3_large": "deeplabv3_mobilenet_v3_large",
	"tv.segmentation/lraspp_mobilenet_v3_large":    "lraspp_mobilenet_v3_large",
	"tv.video/r3d_18":                              "r3d_18",
	"tv.video/mc3_18":                              "mc3_18",
	"tv.video/r2plus1d_18":                         "r2plus1d_18",
}

// TestRecognisedAttention is TestRecognised for these.
func TestRecognisedAttention(t *testing.T) {
	for name, arch := range recognisedAttention {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recognises(t, name, arch)
		})
	}
}
