// Command _roofline says what part of the rate that mma.sync, or wgmma, can have the largest blocks on tensor cores can reach, by counting: it
// assembles their PTX, finds the loop over the terms in the machine's code, and counts what is on the longest ways through it. It needs no GPU, only ptxas and cuobjdump of CUDA's toolkit (nvdisasm beside it):
//
//	OPTIMEM_PTXAS=ptxas OPTIMEM_CUOBJDUMP=cuobjdump go run ./cuda/kernels/_roofline
//
// For 7.0 both are those of CUDA 12, which OPTIMEM_PTXAS_OLD and OPTIMEM_CUOBJDUMP_OLD name; without them it is not checked, and
// -rewrite leaves its lines as they are.
//
// A multiprocessor has four schedulers, each with its tensor core. What bounds a kernel is the largest of: the tensor cores' time; the
// schedulers', an instruction a cycle; shared memory's, 128 bytes a cycle, for what is read and what is copied there, and for what is read
// from memory into registers, which goes the same way; and the second cache's, where its makers say what it gives. Beside that each block
// has a begin and an end, whose instructions are counted once, and waits for the first bytes. What reaches less than the committed list
// fails. It is a bound, and no measurement: clocks, memory and launches are not in it.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/optimem/optimem/cuda/kernels"
)

// listPath is what was counted, from the repository's root.
const listPath = "cuda/kernels/roofline.txt"

// A machine is a GPU's multiprocessor, by its maker's papers.
type machine struct {
	capability int
	// multiplications are those of halves that a tensor core adds up in float32 in a cycle, half as many of TF32; cache is how many
	// bytes a cycle the second cache gives to a multiprocessor, 0 where nobody says; registers is how many it has.
	multiplications, cache, registers float64
}

// machines are V100's and T4's, A100's, and those of A40 and L40, which add up halves in float32 at the full rate; GeForce has half of
// that, so that less bounds the kernels there.
var machines = []machine{
	{oldCapability, 128, 0, 65536}, {75, 128, 0, 65536}, {80, 256, 47, 65536}, {86, 128, 0, 65536}, {89, 128, 0, 65536},
}

// oldCapability needs programs of CUDA 12; before halvesCapability tensor cores take float16 alone.
const oldCapability, halvesCapability = 70, 80

// A block of 128 × 128 results by four warps, 64 bytes of a line of terms at a time, and a product of as many terms as most have.
const (
	lineBytes, terms = 64, 4096
	// firstBytes is how many cycles a block waits for the first bytes, a guess.
	firstBytes = 1000
)

// A family has a kernel that is counted. size is how many bytes a term has in shared memory, and read how many in memory; lines are those
// of both factors of a block.
type family struct {
	name, kernel             string
	size, read, lines, warps int
}

var families = []family{
	{"tensor_f16", "om_tensor_f16_128", 2, 2, 256, 4},
	{"tensor_bf16", "om_tensor_bf16_128", 2, 2, 256, 4},
	{"tensor_narrow", "om_tensor_narrow_128", 4, 4, 256, 4},
	{"tensor_narrow", "om_tensor_narrow_256", 2, 4, 384, 8},
	{"tensor_tf32", "om_tensor_tf32_128", 4, 4, 256, 4},
	{"conv_tensor_f16", "om_conv_tensor_f16_128", 2, 2, 256, 4},
	{"conv_tensor_bf16", "om_conv_tensor_bf16_128", 2, 2, 256, 4},
	{"conv_tensor_narrow", "om_conv_tensor_narrow_128", 4, 4, 256, 4},
	{"conv_tensor_narrow", "om_conv_tensor_narrow_256", 2, 4, 384, 8},
	{"conv_tensor_tf32", "om_conv_tensor_tf32_128", 4, 4, 256, 4},
}

