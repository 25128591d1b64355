package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/optimem/optimem/cuda/kernels"
	"github.com/optimem/optimem/cuda/kernels/_ptxas/told"
)

// beforePath is what kernels took at a commit and take now, from the repository's root.
const beforePath = "cuda/kernels/before.txt"

// beforeFor is the capability that all kernels are compared for, productsFor those for which the families with products of tensor cores
// are: of each generation one that the others' code is much like.
var beforeFor, productsFor = 90, []int{75, 80}

// A spent is what a kernel takes of a multiprocessor: registers and bytes of each thread's own memory; its instructions, and in the loop
// that has most products of tensor cores the instructions and the products.
type spent struct {
	registers, frame, stores, loads int
	all                             int
	longest, products               int
}

// A where is a kernel for a capability.
type where struct {
	capability int
	kernel     string
}

// A set finds the images of some state of the kernels.
type set struct {
	families []string
	image    func(family string, capability int) ([]byte, error)
}

// now is the set that is here.
func now() (*set, error) {
	s := &set{image: kernels.Image}
	for _, name := range kernels.Names() {
		family, err := kernels.Family(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(s.families, family) {
			s.families = append(s.families, family)
		}
	}
	return s, nil
}

var imageName = regexp.MustCompile(`^(\w+)\.sm(\d\d)\.image\.gz$`)

// at is the set of a commit, as git has it.
func at(commit string) (*set, error) {
	listing, err := exec.Command("git", "ls-tree", "-r", "--name-only", commit, "cuda/kernels/ptx/").Output()
	if err != nil {
		return nil, fmt.Errorf("the kernels of %s: %w", commit, err)
	}
	targets := make(map[string][]int)
	for name := range strings.FieldsSeq(string(listing)) {
		if m := imageName.FindStringSubmatch(path.Base(name)); m != nil {
			target, err := strconv.Atoi(m[2])
			if err != nil {
				return nil, err
			}
			targets[m[1]] = append(targets[m[1]], target)
		}
	}
	if len(targets) == 0 {
		return nil, fmt.Errorf("%s has no kernels in columns", commit)
	}
	image := func(family string, capability int) ([]byte, error) {
		best := 0
		for _, target := range targets[family] {
			if target <= capability {
				best = max(best, target)
			}
		}
		packed, err := exec.Command("git", "show", fmt.Sprintf("%s:cuda/kernels/ptx/%s.sm%d.image.gz", commit, family, best)).Output()
		if err != nil {
			return nil, fmt.Errorf("%s of %s for %d: %w", family, commit, capability, err)
		}
		return kernels.Unpack(packed)
	}
	return &set{slices.Sorted(maps.Keys(targets)), image}, nil
}

// measured assembles all families of a set, and counts what their kernels take.
func (s *set) measured(dir string) (map[where]spent, error) {
	type job struct {
		family     string
		capability int
	}
	all := make(map[where]spent)
	var mu sync.Mutex
	var errs []error
	var workers sync.WaitGroup
	next := make(chan job)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for j := range next {
				found, err := s.family(dir, j.family, j.capability)
				mu.Lock()
				if err != nil {
					errs = append(errs, fmt.Errorf("%s for %d: %w", j.family, j.capability, err))
				}
				for kernel, x := range found {
					all[where{j.capability, kernel}] = x
				}
				mu.Unlock()
			}
		})
	}
	for _, f := range s.families {
		next <- job{f, beforeFor}
	}
	for _, c := range productsFor {
		for _, f := range s.families {
			image, err := s.image(f, c)
			if err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
			if multiplies(image) {
				next <- job{f, c}
			}
		}
	}
	close(next)
	workers.Wait()
	return all, errors.Join(errs...)
}

// family assembles a family for a capability, and counts what its kernels take.
func (s *set) family(dir, family string, capability int) (map[string]spent, error) {
	image, err := s.image(family, capability)
	if err != nil {
		return nil, err
	}
	from := filepath.Join(dir, fmt.Sprintf("%s.%d.ptx", family, capability))
	to := from + ".cubin"
	defer os.Remove(from)
	defer os.Remove(to)
	if err := os.WriteFile(from, image, 0o644); err != nil {
		return nil, err
	}
	said, err := exec.Command(program("OPTIMEM_PTXAS", "ptxas"), "-v", "-arch="+kernels.Architecture(family, capability),
		from, "-o", to).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, said)
	}
	found := taken(string(said))
	if err := sized(found, to); err != nil {
		return nil, err
	}
	if !multiplies(image) {
		return found, nil
	}
	dump := exec.Command(program("OPTIMEM_CUOBJDUMP", "cuobjdump"), "-sass", to)
	dump.Stderr = os.Stderr
	text, err := dump.Output()
	if err != nil {
		return nil, err
	}
	for part := range bytes.SplitSeq(text, []byte("Function : ")) {
		name, code, _ := bytes.Cut(part, []byte("\n"))
		x, ok := found[string(bytes.TrimSpace(name))]
		if !ok {
			continue
		}
		count(&x, parse(code))
		found[string(bytes.TrimSpace(name))] = x
	}
	return found, nil
}

