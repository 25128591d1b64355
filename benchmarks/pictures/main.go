// Command pictures writes JPEG files that are as large as photographs of a web page, no two of which are the same:
//
//	pictures FOLDER COUNT SEED
package main

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("pictures FOLDER COUNT SEED")
	}
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	for i := range count {
		var b bytes.Buffer
		if err := jpeg.Encode(&b, picture(rand.New(rand.NewPCG(seed, uint64(i)))), &jpeg.Options{Quality: 90}); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(args[0], fmt.Sprintf("%05d.jpg", i)), b.Bytes(), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// picture is waves of three colours, and grain: at quality 90 some 100 KB.
func picture(random *rand.Rand) image.Image {
	const width, height = 500, 375
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	var waves [3][4]float64
	for c := range waves {
		for k := range waves[c] {
			waves[c][k] = random.Float64()
		}
	}
	for y := range height {
		for x := range width {
			var level [3]uint8
			for c, w := range waves {
				v := 128 + 90*math.Sin(w[0]*6+(w[1]*float64(x)+w[2]*float64(y))/(10+20*w[3])) + 12*random.NormFloat64()
				level[c] = uint8(min(max(v, 0), 255))
			}
			m.SetRGBA(x, y, color.RGBA{level[0], level[1], level[2], 255})
		}
	}
	return m
}
