// Command _ptxas assembles the PTX that ships for GPUs of several compute capabilities, and compares the memory that each
// kernel takes of every thread's own with a committed list: frames and what registers spill to. It needs no GPU and no driver,
// only ptxas of the release in the constant version:
//
//	OPTIMEM_PTXAS=$(.ci/ptxas) go run ./cuda/kernels/_ptxas
//
// What is above the list fails; -rewrite writes the list, -table prints registers too, -times how long ptxas took. What is below
// the list is said, and no failure.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/optimem/optimem/cuda/kernels"
)

// version is the release of ptxas that the list is of: another one allots otherwise.
const version = "13.5"

// capabilities are those that kernels are assembled for.
var capabilities = []int{75, 80, 86, 89, 90, 100, 120}

// listPath is the list, from the repository's root.
const listPath = "cuda/kernels/ptxas.txt"

const listHead = "# What kernels take of each thread's own memory, in bytes, by ptxas " + version + ": compute capability, kernel, frame,\n" +
	"# spilled by stores and by loads. Kernels that are not here take none. Made by go run ./cuda/kernels/_ptxas -rewrite.\n"

// A kernel's use of an architecture.
type use struct{ registers, frame, stores, loads int }

// A place is a kernel on an architecture.
type place struct {
	capability int
	kernel     string
}

func main() {
	rewrite := flag.Bool("rewrite", false, "write the list")
	table := flag.Bool("table", false, "print what every kernel uses")
	times := flag.Bool("times", false, "print the processor's milliseconds of ptxas for each family")
	cubins := flag.String("cubins", "", "a folder to keep the assembled families in, for programs that look there")
	only := flag.String("only", "", "one capability alone, as in 90; the list is then not compared")
	flag.Parse()
	err := run(*rewrite, *table, *times, *cubins, *only)
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
	program, err := find()
	if err != nil {
		return err
	}
	found, took, err := assembleAll(program, cubins)
	if err != nil {
		return err
	}
	places := slices.SortedFunc(maps.Keys(found), func(a, b place) int {
		return strings.Compare(fmt.Sprintf("%03d %s", a.capability, a.kernel), fmt.Sprintf("%03d %s", b.capability, b.kernel))
	})
	if table {
		for _, p := range places {
			u := found[p]
			fmt.Printf("%d %s registers %d frame %d spilled %d %d\n", p.capability, p.kernel, u.registers, u.frame, u.stores, u.loads)
		}
	}
	if times {
		printTimes(took)
	}
	if rewrite {
		return os.WriteFile(listPath, []byte(list(places, found)), 0o644)
	}
	if only != "" {
		return nil
	}
	return compare(places, found)
}

// find returns ptxas.
func find() (string, error) {
	program := os.Getenv("OPTIMEM_PTXAS")
	if program == "" {
		program = "ptxas"
	}
	said, err := exec.Command(program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ptxas of CUDA %s, which OPTIMEM_PTXAS names: %w", version, err)
	}
	if !bytes.Contains(said, []byte("release "+version+",")) {
		return "", fmt.Errorf("%s is not of CUDA %s, which the list is of", program, version)
	}
	return program, nil
}

// A job is a family for a capability.
type job struct {
	family     string
	capability int
}

