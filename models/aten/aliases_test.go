package aten_test

import (
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/optimem/optimem/device/devicetest"
	"github.com/optimem/optimem/graph"
	"github.com/optimem/optimem/models/aten"
	"github.com/optimem/optimem/models/internal/zoo"
)

// sharedCalls is what testdata/make_aliases.py wrote: of the recorded calls, by family and number, the memory that results
// share, as pairs of a result and an argument's memory, and the memories that are changed.
type sharedCalls struct {
	Calls   map[string][2]json.RawMessage
	Unknown []string
}

// TestSharedMemory: the results of calls are in the memory of an argument where PyTorch's are, and nowhere else, since a later
// write to one changes the other; and calls that write to nothing leave their arguments as they are.
func TestSharedMemory(t *testing.T) {
	var recorded sharedCalls
	err := zoo.Unzip("testdata/aliases.json.gz", func(r io.Reader) error { return json.NewDecoder(r).Decode(&recorded) })
	if err != nil {
		t.Fatal(err)
	}
	cases, err := devicetest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		parts := strings.Split(c.Name, "/")
		key := parts[0] + "/" + parts[len(parts)-1]
		if slices.Contains(recorded.Unknown, key) {
			continue
		}
		shared, changed, err := aten.SharedMemory(graph.Standard(), c.Target, c.Args)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		wantShared, wantChanged := make(map[int]string), []int{}
		if call, ok := recorded.Calls[key]; ok {
			var pairs [][2]int
			if err := json.Unmarshal(call[0], &pairs); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(call[1], &wantChanged); err != nil {
				t.Fatal(err)
			}
			for _, p := range pairs {
				wantShared[p[0]] = strconv.Itoa(p[1])
			}
		}
		for i, out := range c.Outputs {
			if n, _ := out.Layout.NumElements(); n > 0 && shared[i] != wantShared[i] {
				t.Errorf("%s%v: result %d is in memory %q, PyTorch's in %q", c.Name, c.Args, i, shared[i], wantShared[i])
			}
		}
		for name, is := range changed {
			n, _ := strconv.Atoi(name)
			want := slices.Contains(wantChanged, n)
			inPlace := strings.HasSuffix(strings.Split(c.Target, ".")[3], "_") // which may write what is there already
			if is && !want && !inPlace || want && !is {
				t.Errorf("%s%v: memory %s is changed: %v, by PyTorch %v", c.Name, c.Args, name, is, want)
			}
		}
	}
}
