// Command mutants plants mistakes in the packages of this module, one at a time, runs the tests that are nearest and says
// which mistakes they noticed. A mistake that no test notices is a promise that nothing keeps.
//
// The mistakes come from the committed lists, one for each package, which grow with every defect that a user finds
// ([parseList] has their form), or, with -operators N, from N operators drawn for a package by the types of what they change
// ([operators]). Nothing in the tree is written: the go command gets the changed file as an overlay.
//
//	go run ./internal/mutants                          # every list
//	go run ./internal/mutants plan pager               # two of them
//	go run ./internal/mutants -run 'offset' runtime    # mistakes whose title matches
//	go run ./internal/mutants -operators 30 -seed 7 -tests '-short ./plan' plan
//
// It does not know what the code is for: whether a mistake matters is said by who lists it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// listDir holds the lists, seen from the root of the module.
const listDir = "internal/mutants/lists"

type options struct {
	packages  []string
	title     *regexp.Regexp
	operators int
	seed      uint64
	tests     string
	least     float64
	timeout   time.Duration
	output    string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	title := flags.String("run", "", "only mistakes whose title matches this `expression`")
	flags.IntVar(&o.operators, "operators", 0, "instead of the lists, plant `N` operators drawn for the packages named")
	flags.Uint64Var(&o.seed, "seed", 1, "which operators are drawn")
	flags.StringVar(&o.tests, "tests", "", "`arguments` of go test for operators, such as '-short ./plan'")
	flags.Float64Var(&o.least, "least", 95, "fail if less than `percent` of a package's mistakes are found")
	flags.DurationVar(&o.timeout, "timeout", 4*time.Minute, "a run of tests that takes longer has noticed")
	flags.StringVar(&o.output, "o", "", "append what is printed to this `file`, too")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	expression, err := regexp.Compile(*title)
	if err != nil {
		return o, err
	}
	o.title, o.packages = expression, flags.Args()
	if o.operators > 0 && (len(o.packages) != 1 || o.tests == "") {
		return o, errors.New("-operators takes one package, and -tests")
	}
	return o, nil
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	var out io.Writer = os.Stdout
	if o.output != "" {
		file, err := os.OpenFile(o.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = io.MultiWriter(os.Stdout, file)
	}
	lists, err := chosen(root, o)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	r := &runner{root: root, scratch: scratch, timeout: o.timeout, clean: map[string]error{}}
	var poor []string
	for _, l := range lists {
		s, err := r.score(ctx, out, l, o.title)
		if err != nil {
			return err
		}
		if s.percent() < o.least {
			poor = append(poor, l.name)
		}
	}
	if len(poor) > 0 {
		return fmt.Errorf("less than %g %% found: %s", o.least, strings.Join(poor, ", "))
	}
	return nil
}

// chosen returns the lists that are asked for, in the order of their names.
func chosen(root string, o options) ([]list, error) {
	if o.operators > 0 {
		l, err := drawn(root, o.packages[0], o.operators, o.seed)
		l.tests = strings.Fields(o.tests)
		return []list{l}, err
	}
	lists, err := readLists(os.DirFS(root))
	if err != nil || len(o.packages) == 0 {
		return lists, err
	}
	byName := make(map[string]list)
	for _, l := range lists {
		byName[l.name] = l
	}
	lists = nil
	for _, name := range o.packages {
		l, ok := byName[strings.ReplaceAll(strings.Trim(name, "./"), "/", "-")]
		if !ok {
			return nil, fmt.Errorf("no list for %s in %s", name, listDir)
		}
		lists = append(lists, l)
	}
	return lists, nil
}

func readLists(fsys fs.FS) ([]list, error) {
	names, err := fs.Glob(fsys, listDir+"/*.txt")
	if err != nil {
		return nil, err
	}
	var lists []list
	for _, name := range names {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		l, err := parseList(strings.TrimSuffix(filepath.Base(name), ".txt"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s:%w", name, err)
		}
		lists = append(lists, l)
	}
	return lists, nil
}

// moduleRoot is the nearest directory above with a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod here or above")
		}
		dir = parent
	}
}
