package listing

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/optimem/optimem/loader"
	"github.com/optimem/optimem/loader/exported"
	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/models"
)

// A port is an input or an output in a listing.
type port struct {
	loader.Port
	optional bool
}

// inputs returns what the program in the file takes, or the model that a folder's configuration or a GGUF file names;
// nothing where there is neither.
func (in *Listing) inputs() []port {
	if in.Program != nil {
		return ports(in.Program.Inputs())
	}
	if len(in.Config) == 0 && in.Format != loader.FormatGGUF {
		return nil
	}
	model, err := models.Build(in.Checkpoint, models.Options{})
	if err != nil {
		return nil // what is in the folder can be told all the same; why it does not run, run says
	}
	var all []port
	for _, p := range model.Inputs() {
		q := port{loader.Port{Name: p.Name, Type: "Tensor", DType: p.DType.String()}, p.Optional}
		for i, n := range p.Shape {
			dim := strconv.Itoa(n)
			if n < 0 {
				dim = p.Dims[i]
			}
			q.Shape = append(q.Shape, dim)
		}
		all = append(all, q)
	}
	return all
}

// outputs returns what the program in the file gives.
func (in *Listing) outputs() []port {
	if in.Program == nil {
		return nil
	}
	return ports(in.Program.Outputs())
}

func ports(list []loader.Port) []port {
	all := make([]port, len(list))
	for i, p := range list {
		all[i].Port = p
	}
	return all
}

// torchVersion returns the PyTorch that wrote the file, "" where the file does not tell.
func (in *Listing) torchVersion() string {
	if in.Program == nil || in.Program.Exported == nil {
		return ""
	}
	return in.Program.Exported.TorchVersion
}

// A symbolRange says which sizes a symbol in the shape of an input may stand for; an open end is nil.
type symbolRange struct {
	Symbol string `json:"symbol"`
	Min    *int64 `json:"min"`
	Max    *int64 `json:"max"`
}

func (in *Listing) ranges() []symbolRange {
	if in.Program == nil || in.Program.Exported == nil {
		return nil
	}
	var ranges []symbolRange
	for _, r := range in.Program.Exported.Ranges {
		s := symbolRange{Symbol: r.Symbol}
		if r.Min != math.MinInt64 {
			s.Min = &r.Min
		}
		if r.Max != math.MaxInt64 {
			s.Max = &r.Max
		}
		ranges = append(ranges, s)
	}
	return ranges
}

// addProgram adds what a program tells of the modules that it was made from.
func (t *Tree) addProgram(p *loader.Program) {
	switch {
	case p == nil:
	case p.Exported != nil && p.Exported.Graph != nil:
		t.addFrames(p.Exported.Graph)
	case p.Script != nil && p.Script.Root != nil:
		t.addObject(p.Script.Root, "", make(map[*script.Object]bool))
	}
}

// setClass gives a module its class; the first that is told counts.
func (t *Tree) setClass(path, class string) bool {
	m := &t.modules[t.At(path)]
	if m.path != path {
		return false // beyond the bounds of the tree
	}
	if m.class == "" {
		m.class = class
	}
	return true
}

// addFrames takes the modules from the stacks of an exported graph's nodes.
func (t *Tree) addFrames(g *exported.Graph) {
	var last *exported.Frame
	for _, n := range g.Nodes {
		if len(n.Modules) == 0 || &n.Modules[0] == last {
			continue // the nodes of one module share their stack
		}
		last = &n.Modules[0]
		for _, f := range n.Modules {
			path, _, _ := strings.Cut(f.Path, "@") // a second call of the same module
			t.setClass(path, f.Class)
		}
	}
}

// addObject takes the modules from the objects of a TorchScript archive. A module that is in several places is told of
// where it is first.
func (t *Tree) addObject(o *script.Object, path string, seen map[*script.Object]bool) {
	if seen[o] || !t.setClass(path, scriptClass(o.Class)) {
		return
	}
	seen[o] = true
	for _, a := range o.Attributes {
		if child, ok := a.Value.(*script.Object); ok {
			t.addObject(child, strings.TrimPrefix(path+"."+a.Name, "."), seen)
		}
	}
}

var mangled = regexp.MustCompile(`\b___torch_mangle_\d+\.`)

// scriptClass returns the name of the Python class that a TorchScript class was made from.
func scriptClass(name string) string {
	return mangled.ReplaceAllString(strings.TrimPrefix(name, "__torch__."), "")
}
