// Command speed keeps one model loaded for the scripts that compare speed: it reads commands from standard input, one a
// line, and answers in JSON.
//
// It does not know who it is compared with.
//
//	speed -threads 2 -inputs x.safetensors model.pt2
//
// Commands: "run N" gives the milliseconds of N runs, "output" some numbers of the first output, "memory" the peak in
// bytes. With -peak it takes no model and measures the processor's peak arithmetic rate, with -read the rate at which it reads memory.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/optimem/optimem/internal/calibrate"
	"github.com/optimem/optimem/internal/sysmem"
	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "speed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	threads := flag.Int("threads", 0, "threads; 0 is one for each processor")
	inputs := flag.String("inputs", "", "safetensors file with the inputs, named so that their order is the program's")
	mode := flag.String("mode", "auto", "auto, resident or page")
	precision := flag.String("precision", "", "what factors of products may be rounded to: bf16")
	onlyPeak := flag.Bool("peak", false, "say what GFLOP/s the processor's arithmetic gives, and end")
	onlyRead := flag.Bool("read", false, "say how many GB/s are read of memory, and end")
	flag.Parse()
	if *onlyPeak {
		return json.NewEncoder(os.Stdout).Encode(
			map[string]float64{"gflops": calibrate.Arithmetic(max(1, *threads)) / 1e9},
		)
	}
	if *onlyRead {
		const readings = 8
		return json.NewEncoder(os.Stdout).Encode(map[string]float64{"gigabytes": readRate(max(1, *threads),
			readings) / 1e9})
	}
	ckpt, err := loader.Open(flag.Arg(0))
	if err != nil {
		return err
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return err
	}
	session, err := optimem.Start(ctx, model, optimem.Options{
		Mode: plan.Mode(*mode), Threads: *threads, Precision: *precision,
	})
	if err != nil {
		return err
	}
	defer session.Close()
	in, err := read(ctx, *inputs, model)
	if err != nil {
		return err
	}
	out, err := session.Run(ctx, in)
	if err != nil {
		return err
	}
	answers := json.NewEncoder(os.Stdout)
	if err := answers.Encode(map[string]bool{"ready": true}); err != nil {
		return err
	}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		command, count, _ := strings.Cut(commands.Text(), " ")
		var answer any
		switch command {
		case "run":
			n, err := strconv.Atoi(count)
			if err != nil {
				return err
			}
			times := make([]float64, n)
			for i := range times {
				begin := time.Now()
				if err := session.RunInto(ctx, in, out); err != nil {
					return err
				}
				times[i] = 1000 * time.Since(begin).Seconds()
			}
			answer = times
		case "output":
			answer = sample(out[model.Outputs()[0]])
		case "memory":
			answer = map[string]int64{"peak": sysmem.PeakRSS()}
		default:
			return fmt.Errorf("no command %q", command)
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return commands.Err()
}

// read gives the program's inputs the tensors of a file, in the order of their names.
func read(ctx context.Context, path string, model *models.Model) (optimem.Values, error) {
	file, err := loader.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	weights := slices.Clone(file.Weights)
	slices.SortFunc(weights, func(a, b tensor.Weight) int { return strings.Compare(a.Name, b.Name) })
	ports := model.Inputs()
	if len(ports) != len(weights) {
		return nil, fmt.Errorf("%s: %d tensors for %d inputs", path, len(weights), len(ports))
	}
	in := make(optimem.Values)
	for i, w := range weights {
		data := make([]byte, w.Extent.Bytes)
		if err := w.Extent.Source.ReadAt(ctx, data, w.Extent.Offset); err != nil {
			return nil, err
		}
		in[ports[i].Name] = &tensor.Tensor{DType: w.DType, Layout: w.Layout, Data: data}
	}
	return in, nil
}

// sample returns at most a thousand numbers of a tensor, evenly spread.
func sample(t *tensor.Tensor) []float64 {
	const most = 1000
	n, _ := t.Layout.NumElements()
	step := max(1, n/most)
	var numbers []float64
	for i := int64(0); i < n && len(numbers) < most; i += step {
		at := t.Data[i*int64(t.DType.Size()):]
		switch t.DType {
		case tensor.Float32:
			numbers = append(numbers, float64(math.Float32frombits(binary.LittleEndian.Uint32(at))))
		case tensor.BFloat16:
			numbers = append(numbers, float64(tensor.BFloat16ToFloat32(binary.LittleEndian.Uint16(at))))
		case tensor.Float16:
			numbers = append(numbers, float64(tensor.Float16ToFloat32(binary.LittleEndian.Uint16(at))))
		}
	}
	return numbers
}
