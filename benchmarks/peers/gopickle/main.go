// Command gopickle opens checkpoints with gopickle's own PyTorch reader, on request, so that a driver can interleave it
// with other readers. That reader has no lazy mode: it reads every weight.
//
// It knows gopickle and the clock, and nothing of package loader.
//
//	gopickle serve          answer requests on standard input, one a line: "open PATH", with nanoseconds and a count
//	gopickle open PATH      open one file and say how many entries its state dict has
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/nlpodyssey/gopickle/pytorch"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gopickle:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		return serve()
	case len(args) == 2 && args[0] == "open":
		n, err := open(args[1])
		fmt.Println(n)
		return err
	}
	return fmt.Errorf("usage: gopickle serve | gopickle open FILE")
}

func serve() error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		path, ok := strings.CutPrefix(lines.Text(), "open ")
		if !ok {
			return fmt.Errorf("what is %q?", lines.Text())
		}
		start := time.Now()
		n, err := open(path)
		if err != nil {
			return err
		}
		fmt.Println(time.Since(start).Nanoseconds(), n)
	}
	return lines.Err()
}

// open returns the number of entries in the file's state dict.
func open(path string) (int, error) {
	v, err := pytorch.Load(path)
	if err != nil {
		return 0, err
	}
	dict, ok := v.(interface{ Len() int })
	if !ok {
		return 0, fmt.Errorf("%s holds a %T", path, v)
	}
	return dict.Len(), nil
}
