package preprocess

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A Spec says how pictures are prepared. Parse makes one.
type Spec struct {
	// side is what the shorter side is resized to; else height and width are what a picture is; else all are zero.
	side, height, width int
	// crop is the side of the square that is cut from the centre, or 0.
	crop            int
	filter          filter
	scaled          bool
	mean, deviation [3]float32

	// What follows is of Hugging Face's image processors, whose crops begin at the rounded down middle: levels are as
	// they are where raw is set, and else times a factor where that is not 0; early does that before resizing.
	floored, raw, early bool
	factor              float64
}

// Names are the names of the preparations that Parse knows.
const Names = "imagenet, clip, vit, none"

// Options are the options of a specification, for people.
const Options = "resize=256 or resize=224x224, crop=224 or crop=none, filter=bilinear or bicubic, " +
	"mean=0.485/0.456/0.406, std=0.229/0.224/0.225"

// named returns a preparation by its name.
func named(name string) (Spec, bool) {
	imagenet := Spec{
		side: 256, crop: 224, scaled: true,
		mean: [3]float32{0.485, 0.456, 0.406}, deviation: [3]float32{0.229, 0.224, 0.225},
	}
	half := [3]float32{0.5, 0.5, 0.5}
	switch name {
	case "imagenet":
		return imagenet, true
	case "clip":
		return Spec{
			side: 224, crop: 224, filter: bicubic, scaled: true,
			mean:      [3]float32{0.48145466, 0.4578275, 0.40821073},
			deviation: [3]float32{0.26862954, 0.26130258, 0.27577711},
		}, true
	case "vit":
		return Spec{height: 224, width: 224, scaled: true, mean: half, deviation: half}, true
	case "none":
		return Spec{}, true
	}
	return Spec{}, false
}

// maxOption bounds sizes in a specification.
const maxOption = 1 << 16

// Parse reads a specification: a name, or a name with options that differ, "imagenet:resize=232,crop=224". The names:
//
//	imagenet  the shorter side to 256, bilinear, the 224 × 224 in the centre, ImageNet's mean and deviation
//	clip      the shorter side to 224, bicubic, the 224 × 224 in the centre, CLIP's mean and deviation
//	vit       to 224 × 224, bilinear, from -1 to 1
//	none      the picture as it is, from 0 to 1
func Parse(text string) (Spec, error) {
	name, options, more := strings.Cut(text, ":")
	s, ok := named(name)
	if !ok {
		return Spec{}, fmt.Errorf("unknown preprocessing %q", name)
	}
	if !more {
		return s, nil
	}
	for option := range strings.SplitSeq(options, ",") {
		key, value, _ := strings.Cut(option, "=")
		if err := s.set(key, value); err != nil {
			return Spec{}, fmt.Errorf("preprocessing %q: %w", text, err)
		}
	}
	if s.crop > 0 && (s.side > 0 && s.crop > s.side || s.height > 0 && s.crop > min(s.height, s.width)) {
		return Spec{}, fmt.Errorf("preprocessing %q: a crop of %d is larger than the resized picture", text, s.crop)
	}
	return s, nil
}

func (s *Spec) set(key, value string) (err error) {
	switch key {
	case "resize":
		height, width, both := strings.Cut(value, "x")
		s.side, s.height, s.width = 0, 0, 0
		switch {
		case value == "none":
		case both:
			if s.height, err = size(height); err == nil {
				s.width, err = size(width)
			}
		default:
			s.side, err = size(value)
		}
	case "crop":
		if s.crop = 0; value != "none" {
			s.crop, err = size(value)
		}
	case "filter":
		switch value {
		case "bilinear":
			s.filter = bilinear
		case "bicubic":
			s.filter = bicubic
		default:
			err = fmt.Errorf("filter %q is not bilinear or bicubic", value)
		}
	case "mean":
		s.mean, err = triple(value)
		if !s.scaled {
			s.deviation, s.scaled = [3]float32{1, 1, 1}, true
		}
	case "std":
		s.deviation, err = triple(value)
		s.scaled = true
		for _, v := range s.deviation {
			if err == nil && v == 0 {
				err = fmt.Errorf("std=%s divides by zero", value)
			}
		}
	default:
		err = fmt.Errorf("unknown option %q", key)
	}
	return err
}

func size(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxOption {
		return 0, fmt.Errorf("%q is no size from 1 to %d", text, maxOption)
	}
	return n, nil
}

// triple reads a number for all colours or one for each.
func triple(text string) (t [3]float32, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 1 && len(parts) != len(t) {
		return t, fmt.Errorf("%q is not one number or three with slashes between", text)
	}
	for i := range t {
		part := parts[i%len(parts)]
		v, err := strconv.ParseFloat(part, 32)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return t, fmt.Errorf("%q is no number", part)
		}
		t[i] = float32(v)
	}
	return t, nil
}
