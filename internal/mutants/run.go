package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A verdict is what became of one mistake.
type verdict string

const (
	found      verdict = "found"
	missed     verdict = "MISSED"
	unbuilt    verdict = "does not build" // the compiler noticed: the list wants another mistake
	equivalent verdict = "equivalent"
)

// A runner plants mistakes and runs tests.
type runner struct {
	root    string
	scratch string
	timeout time.Duration
	clean   map[string]error // what tests say without a mistake, by their arguments
}

// A score counts the verdicts of a list.
type score struct{ found, missed, unbuilt, equivalent int }

// percent is how many of the mistakes that a test could notice were found.
func (s score) percent() float64 {
	planted := s.found + s.missed + s.unbuilt
	if planted == 0 {
		return 100
	}
	return 100 * float64(s.found) / float64(planted)
}

// score plants the mistakes of a list whose title matches, one after the other, and prints a line for each and one for all.
func (r *runner) score(ctx context.Context, out io.Writer, l list, title *regexp.Regexp) (score, error) {
	var s score
	begun := time.Now()
	fmt.Fprintf(out, "%s, %s\n", l.name, begun.Format(time.DateOnly))
	for _, m := range l.mutants {
		if !title.MatchString(m.title) {
			continue
		}
		v, by, err := equivalent, m.equivalent, error(nil)
		if m.equivalent == "" {
			tests := m.tests
			if len(tests) == 0 {
				tests = l.tests
			}
			v, by, err = r.plant(ctx, m, tests)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %s: %w", l.name, m.title, err)
		}
		switch v {
		case found:
			s.found++
		case missed:
			s.missed++
		case unbuilt:
			s.unbuilt++
		case equivalent:
			s.equivalent++
		}
		fmt.Fprintf(out, "  %-10s %s  [%s]\n", v, m.title, by)
	}
	fmt.Fprintf(out, "%s: %d of %d found, %.1f %%; %d equivalent; %.0f s\n\n",
		l.name, s.found, s.found+s.missed+s.unbuilt, s.percent(), s.equivalent, time.Since(begun).Seconds())
	return s, nil
}

// plant runs tests with a mistake in place. by is the test that noticed.
func (r *runner) plant(ctx context.Context, m mutant, tests []string) (v verdict, by string, err error) {
	read := func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(r.root, filepath.FromSlash(name))) }
	texts, err := m.changed(read)
	if err != nil {
		return "", "", err
	}
	overlay, err := r.overlay(texts)
	if err != nil {
		return "", "", err
	}
	begun := time.Now()
	output, failed, err := r.goTest(ctx, append([]string{"-overlay", overlay}, tests...))
	if err := r.forget(begun); err != nil {
		return "", "", err
	}
	switch {
	case err != nil:
		return "", "", err
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return unbuilt, firstLine(output, regexp.MustCompile(`\.go:\d+`)), nil
	case !failed:
		return missed, strings.Join(tests, " "), nil
	}
	// What fails without the mistake has noticed nothing.
	if err := r.cleanly(ctx, tests); err != nil {
		return "", "", err
	}
	return found, noticedBy(output), nil
}

// forget removes what rapid wrote of failures since then, which it would try first in later runs.
func (r *runner) forget(begun time.Time) error {
	return filepath.WalkDir(r.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".fail" ||
			!strings.Contains(filepath.ToSlash(path), "/testdata/rapid/") {
			return err
		}
		info, err := d.Info()
		if err != nil || info.ModTime().Before(begun.Truncate(time.Second)) {
			return err
		}
		return os.Remove(path)
	})
}

// cleanly reports whether tests pass as the tree is.
func (r *runner) cleanly(ctx context.Context, tests []string) error {
	key := strings.Join(tests, " ")
	if err, known := r.clean[key]; known {
		return err
	}
	output, failed, err := r.goTest(ctx, tests)
	if err == nil && failed {
		err = fmt.Errorf("go test %s fails without a mistake:\n%s", key, output)
	}
	r.clean[key] = err
	return err
}

// overlay writes what the go command is to read in place of files, and returns the name of the file that tells.
func (r *runner) overlay(texts map[string]string) (string, error) {
	var o struct{ Replace map[string]string }
	o.Replace = make(map[string]string)
	for i, name := range slices.Sorted(maps.Keys(texts)) {
		path := filepath.Join(r.scratch, fmt.Sprintf("%d-%s", i, filepath.Base(name)))
		if err := os.WriteFile(path, []byte(texts[name]), 0o644); err != nil {
			return "", err
		}
		o.Replace[filepath.Join(r.root, filepath.FromSlash(name))] = path
	}
	text, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	path := filepath.Join(r.scratch, "overlay.json")
	return path, os.WriteFile(path, text, 0o644)
}

// goTest runs tests until the first that fails.
func (r *runner) goTest(ctx context.Context, args []string) (output string, failed bool, err error) {
	args = slices.Concat(
		[]string{"test", "-vet=off", "-failfast", "-timeout", r.timeout.String()}, args, r.quickly(args),
	)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.root
	bytes, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", false, ctx.Err()
	case errors.As(err, &exit):
		return string(bytes), true, nil
	case err != nil:
		return "", false, err
	}
	return string(bytes), false, nil
}

// quickly returns what keeps rapid from looking for a smaller example of a failure, for half a minute, and from writing it
// down; nothing where one of the packages does not use rapid, whose tests would not know these flags.
func (r *runner) quickly(args []string) []string {
	for _, arg := range args {
		folder, ok := strings.CutPrefix(arg, "./")
		if !ok {
			continue
		}
		uses := false
		files, _ := filepath.Glob(filepath.Join(r.root, filepath.FromSlash(folder), "*_test.go")) // the pattern is a good one
		for _, name := range files {
			text, err := os.ReadFile(name)
			uses = uses || err == nil && strings.Contains(string(text), `"pgregory.net/rapid"`)
		}
		if !uses {
			return nil
		}
	}
	return []string{"-rapid.nofailfile", "-rapid.shrinktime=1ms"}
}

var (
	failedTest = regexp.MustCompile(`--- FAIL: (\S+)`)
	endedTest  = regexp.MustCompile(`^(panic: |fatal error: |BUG: |signal: |SIG)|running tests:|test timed out`)
)

// noticedBy names the test that failed, the innermost where there are several, or how the process ended.
func noticedBy(output string) string {
	best := ""
	for _, match := range failedTest.FindAllStringSubmatch(output, -1) {
		if best == "" || strings.HasPrefix(match[1], best+"/") {
			best = match[1]
		}
	}
	if best == "" {
		best = firstLine(output, endedTest)
	}
	return best
}

func firstLine(output string, pattern *regexp.Regexp) string {
	for line := range strings.Lines(output) {
		if pattern.MatchString(line) {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(strings.SplitN(output, "\n", 2)[0])
}
