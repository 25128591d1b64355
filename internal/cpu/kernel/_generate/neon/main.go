// Command neon writes the arm64 assembly of package kernel, one file per family of kernels. go generate in the
// package's folder runs it once for each family.
//
//	go run ./neon -family gemm -out ../gemm_arm64.s -stubs ../gen_gemm_arm64.go -pkg kernel
//
// Go's assembler has loads, stores, moves and integer instructions but lacks most vector arithmetic, which is encoded
// here and written as words with Arm's notation beside them.
//
// Kernels work on eight lanes, two registers of four floats. Their names end in the width of a register in bits, 128.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// families has what writes each family.
var families = map[string]func(*file){
	"bytes":   bytesFamily,
	"codes":   codesFamily,
	"encoded": encodedFamily,
	"gemm":    gemmFamily,
	"half":    halfFamily,
	"vector":  vectorFamily,
	"conv":    convFamily,
}

func main() {
	family := flag.String("family", "", "the family of kernels to write")
	out := flag.String("out", "", "the file of assembly")
	stubs := flag.String("stubs", "", "the file of declarations")
	pkg := flag.String("pkg", "", "the package")
	flag.Parse()
	write, ok := families[*family]
	if !ok {
		fmt.Fprintf(os.Stderr, "no family %q: have %q\n", *family, slices.Sorted(maps.Keys(families)))
		os.Exit(2)
	}
	f := newFile(*pkg)
	write(f)
	command := "go run ./neon " + strings.Join(os.Args[1:], " ")
	for path, text := range map[string][]byte{*out: f.assembly(command), *stubs: f.declarations(command)} {
		if err := os.WriteFile(path, text, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
