package slots

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// A Trace is what passes needed, in order.
type Trace struct {
	// Layers are the layers by name, in the order in which they come first.
	Layers []string
	Visits []Visit
}

// A Visit is a pass through a layer, which is one of the trace's, and the experts that rows went through there, by id.
type Visit struct {
	Layer   int
	Rows    int
	Experts []int32
}

// What a trace may have at most. A larger one is refused.
const (
	MostLine    = 1 << 20
	MostLayers  = 4096
	MostNeeds   = 1 << 25
	MostExperts = 1 << 14
	mostRows    = 1 << 30
)

// A TraceError says what is wrong in a trace, and in which line, from 1 on.
type TraceError struct {
	Line int
	Msg  string
}

// Error names the line.
func (e *TraceError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Msg) }

// A line is one visit in a file.
type line struct {
	Layer   string  `json:"layer"`
	Rows    int     `json:"rows,omitempty"`
	Experts []int32 `json:"experts"`
}

// ReadTrace reads a trace: a JSON object {"layer", "rows", "experts"} a line. What is no trace is a [*TraceError], and
// so is one that is larger than can be; other errors are the reader's.
func ReadTrace(r io.Reader) (*Trace, error) {
	t := &Trace{}
	known := make(map[string]int)
	needs := 0
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), MostLine)
	for n := 1; s.Scan(); n++ {
		if len(s.Bytes()) == 0 {
			continue
		}
		fail := func(format string, args ...any) (*Trace, error) {
			return nil, &TraceError{n, fmt.Sprintf(format, args...)}
		}
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			return fail("no JSON object of a layer and its experts: %v", err)
		}
		if l.Layer == "" || len(l.Layer) > 1024 {
			return fail("a layer with a name of %d bytes", len(l.Layer))
		}
		if l.Rows < 0 || l.Rows > mostRows {
			return fail("%d rows", l.Rows)
		}
		slices.Sort(l.Experts)
		for i, e := range l.Experts {
			if e < 0 || e >= MostExperts {
				return fail("expert %d: there are up to %d", e, MostExperts)
			}
			if i > 0 && e == l.Experts[i-1] {
				return fail("expert %d twice", e)
			}
		}
		if needs += len(l.Experts); needs > MostNeeds {
			return fail("more than %d experts are needed in all", MostNeeds)
		}
		layer, ok := known[l.Layer]
		if !ok {
			if layer = len(t.Layers); layer == MostLayers {
				return fail("more than %d layers", MostLayers)
			}
			known[l.Layer] = layer
			t.Layers = append(t.Layers, l.Layer)
		}
		t.Visits = append(t.Visits, Visit{layer, l.Rows, slices.Clip(l.Experts)})
		if len(t.Visits) > MostNeeds/4 {
			return fail("more than %d passes through layers", MostNeeds/4)
		}
	}
	if err := s.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, &TraceError{len(t.Visits) + 1, fmt.Sprintf("more than %d bytes", MostLine)}
	} else if err != nil {
		return nil, err
	}
	return t, nil
}

// WriteVisit writes a pass through a layer as a line that [ReadTrace] reads.
func WriteVisit(w io.Writer, layer string, rows int, experts []int32) error {
	if experts == nil {
		experts = []int32{}
	}
	b, err := json.Marshal(line{layer, rows, experts})
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Experts returns how many experts the trace names of each layer at least: one more than the highest id.
func (t *Trace) Experts() []int {
	most := make([]int, len(t.Layers))
	for i := range t.Visits {
		v := &t.Visits[i]
		if n := len(v.Experts); n > 0 {
			most[v.Layer] = max(most[v.Layer], int(v.Experts[n-1])+1)
		}
	}
	return most
}