func main() {
	rewrite := flag.Bool("rewrite", false, "write the list")
	before := flag.String("before", "", "a commit: write what kernels took at it and take now to "+beforePath)
	flag.Parse()
	if err := run(*rewrite, *before); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(rewrite bool, before string) error {
	dir, err := os.MkdirTemp("", "roofline")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if before != "" {
		return writeBefore(dir, before)
	}
	var list strings.Builder
	list.WriteString("# Percent of mma.sync's rate that the largest blocks can reach, by counting (not measured): capability, kernel, loop,\n" +
		"# percent, what bounds it; of the longest ways through a loop: instructions, products, reads of 128 bytes from shared memory or, into\n" +
		"# registers, from memory, copies to shared memory.\n" +
		"# om_hopper: of wgmma's rate; instructions of a warp, products of a warpgroup and what they read, copies of a thread that brings.\n" +
		"# Made by go run ./cuda/kernels/_roofline -rewrite.\n")
	listed, err := listedPercents()
	if err != nil && !rewrite {
		return err
	}
	var below []error
	for _, m := range machines {
		if m.capability == oldCapability && os.Getenv("OPTIMEM_CUOBJDUMP_OLD") == "" {
			fmt.Println("NOT CHECKED: 7.0, without OPTIMEM_CUOBJDUMP_OLD")
			list.WriteString(linesOf(m.capability))
			continue
		}
		for _, f := range families {
			if m.capability < halvesCapability && !strings.HasSuffix(f.name, "_f16") {
				continue
			}
			text, registers, err := disassembled(dir, f.name, f.kernel, m.capability)
			if err != nil {
				return err
			}
			loops := loopsOf(text)
			if len(loops) == 0 {
				return fmt.Errorf("%s for %d has no loop of products", f.kernel, m.capability)
			}
			for i, l := range loops {
				percent, bound := m.reaches(&l, &f, registers, len(text)-l.all)
				fmt.Fprintf(&list, "%d %s %d %.0f %s %d %d %d %d\n", m.capability, f.kernel, i, percent, bound,
					l.longest, l.products, l.reads, l.copies)
				if most := listed[place(m.capability, f.kernel, i)]; math.Round(percent) < most {
					below = append(below, fmt.Errorf("%s: %.0f percent, the list says %.0f",
						place(m.capability, f.kernel, i), percent, most))
				}
			}
		}
	}
	if err := countHopper(dir, &list, listed); err != nil {
		below = append(below, err)
	}
	fmt.Print(list.String())
	if rewrite {
		return os.WriteFile(listPath, []byte(list.String()), 0o644)
	}
	return errors.Join(below...)
}

// place names a loop of a kernel for a capability.
func place(capability int, kernel string, loop int) string {
	return fmt.Sprintf("%d %s %d", capability, kernel, loop)
}

// linesOf returns what the list has of a capability.
func linesOf(capability int) string {
	text, _ := os.ReadFile(listPath)
	var lines strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, strconv.Itoa(capability)+" ") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// listedPercents reads the list.
func listedPercents() (map[string]float64, error) {
	text, err := os.ReadFile(listPath)
	if err != nil {
		return nil, err
	}
	all := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		var capability, loop int
		var kernel string
		var percent float64
		if strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%d %s %d %f", &capability, &kernel, &loop, &percent); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", listPath, line, err)
		}
		all[place(capability, kernel, loop)] = percent
	}
	return all, nil
}

// reaches returns the part of the rate that a kernel can reach, and what bounds it. others are its instructions outside the loop.
func (m *machine) reaches(l *loop, f *family, registers, others int) (percent float64, bound string) {
	each := float64(16 * 8 * l.depth) // multiplications of a product
	rate := m.multiplications
	if f.size == 4 && l.depth == 8 {
		rate /= 2
	}
	// In a part of the terms, of which each scheduler has a warp, or two.
	warps := float64(f.warps) / 4
	tensor := warps * float64(l.products) * each / rate
	part := float64(f.lines * lineBytes)
	times := []struct {
		name string
		time float64
	}{
		{"tensor", tensor},
		{"issue", warps * float64(l.longest)},
		{"shared", float64(l.reads*f.warps) + part/128},
		{"cache", 0},
	}
	if m.cache > 0 {
		times[3].time = part * float64(f.read/f.size) / m.cache
	}
	bound, most := "tensor", tensor
	for _, t := range times {
		if t.time > most {
			bound, most = t.name, t.time
		}
	}
	// Blocks that run at the same time hide each other's begin and end, but for the instructions.
	blocks := min(2, float64(int(m.registers)/(registers*f.warps*32)))
	parts := float64(terms*f.size) / lineBytes
	whole := parts*most + warps*float64(others)/4 + firstBytes/blocks
	return 100 * parts * tensor / whole, bound
}

// An instruction of the machine's code.
type instruction struct {
	at     int
	name   string
	target int // of a branch, -1 for others
	always bool
}

var instructionLine = regexp.MustCompile(`^\s*/\*([0-9a-f]{4,5})\*/\s+(@!?U?P[0-9T]+ )?\s*([A-Z0-9_.]+)([^;]*);`)

var targetOf = regexp.MustCompile(`0x([0-9a-f]+)\s*$`)

