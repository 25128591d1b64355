// Command _generate compiles the kernels to PTX with NVRTC. It needs no GPU, no driver and no CUDA toolkit except that
// one library, of the release in the constant version:
//
//	pip download --no-deps nvidia-cuda-nvrtc-cu11==11.8.89 && unzip nvidia_cuda_nvrtc_cu11-*.whl
//	OPTIMEM_NVRTC=nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2 go generate ./cuda/kernels
//
// The release is old on purpose: a driver accepts PTX of its own version and older. Sources with up-to-date PTX are not
// compiled again, so go generate needs NVRTC only after a change.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/optimem/optimem/cuda/kernels"
)

// version is the release of NVRTC that the committed PTX is made with.
const version = "11.8"

func main() {
	force := flag.Bool("force", false, "compile everything")
	flag.Parse()
	if err := generate(*force); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func generate(force bool) error {
	sources, err := filepath.Glob("*.cu")
	if err != nil {
		return err
	}
	var lib *nvrtc
	wanted := make(map[string]bool)
	for _, name := range sources {
		stamp, err := kernels.Stamp(os.DirFS("."), name)
		if err != nil {
			return err
		}
		family := strings.TrimSuffix(name, ".cu")
		low := kernels.Path(family, kernels.Targets[0])
		wanted[low] = true
		if fresh(low, stamp) && !force {
			for _, target := range append(kernels.Targets[1:], kernels.HopperTarget) {
				wanted[kernels.Path(family, target)] = true
			}
			continue
		}
		if lib == nil {
			if lib, err = open(); err != nil {
				return fmt.Errorf("%s has changed: %w", name, err)
			}
		}
		var stored []byte
		targets := kernels.Targets
		if strings.HasPrefix(name, kernels.Hopper) {
			targets = []string{kernels.Targets[0], kernels.HopperTarget}
		}
		for _, target := range targets {
			ptx, err := lib.compile(name, target)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", name, target, err)
			}
			image := []byte(compact(ptx))
			// Most sources have nothing that only the newer targets can do.
			if stored != nil && bytes.Equal(targetLine.ReplaceAll(image, nil), targetLine.ReplaceAll(stored, nil)) {
				continue
			}
			path := kernels.Path(family, target)
			wanted[path], stored = true, image
			if err := write(path, stamp, image); err != nil {
				return err
			}
		}
	}
	stale, err := filepath.Glob("ptx/*")
	if err != nil {
		return err
	}
	for _, path := range stale {
		if !wanted[filepath.ToSlash(path)] {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// targetLine is the one in which images that say the same differ.
var targetLine = regexp.MustCompile(`(?m)^\.target sm_\d+$`)

// fresh reports whether an image was made from what has a stamp.
func fresh(path, stamp string) bool {
	packed, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	have, _, err := kernels.Head(packed)
	return err == nil && have == stamp
}

// write stores an image. One that says the same is left as it is, even if another release of Go would pack it otherwise.
func write(path, stamp string, ptx []byte) error {
	packed, err := kernels.Pack(stamp, ptx)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(path); err == nil {
		was, err := kernels.Unpack(old)
		is, _ := kernels.Unpack(packed)
		if err == nil && bytes.Equal(was, is) {
			return nil
		}
	}
	return os.WriteFile(path, packed, 0o644)
}

// compact leaves out of PTX what means nothing: remarks, and what only lines it up.
func compact(ptx string) string {
	ptx = callNumbers.ReplaceAllString(ptx, "")
	ptx = blankLines.ReplaceAllString(ptx, "")
	return strings.NewReplacer(" \t", " ", ", ", ",").Replace(ptx)
}

// blankLines are those with nothing but a remark about inline assembly, or without anything.
var blankLines = regexp.MustCompile(`(?m)^\s*(// (begin|end) inline asm)?\n`)

// callNumbers are remarks in which the compiler counts the calls that it ever wrote.
var callNumbers = regexp.MustCompile(` ?// callseq \d+(, \d+)?`)

// nvrtc is the library's calls.
type nvrtc struct {
	create, compileProgram, logSize, log, ptxSize, ptx uintptr
}

func open() (*nvrtc, error) {
	path := os.Getenv("OPTIMEM_NVRTC")
	if path == "" {
		return nil, errors.New("OPTIMEM_NVRTC does not say where libnvrtc.so of CUDA " + version + " is")
	}
	// The library opens its builtins by name: they must be loaded first.
	if found, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "libnvrtc-builtins.so*")); len(found) > 0 {
		if _, err := purego.Dlopen(found[0], purego.RTLD_NOW|purego.RTLD_GLOBAL); err != nil {
			return nil, err
		}
	}
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, err
	}
	n := &nvrtc{}
	var v uintptr
	for name, p := range map[string]*uintptr{
		"nvrtcVersion": &v, "nvrtcCreateProgram": &n.create, "nvrtcCompileProgram": &n.compileProgram,
		"nvrtcGetProgramLogSize": &n.logSize, "nvrtcGetProgramLog": &n.log,
		"nvrtcGetPTXSize": &n.ptxSize, "nvrtcGetPTX": &n.ptx,
	} {
		if *p, err = purego.Dlsym(h, name); err != nil {
			return nil, err
		}
	}
	var major, minor int32
	purego.SyscallN(v, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor)))
	if have := fmt.Sprintf("%d.%d", major, minor); have != version {
		return nil, fmt.Errorf("NVRTC %s, the PTX is made with %s", have, version)
	}
	return n, nil
}

