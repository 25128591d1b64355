// Package sim simulates NVIDIA's driver on machines without a GPU: a libcuda.so.1 that runs the CUDA device's own
// kernels, compiled by the host's C++ compiler, in host memory. It rejects what a driver rejects (invalid addresses,
// PTX that is too new, launches whose parameters do not match), delays the streams' work and reorders it at random
// within what events allow, detects accesses that no event orders, keeps a simulated clock, and injects faults on
// request.
//
// The .cu sources compiled for the host are fast enough for whole models, and for the pager's schedules and faults. But
// what ships is PTX, compiled from those sources by another compiler. After [Library.Interpret] the driver interprets
// the PTX that it is given (package ptx): each instruction becomes a closure once, and the threads of a block run one
// after the other between barriers. A thread may access only the ranges of the launch's pointers, and a shadow of
// shared and written global memory records the last access to each byte, so that races are found. TestCommittedPTX runs
// every kernel so on all recorded calls, and fails for a kernel that never ran; TestEveryBarrierIsNeeded and
// TestChangedPTX plant mistakes in the PTX, which must be found.
//
// It is for tests. Its times follow from configured rates, and the last bits of its results are the host's, not a
// GPU's.
//
//	lib := sim.New(t, "memory=64M order=lazy:7")
//	dev, err := cuda.New(cuda.Options{Library: lib.Path})
//	// … run something on it …
//	lib.Check(t)
package sim

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/optimem/optimem/cuda/kernels"
)

//go:embed src/*.cpp src/*.h
var sources embed.FS

// flags are those that everything is compiled with. Products are not fused, so that results are the same everywhere.
var flags = []string{"-std=c++17", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", "-pthread", "-ffp-contract=off", "-w"}

// errNoCompiler is wrapped where there is no C++ compiler to build the driver with.
var errNoCompiler = errors.New("the simulated driver needs a C++ compiler")

// build compiles the driver, unless that was done before with the same sources, and returns its path. It is kept in the
// user's cache.
var build = sync.OnceValues(func() (string, error) { return buildWith() })

// buildWith is build with further kernels.
func buildWith(more ...source) (string, error) {
	compiler, err := exec.LookPath("g++")
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoCompiler, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	b := builder{compiler: compiler, dir: filepath.Join(cache, "optimem", "sim")}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(b.dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	path, err := b.library(more)
	if err != nil {
		return "", err
	}
	return path, nil
}

// A builder compiles into a folder. Results are named by a hash of what they are made from.
type builder struct {
	compiler, dir string
}

// A source is a file to compile, or one that others include.
type source struct {
	name string
	text []byte
}

// includes reports whether a file may include a header: of the kernels' those that it names, and all of the driver's.
func (s source) includes(header string) bool {
	_, err := fs.Stat(kernels.Sources, header)
	return err != nil || slices.Contains(kernels.Included(s.text), header)
}

func (b *builder) library(more []source) (string, error) {
	headers, list, err := read()
	if err != nil {
		return "", err
	}
	list = append(list, more...)
	all := sha256.New()
	var objects []string
	src, err := os.MkdirTemp("", "optimem-sim")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(src)
	for _, s := range append(headers, list...) {
		if err := os.WriteFile(filepath.Join(src, s.name), s.text, 0o644); err != nil {
			return "", err
		}
	}
	var compiling errgroup.Group
	compiling.SetLimit(goruntime.GOMAXPROCS(0))
	for _, s := range list {
		h := sha256.New()
		fmt.Fprintln(h, b.compiler, flags)
		for _, header := range headers {
			if s.includes(header.name) {
				h.Write(header.text)
			}
		}
		fmt.Fprintln(h, s.name)
		h.Write(s.text)
		sum := h.Sum(nil)
		all.Write(sum)
		object := filepath.Join(b.dir, hex.EncodeToString(sum[:12])+".o")
		objects = append(objects, object)
		compiling.Go(func() error {
			return b.make(object, append([]string{"-I", src, "-c", "-x", "c++", filepath.Join(src, s.name)}, flags...))
		})
	}
	if err := compiling.Wait(); err != nil {
		return "", err
	}
	dir := filepath.Join(b.dir, hex.EncodeToString(all.Sum(nil)[:12]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "libcuda.so.1")
	args := append([]string{"-shared", "-pthread", "-Wl,-soname,libcuda.so.1"}, objects...)
	return path, b.make(path, args)
}

// make runs the compiler for a result that is not there yet.
func (b *builder) make(path string, args []string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	part := path + ".part"
	out, err := exec.Command(b.compiler, append(args, "-o", part)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(args[0]), err, out)
	}
	return os.Rename(part, path)
}

// read returns the headers, on which everything depends, and what is compiled.
func read() (headers, list []source, err error) {
	own, err := fs.Sub(sources, "src")
	if err != nil {
		return nil, nil, err
	}
	for _, fsys := range []fs.FS{own, kernels.Sources} {
		names, err := fs.Glob(fsys, "*")
		if err != nil {
			return nil, nil, err
		}
		for _, name := range names {
			text, err := fs.ReadFile(fsys, name)
			if err != nil {
				return nil, nil, err
			}
			s := source{name: name, text: text}
			if filepath.Ext(name) == ".h" {
				headers = append(headers, s)
			} else {
				list = append(list, s)
			}
		}
	}
	return headers, list, nil
}

// Find builds the driver for a test, and returns "" where there is no compiler for it or the system is not Linux. With
// OPTIMEM_REQUIRE_SIM=1 the test fails then.
func Find(t testing.TB) string {
	t.Helper()
	path, err := build()
	missing := errors.Is(err, errors.ErrUnsupported) || errors.Is(err, errNoCompiler)
	if err != nil && (!missing || os.Getenv("OPTIMEM_REQUIRE_SIM") == "1") {
		t.Fatal(err)
	}
	return path
}

// Path is [Find], but the test is skipped where there is no driver.
func Path(t testing.TB) string {
	t.Helper()
	path := Find(t)
	if path == "" {
		t.Skip(errNoCompiler)
	}
	return path
}
