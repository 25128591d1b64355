package preprocess

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// A ConfigError says what of a preprocessor_config.json is wrong, or not done here.
type ConfigError struct{ Msg string }

// Error says what.
func (e *ConfigError) Error() string { return "preprocessor_config.json: " + e.Msg }

func badConfig(format string, args ...any) error {
	return &ConfigError{fmt.Sprintf(format, args...)}
}

// A config is a preprocessor_config.json. What a file does not say is as the processor's class has it.
type config struct {
	Type      string `json:"image_processor_type"`
	Extractor string `json:"feature_extractor_type"`

	Resize     bool            `json:"do_resize"`
	Size       json.RawMessage `json:"size"`
	Resample   int             `json:"resample"`
	CenterCrop bool            `json:"do_center_crop"`
	CropSize   json.RawMessage `json:"crop_size"`
	Rescale    bool            `json:"do_rescale"`
	Factor     float64         `json:"rescale_factor"`
	Normalize  bool            `json:"do_normalize"`
	Mean       json.RawMessage `json:"image_mean"`
	Deviation  json.RawMessage `json:"image_std"`
	// CropPct is ConvNeXt's: what of the resized picture is kept.
	CropPct float64 `json:"crop_pct"`

	Pad       bool            `json:"do_pad"`
	Flip      bool            `json:"do_flip_channel_order"`
	Divisor   json.RawMessage `json:"size_divisor"`
	OldSquare bool            `json:"use_square_size"`

	// square says that a size that is one number is both sides, and not the shorter.
	square bool
}

const (
	halfMean     = `[0.5, 0.5, 0.5]`
	imagenetMean = `[0.485, 0.456, 0.406]`
	imagenetStd  = `[0.229, 0.224, 0.225]`
	clipMean     = `[0.48145466, 0.4578275, 0.40821073]`
	clipStd      = `[0.26862954, 0.26130258, 0.27577711]`
)

// The numbers that filters have in Pillow.
const (
	pillowLanczos  = 1
	pillowBilinear = 2
	pillowBicubic  = 3
)

// classes are the image processors that are known, by their names without ImageProcessor and Fast, with their defaults.
func class(name string) (config, bool) {
	c := config{Resize: true, Rescale: true, Factor: 1.0 / 255, Normalize: true, Resample: pillowBicubic}
	set := func(size, crop, mean, deviation string) {
		c.Size, c.Mean, c.Deviation = json.RawMessage(size), json.RawMessage(mean), json.RawMessage(deviation)
		if c.CropSize = json.RawMessage(`{"height": 224, "width": 224}`); crop != "" {
			c.CenterCrop, c.CropSize = true, json.RawMessage(crop)
		}
	}
	const square, crop = `{"height": 224, "width": 224}`, `{"height": 224, "width": 224}`
	switch name {
	case "CLIP", "Bit":
		set(`{"shortest_edge": 224}`, crop, clipMean, clipStd)
	case "Siglip":
		set(square, "", halfMean, halfMean)
	case "Blip":
		set(`{"height": 384, "width": 384}`, "", clipMean, clipStd)
	case "ViT":
		set(square, "", halfMean, halfMean)
		c.Resample, c.square = pillowBilinear, true
	case "DeiT":
		set(`{"height": 256, "width": 256}`, crop, halfMean, halfMean)
		c.square = true
	case "ConvNext":
		set(`{"shortest_edge": 384}`, "", halfMean, halfMean)
		c.CropPct = 224.0 / 256
	case "DINOv3ViT":
		set(square, "", imagenetMean, imagenetStd)
		c.Resample, c.square = pillowBilinear, true
	default:
		return config{}, false
	}
	return c, true
}

// Classes are the image processors that ParseConfig knows.
const Classes = "CLIP, Siglip, Blip, ViT, DeiT, Bit (DINOv2), ConvNext (ResNet) and DINOv3ViT"