// assembleAll assembles every family for every capability, as many at once as there are processors.
func assembleAll(program, cubins string) (map[place]use, map[job]time.Duration, error) {
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
	found, took := make(map[place]use), make(map[job]time.Duration)
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	next := make(chan job)
	for range runtime.NumCPU() {
		all.Go(func() {
			for j := range next {
				uses, t, err := assemble(program, dir, cubins, j)
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
func assemble(program, dir, cubins string, j job) (map[string]use, time.Duration, error) {
	image, err := kernels.Image(j.family, j.capability)
	if err != nil {
		return nil, 0, err
	}
	from := filepath.Join(dir, fmt.Sprintf("%s.%d.ptx", j.family, j.capability))
	if err := os.WriteFile(from, image, 0o644); err != nil {
		return nil, 0, err
	}
	to := from + ".cubin"
	c := exec.Command(program, "-v", "-arch=sm_"+strconv.Itoa(j.capability), from, "-o", to)
	said, err := c.CombinedOutput()
	if err != nil {
		return nil, 0, fmt.Errorf("%w\n%s", err, said)
	}
	if cubins != "" {
		if err := keep(cubins, to, j, image); err != nil {
			return nil, 0, err
		}
	}
	for _, path := range []string{from, to} {
		if err := os.Remove(path); err != nil {
			return nil, 0, err
		}
	}
	return parse(string(said)), c.ProcessState.UserTime() + c.ProcessState.SystemTime(), nil
}

// keep will write an assembled family where programs look for it.
func keep(string, string, job, []byte) error { return errors.New("cubins are not kept yet") }

var (
	entryLine    = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	propertyLine = regexp.MustCompile(`Function properties for (\w+)`)
	frameLine    = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	usedLine     = regexp.MustCompile(`Used (\d+) registers`)
)

// parse reads what ptxas says of kernels. A function that one calls counts with it.
func parse(said string) map[string]use {
	uses := make(map[string]use)
	entry := ""
	for line := range strings.Lines(said) {
		if m := entryLine.FindStringSubmatch(line); m != nil {
			entry = m[1]
			uses[entry] = use{}
		} else if propertyLine.MatchString(line) || entry == "" {
			continue
		} else if m := frameLine.FindStringSubmatch(line); m != nil {
			u := uses[entry]
			u.frame, u.stores, u.loads = max(u.frame, number(m[1])), u.stores+number(m[2]), u.loads+number(m[3])
			uses[entry] = u
		} else if m := usedLine.FindStringSubmatch(line); m != nil {
			u := uses[entry]
			u.registers = number(m[1])
			uses[entry] = u
		}
	}
	return uses
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return n
}

func line(p place, u use) string {
	return fmt.Sprintf("%d %s %d %d %d\n", p.capability, p.kernel, u.frame, u.stores, u.loads)
}

func list(places []place, found map[place]use) string {
	var b strings.Builder
	b.WriteString(listHead)
	for _, p := range places {
		if u := found[p]; u.frame+u.stores+u.loads > 0 {
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
		if _, err := fmt.Sscanf(l, "%d %s %d %d %d", &p.capability, &p.kernel, &u.frame, &u.stores, &u.loads); err != nil {
			return fmt.Errorf("%s: %q: %w", listPath, l, err)
		}
		listed[p] = u
	}
	var worse []error
	for _, p := range places {
		u, most := found[p], listed[p]
		switch {
		case u.frame > most.frame || u.stores > most.stores || u.loads > most.loads:
			worse = append(worse, fmt.Errorf("above the list: %s", strings.TrimSpace(line(p, u))))
		case u.frame < most.frame || u.stores < most.stores || u.loads < most.loads:
			fmt.Printf("below the list: %s", line(p, u))
		}
	}
	for p := range listed {
		if _, ok := found[p]; !ok {
			fmt.Printf("in the list, and not there: %d %s\n", p.capability, p.kernel)
		}
	}
	fmt.Printf("%d kernels for %d capabilities, %d lines of the list\n", len(found)/len(capabilities), len(capabilities), len(listed))
	return errors.Join(worse...)
}

// printTimes prints for each family the milliseconds that ptxas took for each capability.
func printTimes(took map[job]time.Duration) {
	byFamily := make(map[string][]string)
	for _, c := range capabilities {
		for j, t := range took {
			if j.capability == c {
				byFamily[j.family] = append(byFamily[j.family], strconv.FormatInt(t.Milliseconds(), 10))
			}
		}
	}
	for _, family := range slices.Sorted(maps.Keys(byFamily)) {
		fmt.Println(family, strings.Join(byFamily[family], " "))
	}
}
