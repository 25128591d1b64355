// Package kernels holds the kernels of the CUDA device as PTX, which the driver compiles for its GPU.
//
// [the generator] compiles the sources, *.cu, for three targets, and its output is committed beside them, compressed.
// Each image begins with a hash of its sources, which a test checks. Package cuda chooses the kernel for an op; this
// package does not know ops.
//
//	image, err := kernels.Image("om_relu_f32", 80)
//
// [the generator]: https://github.com/optimem/optimem/tree/main/cuda/kernels/_generate
package kernels

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:generate go run ./_generate

//go:embed ptx/*.image.gz
var files embed.FS

// Targets are the architectures that images are made for, the lowest first. A GPU runs every image whose target is no
// newer than itself.
var Targets = []string{"compute_70", "compute_75", "compute_80"}

// Families whose names begin with Hopper have an image for HopperTarget, PTX of HopperVersion, which GPUs of HopperCapability run and
// no others, newer ones neither. Their other image is for their names alone: its kernels trap.
const (
	Hopper           = "hopper_"
	HopperTarget     = "compute_90a"
	HopperVersion    = "8.0"
	HopperCapability = 90
)

// LowestCapability is the first compute capability, as in 70 for 7.0, that there is an image for.
const LowestCapability = 70

// DriverRelease is the release of CUDA that a driver must be of to take the images, DriverLinux what such drivers are called
// on Linux. It is that of the compiler.
const (
	DriverRelease = "11.8"
	DriverLinux   = "520"
)

// Path returns where the image of a family, such as "linear", lies for one of the Targets.
func Path(family, target string) string {
	return "ptx/" + family + "." + strings.Replace(target, "compute_", "sm", 1) + ".image.gz"
}

// Included returns the headers that a source includes by name, in order. Those that a header includes are not looked for.
func Included(source []byte) []string {
	var names []string
	for _, m := range includes.FindAllSubmatch(source, -1) {
		names = append(names, string(m[1]))
	}
	return names
}

var includes = regexp.MustCompile(`(?m)^#include "([a-z_]+\.h)"$`)

// Stamp returns the first line of an image that was made from a source in a folder and the headers that it includes.
func Stamp(folder fs.FS, name string) (string, error) {
	source, err := fs.ReadFile(folder, name)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, header := range Included(source) {
		text, err := fs.ReadFile(folder, header)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		h.Write(text)
	}
	h.Write(source)
	return "// " + hex.EncodeToString(h.Sum(nil)), nil
}

// families maps every kernel to the family that it is in.
var families = sync.OnceValue(func() map[string]string {
	all := make(map[string]string)
	names, err := fs.Glob(files, Path("*", Targets[0]))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	before, after, _ := strings.Cut(Path("*", Targets[0]), "*")
	for _, name := range names {
		packed, err := files.ReadFile(name)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		_, kernels, err := Head(packed)
		if err != nil {
			panic("BUG: " + name + ": " + err.Error())
		}
		for _, kernel := range kernels {
			all[kernel] = strings.TrimSuffix(strings.TrimPrefix(name, before), after)
		}
	}
	return all
})

// Names returns the names of all kernels, in order.
func Names() []string { return slices.Sorted(maps.Keys(families())) }

// Family returns the family that a kernel is in.
func Family(kernel string) (string, error) {
	if f, ok := families()[kernel]; ok {
		return f, nil
	}
	return "", fmt.Errorf("no kernel %s", kernel)
}

// Image returns the PTX of a family for a GPU of a compute capability, as in 86 for 8.6. A family has an image for a
// newer target only where that differs.
func Image(family string, capability int) ([]byte, error) {
	if capability == HopperCapability && strings.HasPrefix(family, Hopper) {
		packed, err := files.ReadFile(Path(family, HopperTarget))
		if err != nil {
			return nil, err
		}
		return Unpack(packed)
	}
	for _, target := range slices.Backward(Targets) {
		if least, err := strconv.Atoi(strings.TrimPrefix(target, "compute_")); err != nil || capability < least {
			continue
		}
		if packed, err := files.ReadFile(Path(family, target)); err == nil {
			return Unpack(packed)
		}
	}
	return nil, fmt.Errorf("no image of %s for compute capability %d.%d", family, capability/10, capability%10)
}

// Architecture is what NVIDIA's assembler is told that it assembles a family's image for.
func Architecture(family string, capability int) string {
	if capability == HopperCapability && strings.HasPrefix(family, Hopper) {
		return strings.Replace(HopperTarget, "compute", "sm", 1)
	}
	return "sm_" + strconv.Itoa(capability)
}
