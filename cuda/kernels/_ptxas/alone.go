package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/optimem/optimem/cuda/kernels"
)

// alonePath is what ptxas took for single kernels, from which tests reckon a cold start.
const alonePath = "cuda/kernels/ptxas_alone.txt"

// aloneFor are the capabilities that kernels are assembled for alone, aloneTimes is how often.
var aloneFor, aloneTimes = []int{75, 80, 90}, 3

// alone writes what ptxas takes for kernels, each without the others of its family, as drivers are given them. The least of some
// times counts.
func alone(names []string) error {
	capabilities = aloneFor
	programs, err := findAll()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ptxas")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var b strings.Builder
	fmt.Fprintf(&b, "# What ptxas %s took to assemble a kernel without the others of its family, the least of %d times, on a processor of\n"+
		"# %s, which did other work, too: compute capability, kernel, milliseconds of the processor, bytes that it made.\n"+
		"# Made by go run ./cuda/kernels/_ptxas -alone KERNELS.\n", version, aloneTimes, processor())
	slices.Sort(names)
	for _, c := range aloneFor {
		for _, name := range names {
			family, err := kernels.Family(name)
			if err != nil {
				return err
			}
			image, err := kernels.Image(family, c)
			if err != nil {
				return err
			}
			if image, err = kernels.Alone(image, name); err != nil {
				return err
			}
			var least cost
			for range aloneTimes {
				_, took, err := assembleImage(programs[c], dir, "", job{family, c}, image)
				if err != nil {
					return fmt.Errorf("%s for %d: %w", name, c, err)
				}
				if least.time == 0 || took.time < least.time {
					least = took
				}
			}
			fmt.Fprintf(&b, "%d %s %d %d\n", c, name, least.time/time.Millisecond, least.bytes)
		}
	}
	return os.WriteFile(alonePath, []byte(b.String()), 0o644)
}
