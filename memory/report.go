// Package memory reports what a session's memory is for, byte by byte: every weight, constant and activation on a
// device with its size there, and the rest by name, so that the sum equals the device's own counter.
//
// Nothing is sampled: the plan says where everything lies, and the allocators say what is held. The package does not
// know how memory is allocated or a pass is run.
//
//	now, err := session.Memory(ctx)    // what is held between passes
//	most := session.PlannedMemory(plan) // what a pass will take at its peak, before it runs
//	fmt.Print(most.Text(memory.Verbose))
//	err = memory.WriteSnapshot(file, plan)        // for PyTorch's viewer
package memory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/internal/ascii"
)

// A Report is what memory is for at one moment.
type Report struct {
	// Moment says which one: "now", or "peak" with the op that runs then.
	Moment  string   `json:"moment"`
	Devices []Device `json:"devices"`
}

// A Device is the memory of a device, or of the host beside devices with memory of their own.
type Device struct {
	Name string `json:"name"`
	// BudgetBytes is what plans may take of it, 0 for no bound.
	BudgetBytes int64 `json:"budget_bytes"`
	// HeldBytes is what the device itself counts as allocated; of a plan, what it will count. The storages and the rest add up
	// to it. DriverBytes is what its driver says is in use besides: its context, and other processes; 0 where it does not say.
	HeldBytes   int64     `json:"held_bytes"`
	DriverBytes int64     `json:"driver_bytes"`
	Storages    []Storage `json:"storages"`
	Rest        []Rest    `json:"rest"`
}

// The kinds of storages.
const (
	Weight     = "weight"
	Paged      = "paged weight"
	Packed     = "packed weight"
	State      = "buffer"
	Constant   = "constant"
	Cache      = "cache"
	Input      = "input"
	Activation = "activation"
)

// A Storage is a run of bytes on a device that has a name.
type Storage struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Path is the module that made an activation.
	Path  string `json:"path,omitempty"`
	Shape []int  `json:"shape"`
	DType string `json:"dtype"`
	// Bytes is what it takes on the device, 0 where it lies within SharedWith. UsedBytes is what its elements take as the
	// checkpoint has them: less where bytes are rounded up, another size where the device packs them into a form of its own.
	Bytes      int64  `json:"bytes"`
	UsedBytes  int64  `json:"used_bytes"`
	SharedWith string `json:"shared_with,omitempty"`
}

// A Rest is memory that is no storage's.
type Rest struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// StorageBytes returns the sum of the storages.
func (d *Device) StorageBytes() int64 {
	var n int64
	for i := range d.Storages {
		n += d.Storages[i].Bytes
	}
	return n
}

// RestBytes returns the sum of the rest.
func (d *Device) RestBytes() int64 {
	var n int64
	for _, r := range d.Rest {
		n += r.Bytes
	}
	return n
}

// rest adds memory that is no storage's, if there is any.
func (d *Device) rest(name string, bytes int64) {
	if bytes != 0 {
		d.Rest = append(d.Rest, Rest{name, bytes})
	}
}

// Of returns the report of the devices of a name alone: "cuda" is all of "cuda:0" and "cuda:1". It has none where there is none
// of that name.
func (r *Report) Of(name string) *Report {
	one := &Report{Moment: r.Moment}
	for _, d := range r.Devices {
		if d.Name == name || strings.HasPrefix(d.Name, name+":") {
			one.Devices = append(one.Devices, d)
		}
	}
	return one
}

// A Detail is how much a text says.
type Detail int

// The details: the largest storages, or all of them and those that lie within others.
const (
	Brief Detail = iota
	Verbose
)

// briefStorages is how many storages of a device a brief text lists.
const briefStorages = 10

// Text writes the report as tables for a terminal.
func (r *Report) Text(detail Detail) string {
	var b strings.Builder
	for i := range r.Devices {
		d := &r.Devices[i]
		if i > 0 && d.HeldBytes == 0 && len(d.Storages)+len(d.Rest) == 0 {
			continue
		}
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s, %s: %s held", d.Name, ascii.Printable(r.Moment), ascii.FormatSize(d.HeldBytes))
		if d.BudgetBytes > 0 {
			fmt.Fprintf(&b, " of a budget of %s", ascii.FormatSize(d.BudgetBytes))
		}
		if d.DriverBytes > 0 {
			fmt.Fprintf(
				&b, "; the driver counts %s besides, its context and other processes", ascii.FormatSize(d.DriverBytes),
			)
		}
		b.WriteString("\n")
		if len(d.Storages)+len(d.Rest) > 0 || d.HeldBytes > 0 {
			b.WriteString(d.table(detail).String())
		}
	}
	return b.String()
}

func (d *Device) table(detail Detail) *ascii.Table {
	t := ascii.NewTable(
		ascii.Left("storage"), ascii.Left("kind"), ascii.Left("shape"), ascii.Left("dtype"), ascii.Right("bytes"),
		ascii.Right("used"),
	)
	list := d.Storages
	var more Storage
	if detail == Brief {
		list = slices.DeleteFunc(slices.Clone(list), func(s Storage) bool { return s.SharedWith != "" })
		slices.SortStableFunc(list, func(a, b Storage) int { return int(min(max(b.Bytes-a.Bytes, -1), 1)) })
		if n := len(list); n > briefStorages {
			for _, s := range list[briefStorages:] {
				more.Bytes, more.UsedBytes = more.Bytes+s.Bytes, more.UsedBytes+s.UsedBytes
			}
			more.Name = fmt.Sprintf("… and %d more", n-briefStorages)
			list = list[:briefStorages]
		}
	}
	for _, s := range list {
		name := s.Name
		if s.SharedWith != "" {
			name += " (->" + s.SharedWith + ")"
		}
		t.Row(name, s.Kind, fmt.Sprint(s.Shape), s.DType, exact(s.Bytes), exact(s.UsedBytes))
	}
	if more.Name != "" {
		t.Row(more.Name, "", "", "", exact(more.Bytes), exact(more.UsedBytes))
	}
	for _, r := range d.Rest {
		t.Row("("+r.Name+")", "", "", "", exact(r.Bytes), "")
	}
	total := d.StorageBytes() + d.RestBytes()
	t.Row("total", "", "", "", exact(total), "")
	if n := d.HeldBytes - total; n != 0 {
		t.Row("what the device counts differs by", "", "", "", exact(n), "")
	}
	return t
}

// exact writes a number of bytes in full: a report adds up.
func exact(n int64) string {
	text := fmt.Sprint(n)
	var b strings.Builder
	for i, c := range text {
		if i > 0 && (len(text)-i)%3 == 0 && text[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}
