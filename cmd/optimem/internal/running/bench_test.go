//go:build !files

package running

import (
	"encoding/json"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
)

// A benchmark is the median of its runs, whatever their order, the least of them, the most memory of any, and what one of them
// moves.
func TestBenchmarkSums(t *testing.T) {
	var b benchmark
	b.sum([]runFacts{
		{Seconds: 9, StallSeconds: 1, MovedBytes: 30, PeakDeviceBytes: 70},
		{Seconds: 2, StallSeconds: 1, MovedBytes: 10, PeakDeviceBytes: 90},
		{Seconds: 3, StallSeconds: 2, MovedBytes: 10, PeakDeviceBytes: 80},
		{Seconds: 6, StallSeconds: 1, MovedBytes: 10, PeakDeviceBytes: 60},
	})
	want := benchmark{
		MedianSeconds: 4.5, MinSeconds: 2, PeakBytes: 90, MovedBytes: 15, MovedPerSecond: 3, StallFraction: 0.25,
	}
	if b != want {
		t.Errorf("got %+v, want %+v", b, want)
	}
}

// Each number of a benchmark goes by its own key.
func TestBenchJSON(t *testing.T) {
	var stdout strings.Builder
	r := Run{Line: &command.Line{Stdout: &stdout}, ModelFlags: ModelFlags{Threads: 10, Mode: "page", Device: "cpu"}}
	err := r.benchJSON(benchmark{
		MedianSeconds: 1, MinSeconds: 2, Runs: 3, FirstSeconds: 4, LoadSeconds: 5, PeakBytes: 6, PeakRSSBytes: 7, MovedBytes: 8,
		MovedPerSecond: 9, StallFraction: 0.5,
	})
	var got map[string]any
	if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"seconds_median": 1., "seconds_min": 2., "runs": 3., "first_run_seconds": 4., "load_seconds": 5., "peak_device_bytes": 6.,
		"peak_rss_bytes": 7., "bytes_moved_per_run": 8., "moved_bytes_per_second": 9., "stall_fraction": 0.5, "threads": 10.,
		"mode": "page", "device": "cpu",
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

// What loading takes is no part of the first run.
func TestBenchFirstRun(t *testing.T) {
	first := runFacts{Seconds: 5, LoadSeconds: 3, Simulated: true}
	b := firstRun(first, 4, 10)
	if b.Runs != 10 || b.LoadSeconds != 7 || math.Abs(b.FirstSeconds-2) > 1e-9 || !b.Simulated {
		t.Errorf("got %+v", b)
	}
}
