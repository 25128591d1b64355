package cells

import (
	"fmt"
	"strings"
)

// An UnsupportedError lists what a model needs and optimem lacks, all of it.
type UnsupportedError struct {
	// What is said when it is the model as a whole.
	What string
	// Missing lists ops or classes, each once, with the first place that needs it.
	Missing []Missing
	// Hint says what would help.
	Hint string
}

// A Missing is an op or class that optimem lacks.
type Missing struct {
	Name string
	// Path and Source are those of the first use, Uses counts all.
	Path, Source string
	Uses         int
	// Reason says what of it is lacking, where it is not all.
	Reason string
	// Class says that it is a class or a hook of modules, not an op.
	Class bool
}

// Error lists everything, one to a line when there are several.
func (e *UnsupportedError) Error() string {
	if len(e.Missing) == 0 {
		return "unsupported: " + e.What
	}
	lines := make([]string, len(e.Missing))
	for i, m := range e.Missing {
		lines[i] = m.Name
		if m.Path != "" {
			lines[i] += " in " + m.Path
		}
		if m.Source != "" {
			lines[i] += " (" + m.Source + ")"
		}
		if m.Uses > 1 {
			lines[i] += fmt.Sprintf(", %d uses", m.Uses)
		}
		if why := m.Why(); why != "" {
			lines[i] += ": " + why
		}
	}
	return "unsupported: " + strings.Join(lines, "\n  ")
}