// ParseConfig reads a preprocessor_config.json of a Hugging Face folder. Pictures become the numbers that transformers'
// image processors make with Pillow, bit for bit; those of DINOv3, which resize numbers with torchvision, to 1e-5. What
// is wrong or not done here is a [*ConfigError].
func ParseConfig(text []byte) (Spec, error) {
	var named config
	if err := json.Unmarshal(text, &named); err != nil {
		return Spec{}, badConfig("%v", err)
	}
	name := named.Type
	if name == "" {
		name = strings.Replace(named.Extractor, "FeatureExtractor", "ImageProcessor", 1)
	}
	short := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "Pil"), "Fast"), "ImageProcessor")
	c, ok := class(short)
	if !ok {
		return Spec{}, badConfig("image processors are %s, and not %.60q", Classes, name)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return Spec{}, badConfig("%v", err)
	}
	if short == "Blip" { // which reads neither
		c.Pad, c.Divisor = false, nil
	}
	switch {
	case c.Pad, c.Flip, c.OldSquare, len(c.Divisor) > 0 && string(c.Divisor) != "null":
		return Spec{}, badConfig("do_pad, do_flip_channel_order, use_square_size and size_divisor are not done")
	case c.Rescale && (math.IsNaN(c.Factor) || c.Factor <= 0):
		return Spec{}, badConfig("rescale_factor is %v", c.Factor)
	}
	s := Spec{floored: true, raw: !c.Rescale, factor: c.Factor, early: short == "DINOv3ViT" && c.Rescale,
		scaled: c.Normalize}
	if err := c.sizes(&s, short == "ConvNext"); err != nil {
		return Spec{}, err
	}
	if c.Normalize {
		var err error
		if s.mean, err = colours("image_mean", c.Mean); err != nil {
			return Spec{}, err
		}
		if s.deviation, err = colours("image_std", c.Deviation); err != nil {
			return Spec{}, err
		}
		for _, v := range s.deviation {
			if v == 0 {
				return Spec{}, badConfig("image_std divides by zero")
			}
		}
	}
	return s, nil
}

// sizes sets how pictures are resized and cropped.
func (c *config) sizes(s *Spec, percent bool) error {
	if c.Resize {
		var ok bool
		if s.filter, ok = map[int]filter{pillowLanczos: lanczos, pillowBilinear: bilinear,
			pillowBicubic: bicubic}[c.Resample]; !ok || s.filter == lanczos && s.early {
			return badConfig("resample is %d: 1 (Lanczos), 2 (bilinear) and 3 (bicubic) are done", c.Resample)
		}
		var err error
		if s.side, s.height, s.width, err = edges("size", c.Size, c.square); err != nil {
			return err
		}
	}
	if c.CenterCrop {
		side, height, width, err := edges("crop_size", c.CropSize, true)
		if err != nil {
			return err
		}
		if side > 0 || height != width {
			return badConfig("crop_size is no square")
		}
		s.crop = height
	}
	if !percent || !c.Resize {
		return s.cropFits()
	}
	const warped = 384 // from which on nothing is cut off
	switch {
	case s.side == 0:
		return badConfig("size has no shortest_edge")
	case s.side >= warped:
		s.side, s.height, s.width = 0, s.side, s.side
	case c.CenterCrop:
		return badConfig("do_center_crop beside crop_pct")
	case math.IsNaN(c.CropPct) || c.CropPct <= 0 || c.CropPct > 1:
		return badConfig("crop_pct is %v", c.CropPct)
	default:
		s.crop = s.side
		resized := math.Trunc(float64(s.side) / c.CropPct)
		if resized > maxOption {
			return badConfig("crop_pct is %v", c.CropPct)
		}
		s.side = int(resized)
	}
	return s.cropFits()
}

// cropFits refuses a crop that is larger than a resized picture may be.
func (s *Spec) cropFits() error {
	if s.crop > 0 && (s.side > 0 && s.crop > s.side || s.height > 0 && s.crop > min(s.height, s.width)) {
		return badConfig("a crop of %d is larger than the resized picture, and pictures are not padded", s.crop)
	}
	return nil
}

// edges reads a size: a number, two, or what the sides are called.
func edges(key string, text json.RawMessage, square bool) (side, height, width int, err error) {
	wrong := badConfig("%s is %.60s", key, text)
	check := func(list ...int) error {
		for _, n := range list {
			if n < 1 || n > maxOption {
				return wrong
			}
		}
		return nil
	}
	var one int
	if json.Unmarshal(text, &one) == nil {
		if square {
			return 0, one, one, check(one)
		}
		return one, 0, 0, check(one)
	}
	var two []int
	if json.Unmarshal(text, &two) == nil && len(two) == 2 {
		return 0, two[0], two[1], check(two...)
	}
	var named map[string]*int
	if json.Unmarshal(text, &named) != nil {
		return 0, 0, 0, wrong
	}
	for key, n := range named {
		if n == nil {
			delete(named, key)
		}
	}
	short, h, w := named["shortest_edge"], named["height"], named["width"]
	switch {
	case len(named) == 1 && short != nil:
		return *short, 0, 0, check(*short)
	case len(named) == 2 && h != nil && w != nil:
		return 0, *h, *w, check(*h, *w)
	}
	return 0, 0, 0, wrong
}

// colours reads a number for each colour, or one for all.
func colours(key string, text json.RawMessage) (t [3]float32, err error) {
	var list []float64
	var one float64
	if json.Unmarshal(text, &one) == nil {
		list = []float64{one, one, one}
	} else if json.Unmarshal(text, &list) != nil || len(list) != len(t) {
		return t, badConfig("%s is %.60s", key, text)
	}
	for i, v := range list {
		if t[i] = float32(v); math.IsInf(float64(t[i]), 0) {
			return t, badConfig("%s is %.60s", key, text)
		}
	}
	return t, nil
}
