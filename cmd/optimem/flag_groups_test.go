//go:build !files

package main

import (
	"bytes"
	"cmp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/optimem/optimem/cmd/optimem/internal/command"
)

// TestFlagsAreGrouped: every flag of the commands that plan or run has a heading, help on one line, and is listed once.
func TestFlagsAreGrouped(t *testing.T) {
	shared := strings.Fields("mode device memory assert-peak host-memory swap swap-folder top-socket capacity max-layer-size arch input shape batch dump precision exact " +
		"batch-axis preprocess threads seed runs verify json verbose quiet open-memory lora adapter")
	for which, own := range map[string]string{
		"run": "output top labels trace snapshot memory-report report-device stages split-at stage-token tls-ca link even-if-slower", "bench": "trace snapshot memory-report report-device",
		"plan": "context sequences kv trace machines split-at link link-latency", "profile": "html depth columns sort every trace snapshot memory-report report-device",
	} {
		var out, errs bytes.Buffer
		if code := doMain([]string{which, "--help"}, &out, &errs); code != 0 || errs.Len() > 0 {
			t.Fatalf("%s: exit code %d, %s", which, code, &errs)
		}
		_, help, _ := strings.Cut(out.String(), "\nInputs:\n")
		heading := command.InputGroup
		listed := make(map[string]string)
		for line := range strings.SplitSeq(help, "\n") {
			if !strings.HasPrefix(line, " ") {
				heading = cmp.Or(strings.TrimSuffix(line, ":"), heading)
				continue
			}
			if n := utf8.RuneCountInString(line); n > 112 {
				t.Errorf("%s: a line of %d columns: %s", which, n, line)
			}
			_, name, ok := strings.Cut(line, "--")
			if !ok {
				t.Errorf("%s: a line without a flag: %s", which, line)
				continue
			}
			name, _, _ = strings.Cut(name, " ")
			if listed[name] != "" {
				t.Errorf("%s: --%s is listed twice", which, name)
			}
			listed[name] = heading
		}
		for _, name := range append(strings.Fields(own), shared...) {
			if h := listed[name]; h == "" || h == "Others" || h == "Flags" {
				t.Errorf("%s: --%s is under %q", which, name, h)
			}
		}
		if listed["help"] != "Others" || len(listed) != len(shared)+len(strings.Fields(own))+1 {
			t.Errorf("%s: %d flags: %v", which, len(listed), listed)
		}
	}
}
