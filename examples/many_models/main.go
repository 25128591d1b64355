// Command many_models gives one model larger and larger pictures in one budget, and says for each what had to give way:
// nothing, then the weights, which pass through a ring, then activations that are needed much later, which wait in a file
// (on a GPU or an emulated device: in the host's memory). It writes a line of CSV for each, and ends with an error where
// any result differs by a bit from that of the model alone in all the memory that there is.
//
//	go run ./examples/many_models -memory 800000 examples/many_models/skips.pt
//
// IBM's example ManyModel for its Large Model Support does that for training on a GPU. This one knows models with one
// picture as their input.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

func main() {
	o := optimem.Options{}
	flag.StringVar(&o.Device, "device", "cpu", "where the model runs")
	flag.Int64Var(&o.Memory, "memory", 800_000, "budget for the model in bytes")
	flag.Int64Var(&o.Swap, "swap", 1<<30, "most bytes of a file for activations, on the CPU")
	flag.StringVar(&o.SwapFolder, "swap-folder", os.TempDir(), "where that file lies")
	sides := flag.String("sides", "16,24,32,48,56,64", "sides of the pictures")
	channels := flag.Int("channels", 1, "channels of the pictures")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: many_models [-memory BYTES] [-sides N,N,…] [-channels N] MODEL")
	}
	if o.Device != "cpu" {
		o.Swap = 0 // the host's memory takes what waits
	}
	if err := run(context.Background(), os.Stdout, flag.Arg(0), *sides, *channels, o); err != nil {
		log.Fatal(err)
	}
}

// run writes a line for each side.
func run(ctx context.Context, w io.Writer, path, sides string, channels int, o optimem.Options) error {
	ckpt, err := loader.Open(path)
	if err != nil {
		return err
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w, "side,gives way,megapixels/s,peak bytes,moved bytes,swapped out bytes,swapped in bytes")
	for text := range strings.SplitSeq(sides, ",") {
		side, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return err
		}
		line, err := picture(ctx, model, side, channels, o)
		if err != nil {
			return fmt.Errorf("%d by %d: %w", side, side, err)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// picture runs the model on a picture and says what that took.
func picture(ctx context.Context, model *models.Model, side, channels int, o optimem.Options) (line string, err error) {
	name := model.Inputs()[0].Name
	in := optimem.Values{name: pixels(channels, side)}
	want, err := alone(ctx, model, in)
	if err != nil {
		return "", err
	}
	session, err := optimem.Auto(ctx, model, o)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	var took time.Duration
	for range 2 { // the first brings the weights that stay
		begin := time.Now()
		got, err := session.Run(ctx, in)
		if err != nil {
			return "", err
		}
		took = time.Since(begin)
		for _, output := range model.Outputs() {
			if !bytes.Equal(got[output].Data, want[output].Data) {
				return "", fmt.Errorf("output %s has other bits", output)
			}
		}
	}
	m := session.Metrics()
	gives := "nothing"
	switch {
	case m.SwappedInBytes > 0 || m.RecomputedBytes > 0:
		gives = "activations"
	case m.MovedBytes > 0:
		gives = "weights"
	}
	return fmt.Sprintf("%d,%s,%.3g,%d,%d,%d,%d", side, gives, float64(side*side)/1e6/took.Seconds(), m.PeakBytes,
		m.MovedBytes/m.Runs, m.SwappedOutBytes/m.Runs, m.SwappedInBytes/m.Runs), nil
}

// alone runs the model on the CPU with everything in memory.
func alone(ctx context.Context, model *models.Model, in optimem.Values) (out optimem.Values, err error) {
	session, err := optimem.Resident(ctx, model, optimem.ResidentOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	return session.Run(ctx, in)
}

// pixels returns a square picture.
func pixels(channels, side int) *tensor.Tensor {
	data := make([]float32, channels*side*side)
	for i := range data {
		data[i] = float32(float64(i*37%101) / 101)
	}
	return tensor.Of(data, 1, channels, side, side)
}
