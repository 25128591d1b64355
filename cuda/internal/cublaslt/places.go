//go:build linux && (amd64 || arm64) && !nocuda

package cublaslt

import (
	"fmt"
	"os"
	"path/filepath"
)

// The releases of the library whose calls are those that are called here.
const (
	oldestMajor = 11
	newestMajor = 13
)

// A host is where the library is looked for: the environment, and the folder that its files lie below, "" but in tests.
type host struct {
	env  func(name string) string
	root string
}

// places returns what Open("auto") tries, the first one first: files that are there, and names that the loader knows. driver is
// the release of CUDA that the driver is of, as in 12040 for 12.4, which takes no library of a later major one; 0 is not known.
// What a Python environment brings goes before what the loader finds, and that before toolkits.
func (h host) places(driver int) []string {
	newest := newestMajor
	if driver > 0 {
		newest = min(newest, driver/1000)
	}
	var list []string
	in := func(patterns []string) {
		for major := newest; major >= oldestMajor; major-- {
			for _, pattern := range patterns {
				found, _ := filepath.Glob(h.root + filepath.Join(pattern, fmt.Sprint("libcublasLt.so.", major)))
				list = append(list, found...)
			}
		}
	}
	in(h.pythons())
	for major := newest; major >= oldestMajor; major-- {
		list = append(list, fmt.Sprint("libcublasLt.so.", major))
	}
	in(h.toolkits())
	return list
}

// pythons are patterns of the folders in which packages of Python environments have the library.
func (h host) pythons() []string {
	var list []string
	packages := func(prefix string) {
		if !filepath.IsAbs(prefix) {
			return
		}
		for _, folder := range []string{"site-packages", "dist-packages"} {
			for _, of := range []string{"cu1[0-9]", "cublas"} {
				list = append(list, filepath.Join(prefix, "lib", "python3*", folder, "nvidia", of, "lib"))
			}
		}
	}
	packages(h.env("VIRTUAL_ENV"))
	if conda := h.env("CONDA_PREFIX"); filepath.IsAbs(conda) {
		list = append(list, filepath.Join(conda, "lib"))
		packages(conda)
	}
	for _, folder := range filepath.SplitList(h.env("PATH")) {
		if _, err := os.Stat(h.root + filepath.Join(folder, "python3")); err == nil && filepath.IsAbs(folder) {
			packages(filepath.Dir(folder))
			break
		}
	}
	if home := h.env("HOME"); filepath.IsAbs(home) {
		packages(filepath.Join(home, ".local"))
	}
	packages("/usr/local")
	return append(list, "/usr/lib/python3/dist-packages/nvidia/*/lib")
}

// toolkits are patterns of the folders in which toolkits have the library.
func (h host) toolkits() []string {
	var list []string
	for _, folder := range []string{h.env("CUDA_HOME"), h.env("CUDA_PATH"), "/usr/local/cuda", "/usr/local/cuda-*",
		"/opt/cuda"} {
		if filepath.IsAbs(folder) {
			list = append(list, filepath.Join(folder, "lib64"), filepath.Join(folder, "targets", "*-linux", "lib"))
		}
	}
	return list
}
