// Command _ptxas assembles the PTX that ships for GPUs of several compute capabilities, and compares the memory that each
// kernel takes of every thread's own with a committed list: frames and what registers spill to. It needs no GPU and no driver,
// only ptxas of the release in the constant version:
//
//	OPTIMEM_PTXAS=$(.ci/ptxas) go run ./cuda/kernels/_ptxas
//
// What is above the list fails; -rewrite writes the list, -table prints registers too, -times writes how long ptxas took, -alone how
// long for some kernels by themselves. What is
// below the list is said, and no failure.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/cuda/kernels/_ptxas/told"
)

// version is the release of ptxas that the list is of: another one allots otherwise.
const version, oldVersion = "13.5", "12.9"

// capabilities are those that kernels are assembled for.
var capabilities = []int{oldCapability, 75, 80, 86, 89, 90, 100, 120}

// oldCapability is assembled for by oldVersion.
const oldCapability = 70

// listPath is the list, from the repository's root.
const listPath = "cuda/kernels/ptxas.txt"

const listHead = "# What kernels take of each thread's own memory, in bytes, by ptxas " + version + " (7.0: " +
	oldVersion + "): compute capability, kernel, frame,\n" +
	"# spilled by stores and by loads. Kernels that are not here take none. Made by go run ./cuda/kernels/_ptxas -rewrite.\n"

// A kernel's use of an architecture.
type use = told.Use

// A place is a kernel on an architecture.
type place struct {
	capability int
	kernel     string
}

