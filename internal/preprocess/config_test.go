package preprocess

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
)

// TestProcessors: what a folder's preprocessor_config.json says makes the numbers that transformers' image processors
// made of the same pictures: the same bits as those with Pillow, and within 1e-5 of DINOv3's, which resizes numbers.
func TestProcessors(t *testing.T) {
	f, err := os.Open("testdata/processors.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Name, File    string
		Config        json.RawMessage
		Height, Width int
		Values        []float32
	}
	if err := json.NewDecoder(text).Decode(&all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 70 {
		t.Fatalf("only %d recorded cases", len(all))
	}
	var spec Spec
	for _, c := range all {
		if !bytes.Equal(c.Config, []byte("null")) {
			if spec, err = ParseConfig(c.Config); err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
		}
		p := decodeFile(t, c.File)
		height, width, err := spec.Size(p.Height, p.Width)
		if err != nil || height != c.Height || width != c.Width {
			t.Errorf("%s: %s is %d × %d, not %d × %d: %v", c.Name, c.File, height, width, c.Height, c.Width, err)
			continue
		}
		got := make([]float32, 3*height*width)
		if err := spec.Apply(t.Context(), p, got); err != nil {
			t.Errorf("%s: %s: %v", c.Name, c.File, err)
			continue
		}
		for i, want := range c.Values {
			v := got[sample(i, len(got))]
			if far := math.Abs(float64(v - want)); spec.early && far > 1e-5 || !spec.early && v != want {
				t.Errorf("%s: %s: value %d is %v, recorded is %v", c.Name, c.File, i, v, want)
				break
			}
		}
	}
}

// TestBlip: BLIP's pictures are prepared as SigLIP's are, with CLIP's colours; what its processor does not read is
// passed over.
func TestBlip(t *testing.T) {
	got, err := ParseConfig([]byte(`{"image_processor_type": "BlipImageProcessor", "do_pad": true, "size_divisor": 32}`))
	if err != nil {
		t.Fatal(err)
	}
	want, err := ParseConfig([]byte(`{"image_processor_type": "SiglipImageProcessor", "size": {"height": 384, "width": 384},
		"image_mean": ` + clipMean + `, "image_std": ` + clipStd + `}`))
	if err != nil || got != want {
		t.Errorf("%+v, want %+v: %v", got, want, err)
	}
}

// TestBadConfigs: what is wrong in a preprocessor_config.json, or not done here, is an error that says so.
func TestBadConfigs(t *testing.T) {
	for text, says := range map[string]string{
		``: "unexpected end", `[]`: "array", `{}`: `not ""`, `{"image_processor_type":"SamImageProcessor"}`: "SamImageProcessor",
		`{"image_processor_type":"Siglip2ImageProcessor"}`:                                               "Siglip2",
		`{"image_processor_type":"ViTImageProcessor","resample":0}`:                                      "resample is 0",
		`{"image_processor_type":"DINOv3ViTImageProcessor","resample":1}`:                                "resample is 1",
		`{"image_processor_type":"ViTImageProcessor","resample":"bicubic"}`:                              "resample",
		`{"image_processor_type":"ViTImageProcessor","size":0}`:                                          "size is 0",
		`{"image_processor_type":"ViTImageProcessor","size":-5}`:                                         "size is -5",
		`{"image_processor_type":"ViTImageProcessor","size":1e9}`:                                        "size is",
		`{"image_processor_type":"ViTImageProcessor","size":[1,2,3]}`:                                    "size is",
		`{"image_processor_type":"ViTImageProcessor","size":{"longest_edge":5}}`:                         "longest_edge",
		`{"image_processor_type":"CLIPImageProcessor","size":{"shortest_edge":5,"longest_edge":9}}`:      "size is",
		`{"image_processor_type":"CLIPImageProcessor","size":{"shortest_edge":"5"}}`:                     "size is",
		`{"image_processor_type":"CLIPImageProcessor","crop_size":{"height":5,"width":6}}`:               "no square",
		`{"image_processor_type":"CLIPImageProcessor","crop_size":225}`:                                  "larger than",
		`{"image_processor_type":"CLIPImageProcessor","crop_size":{"shortest_edge":5}}`:                  "no square",
		`{"image_processor_type":"ConvNextImageProcessor","size":{"height":5,"width":5}}`:                "no shortest_edge",
		`{"image_processor_type":"ConvNextImageProcessor","size":{"shortest_edge":224},"crop_pct":0}`:    "crop_pct",
		`{"image_processor_type":"ConvNextImageProcessor","size":{"shortest_edge":224},"crop_pct":1e-9}`: "crop_pct",
		`{"image_processor_type":"ConvNextImageProcessor","size":224,"do_center_crop":true}`:             "beside crop_pct",
		`{"image_processor_type":"ViTImageProcessor","image_std":[1,0,1]}`:                               "divides by zero",
		`{"image_processor_type":"ViTImageProcessor","image_std":1e-300}`:                                "divides by zero",
		`{"image_processor_type":"ViTImageProcessor","image_mean":[1,0]}`:                                "image_mean",
		`{"image_processor_type":"ViTImageProcessor","image_mean":1e300}`:                                "image_mean",
		`{"image_processor_type":"ViTImageProcessor","rescale_factor":0}`:                                "rescale_factor",
		`{"image_processor_type":"ViTImageProcessor","rescale_factor":-1}`:                               "rescale_factor",
		`{"image_processor_type":"ViTImageProcessor","do_pad":true}`:                                     "do_pad",
		`{"image_processor_type":"CLIPImageProcessor","use_square_size":true}`:                           "use_square_size",
		`{"image_processor_type":"ViTImageProcessor","do_resize":"yes"}`:                                 "do_resize",
		`{"image_processor_type":"` + strings.Repeat("x", 1000) + `"}`:                                   "xxx",
	} {
		_, err := ParseConfig([]byte(text))
		var config *ConfigError
		if !errors.As(err, &config) || !strings.Contains(err.Error(), says) || len(err.Error()) > 300 {
			t.Errorf("%.80s: %v, which does not say %q", text, err, says)
		}
	}
}

// FuzzConfig: no file makes a spec whose sizes are none.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"image_processor_type":"CLIPImageProcessor","crop_size":224,"size":{"shortest_edge":256}}`))
	f.Add([]byte(`{"feature_extractor_type":"ConvNextFeatureExtractor","crop_pct":0.875,"size":224,"image_std":0.5}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseConfig(text)
		if err != nil {
			return
		}
		height, width, err := s.Size(100, 70)
		if err == nil && (height < 1 || width < 1 || height > maxSide || width > maxSide) {
			t.Errorf("a picture becomes %d × %d", height, width)
		}
	})
}
