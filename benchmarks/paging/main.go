// Command paging runs a model in a mode and says what each pass took, for the scripts that compare it with others.
//
// It does not know who it is compared with.
//
//	paging -mode page -memory 1500000000 -rows 1 -runs 5 model.pt
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/models"
	"github.com/optimem/optimem/plan"
	optimem "github.com/optimem/optimem/runtime"
	"github.com/optimem/optimem/tensor"
)

// A report is what is printed.
type report struct {
	OpenSeconds float64   `json:"open_seconds"`
	Seconds     []float64 `json:"seconds"`
	Peak        int64     `json:"peak_device_bytes"`
	Planned     int64     `json:"planned_bytes"`
	Moved       int64     `json:"bytes_moved_per_run"`
	Stall       float64   `json:"stall_seconds_per_run"`
	Expected    float64   `json:"expected_seconds"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "paging:", err)
		os.Exit(1)
	}
}

func run() error {
	mode := flag.String("mode", "page", "resident, page, chunk or auto")
	device := flag.String("device", "cpu", "device")
	memory := flag.Int64("memory", 0, "budget in bytes")
	capacity := flag.Int64("capacity", 0, "chunk: parameters to pin")
	maxGroup := flag.Int64("max-layer-size", -1, "page: parameters below which a module is one group")
	rows := flag.Int("rows", 1, "rows of a run")
	size := flag.Int("size", 224, "height and width of pictures, or length of sequences")
	runs := flag.Int("runs", 5, "passes to time, after one that does not count")
	threads := flag.Int("threads", 2, "threads")
	flag.Parse()
	begin := time.Now()
	ckpt, err := loader.Open(flag.Arg(0))
	if err != nil {
		return err
	}
	defer ckpt.Close()
	model, err := models.Build(ckpt, models.Options{})
	if err != nil {
		return err
	}
	start, ok := map[string]func(context.Context, *models.Model, optimem.Options) (*optimem.Session, error){
		"resident": optimem.Resident, "page": optimem.Page, "chunk": optimem.Chunk, "auto": optimem.Auto,
	}[*mode]
	if !ok {
		return fmt.Errorf("no mode %q", *mode)
	}
	ctx := context.Background()
	session, err := start(ctx, model, optimem.Options{
		Device: *device, Memory: *memory, Threads: *threads,
		MaxGroup: plan.Limit{N: *maxGroup, Unit: plan.Params}, Capacity: plan.Limit{N: *capacity, Unit: plan.Params},
	})
	if err != nil {
		return err
	}
	defer session.Close()
	in, shapes := make(optimem.Values), make(map[string]tensor.Shape)
	for _, port := range model.Inputs() {
		shape := append(tensor.Shape{}, port.Shape...)
		for i, d := range shape {
			if d < 0 {
				shape[i] = *size
			}
			if d < 0 && i == 0 {
				shape[i] = *rows
			}
		}
		n, err := shape.NumElements()
		if err != nil {
			return err
		}
		in[port.Name] = &tensor.Tensor{
			DType: port.DType, Layout: tensor.Contiguous(shape...), Data: make([]byte, n*int64(port.DType.Size())),
		}
		shapes[port.Name] = shape
	}
	p, err := session.Plan(ctx, shapes)
	if err != nil {
		return err
	}
	r := report{OpenSeconds: time.Since(begin).Seconds(), Planned: p.PeakBytes(), Expected: p.Forecast.Seconds}
	for i := range *runs + 1 {
		before := session.Metrics()
		begin := time.Now()
		if _, err := session.Run(ctx, in); err != nil {
			return err
		}
		if i > 0 {
			m := session.Metrics()
			r.Seconds = append(r.Seconds, time.Since(begin).Seconds())
			r.Peak, r.Moved, r.Stall = m.PeakBytes, m.MovedBytes-before.MovedBytes, (m.Stall - before.Stall).Seconds()
		}
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