func main() {
	rewrite := flag.Bool("rewrite", false, "write the list")
	table := flag.Bool("table", false, "print what every kernel uses")
	times := flag.Bool("times", false, "write the processor's milliseconds of ptxas for each family to "+timesPath)
	single := flag.String("alone", "", "kernels, with commas between: write what ptxas takes for each by itself to "+alonePath)
	cubins := flag.String("cubins", "", "a folder to keep the assembled families in, for programs that look there")
	only := flag.String("only", "", "one capability alone, as in 90; the list is then not compared")
	flag.Parse()
	var err error
	if *single != "" {
		err = alone(strings.Split(*single, ","))
	} else {
		err = run(*rewrite, *table, *times, *cubins, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(rewrite, table, times bool, cubins, only string) error {
	if only != "" {
		c, err := strconv.Atoi(only)
		if err != nil {
			return err
		}
		capabilities = []int{c}
	}
	all, writes := len(capabilities), rewrite || times
	if writes && only != "" {
		return errPart
	}
	programs, err := findAll()
	if err != nil {
		return err
	}
	if writes && len(programs) < all {
		return errPart
	}
	found, took, err := assembleAll(programs, cubins)
	if err != nil {
		return err
	}
	places := slices.SortedFunc(maps.Keys(found), func(a, b place) int {
		return strings.Compare(fmt.Sprintf("%03d %s", a.capability, a.kernel), fmt.Sprintf("%03d %s", b.capability, b.kernel))
	})
	if table {
		for _, p := range places {
			u := found[p]
			fmt.Printf("%d %s registers %d frame %d spilled %d %d\n", p.capability, p.kernel, u.Registers, u.Frame, u.Stores, u.Loads)
		}
	}
	if times {
		if err := os.WriteFile(timesPath, []byte(timesOf(took)), 0o644); err != nil {
			return err
		}
	}
	if rewrite {
		return os.WriteFile(listPath, []byte(list(places, found)), 0o644)
	}
	if only != "" {
		return nil
	}
	return compare(places, found)
}

// errPart refuses to write a list that would forget some capabilities.
var errPart = errors.New("what is written has all capabilities: set OPTIMEM_PTXAS_OLD, and leave -only away")

// findAll returns the ptxas for each capability, and leaves those out that there is none for.
func findAll() (map[int]string, error) {
	programs := make(map[int]string)
	var kept []int
	for _, c := range capabilities {
		name, want := os.Getenv("OPTIMEM_PTXAS"), version
		if c == oldCapability {
			name, want = os.Getenv("OPTIMEM_PTXAS_OLD"), oldVersion
			if name == "" {
				fmt.Println("NOT CHECKED: 7.0, without OPTIMEM_PTXAS_OLD")
				continue
			}
		}
		if name == "" {
			name = "ptxas"
		}
		if err := check(name, want); err != nil {
			return nil, err
		}
		programs[c], kept = name, append(kept, c)
	}
	capabilities = kept
	return programs, nil
}

// check fails where a program is not ptxas of a release.
func check(program, version string) error {
	said, err := exec.Command(program, "--version").Output()
	if err != nil {
		return fmt.Errorf("ptxas of CUDA %s, which OPTIMEM_PTXAS or OPTIMEM_PTXAS_OLD names: %w", version, err)
	}
	if !bytes.Contains(said, []byte("release "+version+",")) {
		return fmt.Errorf("%s is not of CUDA %s, which the list is of", program, version)
	}
	return nil
}

// A cost is the processor's time that assembling took, and what it made.
type cost struct {
	time  time.Duration
	bytes int64
}

// A job is a family for a capability.
type job struct {
	family     string
	capability int
}

// assembleAll assembles every family for every capability, as many at once as there are processors.
func assembleAll(programs map[int]string, cubins string) (map[place]use, map[job]cost, error) {
	dir, err := os.MkdirTemp("", "ptxas")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	var families []string
	for _, name := range kernels.Names() {
		family, err := kernels.Family(name)
		if err != nil {
			return nil, nil, err
		}
		if !slices.Contains(families, family) {
			families = append(families, family)
		}
	}
	var jobs []job
	for _, c := range capabilities {
		for _, family := range families {
			jobs = append(jobs, job{family, c})
		}
	}
	found, took := make(map[place]use), make(map[job]cost)
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	next := make(chan job)
	for range runtime.NumCPU() {
		all.Go(func() {
			for j := range next {
				uses, t, err := assemble(programs[j.capability], dir, cubins, j)
				mu.Lock()
				if err != nil {
					errs = append(errs, fmt.Errorf("%s for %d: %w", j.family, j.capability, err))
				}
				for kernel, u := range uses {
					found[place{j.capability, kernel}] = u
				}
				took[j] = t
				mu.Unlock()
			}
		})
	}
	for _, j := range jobs {
		next <- j
	}
	close(next)
	all.Wait()
	return found, took, errors.Join(errs...)
}

// assemble assembles a family, and returns what its kernels use and the time that it took of processors.
func assemble(program, dir, cubins string, j job) (map[string]use, cost, error) {
	image, err := kernels.Image(j.family, j.capability)
	if err != nil {
		return nil, cost{}, err
	}
	return assembleImage(program, dir, cubins, j, image)
}

// assembleImage is assemble for an image of a family.
func assembleImage(program, dir, cubins string, j job, image []byte) (map[string]use, cost, error) {
	from := filepath.Join(dir, fmt.Sprintf("%s.%d.ptx", j.family, j.capability))
	if err := os.WriteFile(from, image, 0o644); err != nil {
		return nil, cost{}, err
	}
	to := from + ".cubin"
	c := exec.Command(program, "-v", "-arch="+kernels.Architecture(j.family, j.capability), from, "-o", to)
	said, err := c.CombinedOutput()
	if err != nil {
		return nil, cost{}, fmt.Errorf("%w\n%s", err, said)
	}
	if cubins != "" {
		if err := keep(cubins, to, j, image); err != nil {
			return nil, cost{}, err
		}
	}
	info, err := os.Stat(to)
	if err != nil {
		return nil, cost{}, err
	}
	for _, path := range []string{from, to} {
		if err := os.Remove(path); err != nil {
			return nil, cost{}, err
		}
	}
	return told.Parse(string(said)), cost{c.ProcessState.UserTime() + c.ProcessState.SystemTime(), info.Size()}, nil
}

// keep writes an assembled family as programs look for it.
func keep(folder, cubin string, j job, image []byte) error {
	text, err := os.ReadFile(cubin)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	name := kernels.AssembledName(j.family, j.capability, 0, image)
	return os.WriteFile(filepath.Join(folder, name), kernels.PackAssembled(text), 0o644)
}

func line(p place, u use) string {
	return fmt.Sprintf("%d %s %d %d %d\n", p.capability, p.kernel, u.Frame, u.Stores, u.Loads)
}

func list(places []place, found map[place]use) string {
	var b strings.Builder
	b.WriteString(listHead)
	for _, p := range places {
		if u := found[p]; u.Frame+u.Stores+u.Loads > 0 {
			b.WriteString(line(p, u))
		}
	}
	return b.String()
}

// compare fails for kernels that take more than the list says.
func compare(places []place, found map[place]use) error {
	text, err := os.ReadFile(listPath)
	if err != nil {
		return err
	}
	listed := make(map[place]use)
	for l := range strings.Lines(string(text)) {
		if strings.HasPrefix(l, "#") {
			continue
		}
		var p place
		var u use
		if _, err := fmt.Sscanf(l, "%d %s %d %d %d", &p.capability, &p.kernel, &u.Frame, &u.Stores, &u.Loads); err != nil {
			return fmt.Errorf("%s: %q: %w", listPath, l, err)
		}
		listed[p] = u
	}
	var worse []error
	for _, p := range places {
		u, most := found[p], listed[p]
		switch {
		case u.Frame > most.Frame || u.Stores > most.Stores || u.Loads > most.Loads:
			worse = append(worse, fmt.Errorf("above the list: %s", strings.TrimSpace(line(p, u))))
		case u.Frame < most.Frame || u.Stores < most.Stores || u.Loads < most.Loads:
			fmt.Printf("below the list: %s", line(p, u))
		}
	}
	for p := range listed {
		if _, ok := found[p]; !ok && slices.Contains(capabilities, p.capability) {
			fmt.Printf("in the list, and not there: %d %s\n", p.capability, p.kernel)
		}
	}
	fmt.Printf("%d kernels for %d capabilities, %d lines of the list\n", len(found)/len(capabilities), len(capabilities), len(listed))
	return errors.Join(worse...)
}

// timesPath is what ptxas took for each family, from which tests reckon a cold start.
const timesPath = "cuda/kernels/ptxas_times.txt"

// timesOf lists what ptxas took.
func timesOf(took map[job]cost) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What ptxas %s (7.0: %s) took to assemble each family, on one of %d processors, %s, which did other work, too:\n"+
		"# compute capability, family, milliseconds of the processor, bytes that it made.\n"+
		"# Made by go run ./cuda/kernels/_ptxas -times.\n", version, oldVersion, runtime.NumCPU(), processor())
	jobs := slices.SortedFunc(maps.Keys(took), func(a, b job) int {
		return cmp.Or(cmp.Compare(a.capability, b.capability), strings.Compare(a.family, b.family))
	})
	for _, j := range jobs {
		fmt.Fprintf(&b, "%d %s %d %d\n", j.capability, j.family, took[j].time.Milliseconds(), took[j].bytes)
	}
	return b.String()
}

// processor is the name of the machine's.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "of no known name"
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "of no known name"
}