// taken is what ptxas says that kernels take.
func taken(said string) map[string]spent {
	found := make(map[string]spent)
	for name, u := range told.Parse(said) {
		found[name] = spent{registers: u.Registers, frame: u.Frame, stores: u.Stores, loads: u.Loads}
	}
	return found
}

// multiplies reports whether PTX has products of tensor cores.
func multiplies(image []byte) bool { return bytes.Contains(image, []byte("mma.sync")) }

// instructionBytes is what an instruction takes, by all GPUs from compute capability 7.0 on.
const instructionBytes = 16

// sized says how many instructions kernels have, by the room that they take in an assembled family: with what fills their ends.
func sized(found map[string]spent, cubin string) error {
	file, err := elf.Open(cubin)
	if err != nil {
		return err
	}
	defer file.Close()
	for name, x := range found {
		section := file.Section(".text." + name)
		if section == nil {
			return fmt.Errorf("%s has no code", name)
		}
		x.all = int(section.Size / instructionBytes)
		found[name] = x
	}
	return nil
}

// count looks for the loop with most products.
func count(x *spent, text []instruction) {
	for _, l := range loopsOf(text) {
		if l.products > x.products || l.products == x.products && l.longest > x.longest {
			x.longest, x.products = l.longest, l.products
		}
	}
}

// writeBefore writes what kernels took at a commit and take now.
func writeBefore(dir, commit string) error {
	name, err := exec.Command("git", "log", "-1", "--format=%h of %cs", commit).Output()
	if err != nil {
		return err
	}
	old, err := at(commit)
	if err != nil {
		return err
	}
	here, err := now()
	if err != nil {
		return err
	}
	was, err := old.measured(dir)
	if err != nil {
		return err
	}
	is, err := here.measured(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(beforePath, []byte(compared(strings.TrimSpace(string(name)), was, is)), 0o644)
}

// compared is the table.
func compared(name string, was, is map[where]spent) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What kernels took at %s and take now, by the same ptxas and by counting; nothing is measured. Made by\n"+
		"# go run ./cuda/kernels/_roofline -before COMMIT.\n"+
		"#\n# Of the kernels of both: how many there are, of these with a frame, its bytes in all, how many spill, the bytes of these stores\n"+
		"# and loads.\n", name)
	places := slices.SortedFunc(maps.Keys(was), func(a, b where) int {
		return strings.Compare(fmt.Sprintf("%03d %s", a.capability, a.kernel), fmt.Sprintf("%03d %s", b.capability, b.kernel))
	})
	places = slices.DeleteFunc(places, func(p where) bool { _, ok := is[p]; return !ok })
	of := slices.DeleteFunc(slices.Clone(places), func(p where) bool { return p.capability != beforeFor })
	fmt.Fprintf(&b, "%d all %d: %s, now %s\n", beforeFor, len(of), sum(of, was), sum(of, is))
	b.WriteString("#\n# Kernels whose frame or spills are others, or that have products of tensor cores: registers, frame, spilled by stores and by loads,\n" +
		"# instructions with what fills their end; and of the longest way through the loop with most products instructions / products.\n")
	for _, p := range places {
		u, v := was[p], is[p]
		if u.own() == v.own() && u.products+v.products == 0 {
			continue
		}
		fmt.Fprintf(&b, "%d %s %s, now %s\n", p.capability, p.kernel, u, v)
	}
	return b.String()
}

// own is what a kernel takes of each thread's own memory.
func (x spent) own() [3]int { return [3]int{x.frame, x.stores, x.loads} }

func (x spent) String() string {
	text := fmt.Sprintf("%d %d %d %d %d", x.registers, x.frame, x.stores, x.loads, x.all)
	if x.products > 0 {
		text += fmt.Sprintf(" %d/%d", x.longest, x.products)
	}
	return text
}

// sum adds up what some kernels take.
func sum(places []where, of map[where]spent) string {
	var frames, bytes, spill, spilled int
	for _, p := range places {
		x := of[p]
		if x.frame > 0 {
			frames++
		}
		if x.stores+x.loads > 0 {
			spill++
		}
		bytes, spilled = bytes+x.frame, spilled+x.stores+x.loads
	}
	return fmt.Sprintf("%d %d %d %d", frames, bytes, spill, spilled)
}