func (n *nvrtc) compile(name, target string) (string, error) {
	source, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	var headers, names []*byte
	for _, header := range kernels.Included(source) {
		text, err := os.ReadFile(header)
		if err != nil {
			return "", err
		}
		headers, names = append(headers, terminated(string(text))), append(names, terminated(header))
	}
	if headers == nil {
		return "", errors.New("it does not include om.h")
	}
	var program uintptr
	text, file := terminated(string(source)), terminated(name)
	var r uintptr
	r, _, _ = purego.SyscallN(n.create, uintptr(unsafe.Pointer(&program)), uintptr(unsafe.Pointer(text)),
		uintptr(unsafe.Pointer(file)), uintptr(len(headers)), uintptr(unsafe.Pointer(&headers[0])), uintptr(unsafe.Pointer(&names[0])))
	if r != 0 {
		return "", fmt.Errorf("nvrtcCreateProgram: %d", r)
	}
	// The release does not know what Hopper alone has, but lets inline PTX through as it is.
	architecture := strings.TrimSuffix(target, "a")
	options := []*byte{
		terminated("--gpu-architecture=" + architecture), terminated("-default-device"), terminated("--std=c++17"),
	}
	failed, _, _ := purego.SyscallN(n.compileProgram, program, uintptr(len(options)), uintptr(unsafe.Pointer(&options[0])))
	log := n.text(program, n.logSize, n.log)
	runtime.KeepAlive([]any{text, file, headers, names, options})
	if failed != 0 {
		return "", errors.New(log)
	}
	ptx := n.text(program, n.ptxSize, n.ptx)
	if architecture != target {
		ptx = headLines.ReplaceAllString(ptx,
			".version "+kernels.HopperVersion+"\n.target "+strings.Replace(target, "compute", "sm", 1))
	}
	return ptx, nil
}

// headLines are those of a release and a target in PTX.
var headLines = regexp.MustCompile(`(?m)^\.version \S+\n\.target \S+$`)

// text asks for a text whose length another call tells.
func (n *nvrtc) text(program, size, get uintptr) string {
	var bytes uint64
	if r, _, _ := purego.SyscallN(size, program, uintptr(unsafe.Pointer(&bytes))); r != 0 || bytes == 0 {
		return ""
	}
	buf := make([]byte, bytes)
	purego.SyscallN(get, program, uintptr(unsafe.Pointer(&buf[0])))
	return strings.TrimRight(string(buf), "\x00")
}

func terminated(s string) *byte {
	b := append([]byte(s), 0)
	return &b[0]
}
