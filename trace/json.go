package trace

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// args are what a viewer shows of an event besides, in order.
type args []arg

type arg struct {
	name  string
	value any // int64, float64 or string
}

// metadata writes an event that names a process or a thread.
func (t *Trace) metadata(what string, process, thread int, more args) {
	t.begin(what, "M", process, thread, 0)
	t.end(more)
}

// begin begins the line of an event.
func (t *Trace) begin(name, phase string, process, thread int, at int64) {
	t.line = t.line[:0]
	if t.events > 0 {
		t.line = append(t.line, ',')
	}
	t.events++
	t.line = append(t.line, "\n{\"name\":"...)
	t.line = appendString(t.line, name)
	t.line = append(t.line, `,"ph":"`...)
	t.line = append(t.line, phase...)
	t.line = append(t.line, `","pid":`...)
	t.line = strconv.AppendInt(t.line, int64(process), 10)
	t.line = append(t.line, `,"tid":`...)
	t.line = strconv.AppendInt(t.line, int64(thread), 10)
	t.line = append(t.line, `,"ts":`...)
	t.line = appendMicroseconds(t.line, at)
}

// end ends the line of an event and writes it. The writer keeps the first error.
func (t *Trace) end(more args) {
	for i, a := range more {
		if i == 0 {
			t.line = append(t.line, `,"args":{`...)
		} else {
			t.line = append(t.line, ',')
		}
		t.line = appendString(t.line, a.name)
		t.line = append(t.line, ':')
		switch v := a.value.(type) {
		case int64:
			t.line = strconv.AppendInt(t.line, v, 10)
		case float64:
			t.line = strconv.AppendFloat(t.line, v, 'f', 3, 64)
		case string:
			t.line = appendString(t.line, v)
		default:
			panic(fmt.Sprintf("BUG: trace: %T", v))
		}
	}
	if len(more) > 0 {
		t.line = append(t.line, '}')
	}
	t.line = append(t.line, '}')
	_, _ = t.w.Write(t.line)
}

// maxText bounds names, which come from files.
const maxText = 512

// appendString writes a string of JSON. Names come from an untrusted file, and need not be UTF-8.
func appendString(line []byte, s string) []byte {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic("BUG: trace: " + err.Error())
	}
	return append(line, text...)
}

// appendMicroseconds writes nanoseconds in the format's unit.
func appendMicroseconds(line []byte, n int64) []byte {
	line = strconv.AppendInt(line, n/1000, 10)
	line = append(line, '.')
	n %= 1000
	return append(line, byte('0'+n/100), byte('0'+n/10%10), byte('0'+n%10))
}