// disassembled returns the instructions of a kernel, and how many registers it has.
func disassembled(dir, family, kernel string, capability int) ([]instruction, int, error) {
	image, err := kernels.Image(family, capability)
	if err != nil {
		return nil, 0, err
	}
	from, to := filepath.Join(dir, family+".ptx"), filepath.Join(dir, family+".cubin")
	if err := os.WriteFile(from, image, 0o644); err != nil {
		return nil, 0, err
	}
	old := ""
	if capability == oldCapability {
		old = "_OLD"
	}
	said, err := exec.Command(program("OPTIMEM_PTXAS"+old, "ptxas"), "-v",
		"-arch="+kernels.Architecture(family, capability), from,
		"-o", to).CombinedOutput()
	if err != nil {
		return nil, 0, fmt.Errorf("%w\n%s", err, said)
	}
	used := regexp.MustCompile(`(?s)entry function '` + kernel + `'.*?Used (\d+) registers`).FindSubmatch(said)
	if used == nil {
		return nil, 0, fmt.Errorf("%s is not in %s", kernel, family)
	}
	registers, err := strconv.Atoi(string(used[1]))
	if err != nil {
		return nil, 0, err
	}
	dump := program("OPTIMEM_CUOBJDUMP"+old, "cuobjdump")
	c := exec.Command(dump, "-sass", "-fun", kernel, to)
	if folder := filepath.Dir(dump); folder != "." { // where it finds nvdisasm
		c.Env = append(os.Environ(), "PATH="+folder+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	c.Stderr = os.Stderr
	text, err := c.Output()
	return parse(text), registers, err
}

func program(variable, name string) string {
	if path := os.Getenv(variable); path != "" {
		return path
	}
	return name
}

// parse reads what cuobjdump says.
func parse(text []byte) []instruction {
	var list []instruction
	for line := range bytes.Lines(text) {
		m := instructionLine.FindSubmatch(line)
		if m == nil {
			continue
		}
		at, err := strconv.ParseInt(string(m[1]), 16, 64)
		if err != nil {
			continue // it is five hexadecimal digits
		}
		i := instruction{at: int(at), name: string(m[3]), target: -1, always: len(m[2]) == 0}
		if t := targetOf.FindSubmatch(bytes.TrimSpace(m[4])); t != nil && i.name == "BRA" {
			if to, err := strconv.ParseInt(string(t[1]), 16, 64); err == nil {
				i.target = int(to)
			}
			// A branch by a further predicate may go on, too.
			i.always = i.always && !bytes.ContainsAny(m[4], "P!")
		}
		list = append(list, i)
	}
	return list
}

// A loop is one that has products: what is on the longest ways through it.
type loop struct {
	longest, products, reads, copies int
	depth                            int // terms of a product
	all                              int // instructions, on whatever way
}

// slices is how often a loop within that over the terms runs: SLICES of kernels/tensor.h, for 7.0 and for 7.5.
func (l *loop) slices() int {
	if l.depth == 2 {
		return 4
	}
	return 2
}

// loopsOf finds the loops that have products. Those within another are that one's, which runs them several times.
func loopsOf(text []instruction) []loop {
	var loops []loop
	var begins []int
	for end, i := range text {
		begin := slices.IndexFunc(text, func(j instruction) bool { return j.at == i.target })
		if i.target < 0 || i.target > i.at || begin < 0 {
			continue
		}
		l := longestWay(text[begin : end+1])
		if l.products == 0 {
			continue
		}
		for n := len(begins) - 1; n >= 0 && begins[n] > begin; n-- {
			inner := loops[n]
			again := inner.slices() - 1
			l.longest += again * inner.longest
			l.products += again * inner.products
			l.reads += again * inner.reads
			l.copies += again * inner.copies
			loops, begins = loops[:n], begins[:n]
		}
		loops, begins = append(loops, l), append(begins, begin)
	}
	return loops
}

// longestWay counts the most instructions, reads and copies that are on a way from a loop's first instruction to its last one, of those
// with the most products. Branches back within it are not taken.
func longestWay(body []instruction) loop {
	ways := make([]loop, len(body)+1)
	for i := range ways {
		ways[i].longest = -1
	}
	ways[0].longest = 0
	for i, in := range body {
		w := ways[i]
		if w.longest < 0 {
			continue // nothing leads here
		}
		w.longest++
		switch {
		case strings.HasPrefix(in.name, "HMMA"), strings.HasPrefix(in.name, "HGMMA"):
			w.products++
			w.depth = 16
			switch {
			case strings.Contains(in.name, ".1688"):
				w.depth = 8
			case strings.Contains(in.name, ".884"):
				w.depth = 2 // a quarter of a warp's 4 × 8 × 8 results of four terms
			}
		case strings.HasPrefix(in.name, "LDSM"):
			w.reads += 4
		case strings.HasPrefix(in.name, "LDS."), in.name == "LDS", strings.HasPrefix(in.name, "LDG."):
			switch {
			case strings.Contains(in.name, ".128"):
				w.reads += 4
			case strings.Contains(in.name, ".64"):
				w.reads += 2
			default:
				w.reads++
			}
		case strings.HasPrefix(in.name, "LDGSTS"), strings.HasPrefix(in.name, "STS"),
			strings.HasPrefix(in.name, "UTMALDG"):
			w.copies++
		}
		offer := func(to int) {
			switch o := &ways[min(to, len(body))]; {
			case to > len(body) || w.products < o.products:
			case w.products > o.products:
				*o = w
			default: // of ways that part and meet, each bounds something
				o.longest, o.reads = max(o.longest, w.longest), max(o.reads, w.reads)
				o.copies, o.depth = max(o.copies, w.copies), max(o.depth, w.depth)
			}
		}
		if in.target > in.at {
			if to := slices.IndexFunc(body, func(j instruction) bool { return j.at == in.target }); to > 0 {
				offer(to)
			}
		}
		if in.name == "EXIT" && in.always || in.target >= 0 && in.always && i < len(body)-1 {
			continue
		}
		offer(i + 1)
	}
	last := ways[len(body)]
	last.all = len(body)
	return last
}
