package pictures

import (
	"slices"
	"testing"

	"github.com/optimem/optimem/models/transformers/family"
)

// TestFeatureLayers: which states are a picture's is the last but one where nothing is said; negative numbers count from the end, 0
// is what the first layer sees.
func TestFeatureLayers(t *testing.T) {
	for text, want := range map[string][]int{
		`{}`: {11}, `{"vision_feature_layer": null}`: {11}, `{"vision_feature_layer": -1}`: {12}, `{"vision_feature_layer": 0}`: {0},
		`{"vision_feature_layer": [-13, 3, 12]}`: {0, 3, 12}, `{"vision_feature_layer": 13}`: nil, `{"vision_feature_layer": []}`: nil,
	} {
		c, err := family.Parse([]byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := featureLayers(c, 12); c.Err == nil != (want != nil) || want != nil && !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", text, got, c.Err, want)
		}
	}
}
