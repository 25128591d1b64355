package main

import (
	"debug/elf"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of words with binutils' assembler for aarch64")

const (
	tablePath = "testdata/encodings.txt"
	assembler = "aarch64-linux-gnu-as"
)

// samples has every instruction, with registers that set all bits of their fields and none.
func samples() []instruction {
	var all []instruction
	registers := [][3]V{{0, 0, 0}, {31, 31, 31}, {1, 2, 4}, {8, 16, 31}, {21, 10, 26}}
	for _, r := range registers {
		d, n, m := r[0], r[1], r[2]
		for _, f := range []func(d, n, m V) instruction{
			faddS, faddD, fsubS, fsubD, fmulS, fmulD, fdivS, fdivD, fmlaS, fmlaD, fmlsS, fmaxS, fminS, faddpS, faddpD,
			fmaxpS, fminpS, fcmeqS, fcmgtS, smull, smull2, addpH,
		} {
			all = append(all, f(d, n, m))
		}
		for lane := range 4 {
			all = append(all, fmlaLane(d, n, m, lane))
		}
		for _, f := range []func(d, n V) instruction{
			fabsS, fnegS, fsqrtS, fsqrtD, frintnS, frintmS, frintpS, frintzS, fcvtnsS, fcvtlH, fcvtl2H, fcvtlS, fcvtl2S,
			fcvtnS, fcvtn2S, fcvtnD, shll, shll2, shrn, shrn2, sxtlB, sxtl2B, sxtlH, sxtl2H, scvtfS, saddlp,
		} {
			all = append(all, f(d, n))
		}
		for _, bits := range []int{1, 16, 23, 31} {
			for _, f := range []func(d, n V, bits int) instruction{shlS, ushrS, sshrS} {
				all = append(all, f(d, n, bits))
			}
		}
		all = append(all, upperHalves(d))
	}
	return all
}

// TestEncodings compares words with those that an assembler gave, which are in the table.
func TestEncodings(t *testing.T) {
	if *update {
		var b strings.Builder
		for _, i := range samples() {
			fmt.Fprintf(&b, "%08x %s\n", assemble(t, i.text)[0], i.text)
		}
		if err := os.WriteFile(tablePath, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(tablePath)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	all := samples()
	if len(lines) != len(all) {
		t.Fatalf("%d instructions, and %d in the table", len(all), len(lines))
	}
	for i, want := range lines {
		if got := fmt.Sprintf("%08x %s", all[i].word, all[i].text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestFamilies compares every word that the families write with what an assembler makes of its notation, where there is
// one.
func TestFamilies(t *testing.T) {
	emitted := map[instruction]bool{}
	for _, write := range families {
		f := newFile("kernel")
		f.emitted = emitted
		write(f)
	}
	known := map[string]bool{}
	for _, i := range samples() {
		known[mnemonic(i)] = true
	}
	var all []instruction
	for i := range emitted {
		if !known[mnemonic(i)] {
			t.Errorf("%q is written, but no instruction like it is in the table", i.text)
		}
		all = append(all, i)
	}
	if _, err := exec.LookPath(assembler); err != nil {
		t.Skipf("%d words are not compared: there is no %s", len(all), assembler)
	}
	slices.SortFunc(all, func(a, b instruction) int { return strings.Compare(a.text, b.text) })
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].text
	}
	for i, word := range assemble(t, texts...) {
		if word != all[i].word {
			t.Errorf("%q is %08x, want %08x", all[i].text, all[i].word, word)
		}
	}
}

// mnemonic returns an instruction's name and kinds of lanes.
func mnemonic(i instruction) string {
	name, operands, _ := strings.Cut(i.text, " ")
	for operand := range strings.SplitSeq(operands, ", ") {
		_, lanes, _ := strings.Cut(operand, ".")
		name += " " + lanes
	}
	return name
}

// assemble returns the words of instructions.
func assemble(t *testing.T, text ...string) []uint32 {
	t.Helper()
	object := filepath.Join(t.TempDir(), "words.o")
	command := exec.Command(assembler, "-o", object, "-")
	command.Stdin = strings.NewReader(strings.Join(text, "\n") + "\n")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint32, len(data)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	if len(words) != len(text) {
		t.Fatalf("%d words for %d instructions", len(words), len(text))
	}
	return words
}
