//go:build linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/optimem/optimem/cuda"
	"github.com/optimem/optimem/device"
	"github.com/optimem/optimem/tensor"
)

// What the kit of benchmarks/gpu runs on a machine with a GPU.
var (
	onDriver = flag.Bool("gpu", false,
		"run on OPTIMEM_LIBCUDA's or the system's driver, where a test does not tell the simulated one what to do")
	resultsFile = flag.String("results", "", "write what TestCompliance's calls gave to `FILE`, a JSON object on each line")
)

// driverPath is that of the driver that -gpu means, "" for the system's.
func driverPath() string { return os.Getenv("OPTIMEM_LIBCUDA") }

// openDriver returns the GPU that -gpu means.
func openDriver(t testing.TB) *cuda.Device {
	t.Helper()
	dev, err := cuda.New(cuda.Options{Library: driverPath()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// A result is what a call gave, for a comparison with PyTorch on the same GPU.
type result struct {
	Name    string       `json:"name"`
	Outputs []dataOutput `json:"outputs"`
}

type dataOutput struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Data  []byte `json:"data"`
}

// record appends to the file of results where there is one.
func record(t testing.TB, name string, out map[string]*tensor.Tensor) {
	t.Helper()
	if *resultsFile == "" {
		return
	}
	r := result{Name: name}
	for k := range len(out) {
		name := fmt.Sprint(k)
		y := out[name]
		r.Outputs = append(r.Outputs, dataOutput{name, y.DType.String(), append([]int{}, y.Layout.Shape...), y.Data})
	}
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(*resultsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// BenchmarkCopy copies between the host and a GPU: page-locked memory and the ordinary kind, there and back.
func BenchmarkCopy(b *testing.B) {
	if !*onDriver {
		b.Skip("needs a GPU: -gpu")
	}
	dev := openDriver(b)
	for _, bytes := range []int64{1 << 20, 16 << 20, 256 << 20} {
		for _, pinned := range []bool{true, false} {
			for _, in := range []bool{true, false} {
				b.Run(fmt.Sprintf("%dMiB/pinned=%v/in=%v", bytes>>20, pinned, in), func(b *testing.B) {
					benchmarkCopy(b, dev, bytes, pinned, in)
				})
			}
		}
	}
}

func benchmarkCopy(b *testing.B, dev *cuda.Device, bytes int64, pinned, in bool) {
	host := make([]byte, bytes)
	if pinned {
		mem, err := dev.AllocHost(bytes)
		if err != nil {
			b.Fatal(err)
		}
		defer mem.Free()
		host = mem.Bytes()
	}
	for i := range host {
		host[i] = byte(i) // pages that nobody wrote to are all one
	}
	mem, err := dev.Alloc(bytes)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = mem.Free() }()
	stream, err := dev.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	region := device.Region{Memory: mem, Bytes: bytes}
	if err := stream.CopyIn(region, host); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(bytes)
	for b.Loop() {
		if in {
			err = stream.CopyIn(region, host)
		} else {
			err = stream.CopyOut(host, region)
		}
		if err == nil {
			err = stream.Sync(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
