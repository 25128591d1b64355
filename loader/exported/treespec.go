package exported

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/strictjson"
)

// A TreeSpec is the structure of nested arguments or results, whose leaves are values in a flat list.
type TreeSpec struct {
	// Type is the container's registered name ("builtins.tuple", "builtins.dict", a class), "" for a leaf.
	Type string
	// Names are the keys or fields of the children, nil where they have only positions.
	Names    []string
	Children []*TreeSpec
}

// IsLeaf reports whether the tree is one value.
func (t *TreeSpec) IsLeaf() bool { return t.Type == "" }

// Leaves returns the number of values.
func (t *TreeSpec) Leaves() int {
	if t.IsLeaf() {
		return 1
	}
	n := 0
	for _, c := range t.Children {
		n += c.Leaves()
	}
	return n
}

// key returns how child i is named below its parent.
func (t *TreeSpec) key(i int) string {
	if i < len(t.Names) {
		return t.Names[i]
	}
	return strconv.Itoa(i)
}

// paths appends the path of every leaf, its keys joined by dots. named tells the leaves that have a name somewhere on
// their path from those that have only positions.
func (t *TreeSpec) paths(prefix string, named bool, leaf func(path string, named bool)) {
	if t.IsLeaf() {
		leaf(prefix, named)
		return
	}
	for i, c := range t.Children {
		path := t.key(i)
		if prefix != "" {
			path = prefix + "." + path
		}
		c.paths(path, named || t.Names != nil, leaf)
	}
}

var leafSpec = &TreeSpec{}

// A pendingSpec is the text of a tree spec, which is parsed when the fields of named tuples are known: they come
// later in the document.
type pendingSpec struct {
	text  []byte
	place string
	to    **TreeSpec
}

// treeSpec reads a string that holds the JSON of a tree spec, "" for none.
func (d *decoder) treeSpec(to **TreeSpec) error {
	if null, err := d.IsNull(); err != nil || null {
		return err
	}
	text, err := d.Text()
	if err != nil || len(text) == 0 {
		return err
	}
	place := d.Pointer()
	if err := d.charge(1, int64(len(text)+len(place))+64); err != nil {
		return err
	}
	d.specs = append(d.specs, pendingSpec{text: bytes.Clone(text), place: place, to: to})
	return nil
}

func (d *decoder) resolveSpecs() error {
	for _, pending := range d.specs {
		s := specDecoder{
			Decoder: strictjson.NewBytesDecoder(pending.text, strictjson.Options{
				Meter: d.opts.Meter, Depth: d.opts.Depth, NonFinite: true,
			}),
			outer: d,
		}
		spec, err := s.document()
		if err != nil {
			var f *fault.Error
			if errors.As(err, &f) {
				return fault.New(f.Class, -1, "%s: a tree spec: %v", pending.place, err)
			}
			return err
		}
		*pending.to = spec
	}
	d.specs = nil
	return nil
}

type specDecoder struct {
	*strictjson.Decoder
	outer *decoder
}

// document reads the pair of the protocol's number and the tree. Files of PyTorch 2.1 may have other protocols that
// are not used here.
func (s *specDecoder) document() (spec *TreeSpec, err error) {
	err = s.Array(func(i int) (err error) {
		switch i {
		case 0:
			var protocol int64
			if protocol, err = s.Int(); err == nil && protocol != 1 {
				err = s.Errorf(fault.ErrUnsupported, "tree spec protocol %d", protocol)
			}
		case 1:
			spec, err = s.tree()
		}
		return err
	})
	if err == nil {
		err = s.End()
	}
	if err == nil && spec == nil {
		err = s.Errorf(fault.ErrFormat, "no tree")
	}
	return spec, err
}

func (s *specDecoder) tree() (*TreeSpec, error) {
	t := &TreeSpec{}
	var context string
	err := s.Object(func(key string) (err error) {
		switch key {
		case "type":
			t.Type, err = s.textOrNull()
		case "context":
			context, err = s.textOrNull()
		case "children_spec":
			err = s.Array(func(int) error {
				if err := s.outer.opts.Meter.Charge(16); err != nil {
					return err
				}
				child, err := s.tree()
				t.Children = append(t.Children, child)
				return err
			})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if t.IsLeaf() {
		if len(t.Children) > 0 {
			return nil, s.Errorf(fault.ErrFormat, "a leaf with children")
		}
		return leafSpec, nil
	}
	if err := s.outer.opts.Meter.Charge(96); err != nil {
		return nil, err
	}
	t.Names, err = s.names(t.Type, context, len(t.Children))
	return t, err
}

// textOrNull reads a string, "" for null. Contexts may be any JSON; those that are no strings are left out.
func (s *specDecoder) textOrNull() (string, error) {
	k, err := s.Kind()
	if err != nil || k != strictjson.String {
		return "", err
	}
	return s.String()
}

// names finds the names of n children in the context that their container was registered with: the keys of a dict,
// the type of a named tuple, the fields of a data class.
func (s *specDecoder) names(typ, context string, n int) ([]string, error) {
	switch typ {
	case "builtins.tuple", "builtins.list", "collections.deque":
		return nil, nil
	case "collections.namedtuple":
		if names := s.outer.named[context]; len(names) == n {
			return names, nil
		}
		return nil, nil
	}
	if n == 0 || context == "" || (context[0] != '[' && context[0] != '{') {
		return nil, nil
	}
	c := specDecoder{
		Decoder: strictjson.NewBytesDecoder([]byte(context), strictjson.Options{
			Meter: s.outer.opts.Meter, Depth: s.outer.opts.Depth, NonFinite: true,
		}),
		outer: s.outer,
	}
	var names []string
	if err := c.keys(n, &names); err != nil {
		if errors.Is(err, fault.ErrLimit) {
			return nil, err
		}
		return nil, nil // a class may write its context as it likes
	}
	return names, nil
}

// keys sets names to the first array of n strings or integers in the next value, from the outside in.
func (s *specDecoder) keys(n int, names *[]string) error {
	k, err := s.Kind()
	if err != nil {
		return err
	}
	switch k {
	case strictjson.Object:
		return s.Object(func(string) error { return s.keys(n, names) })
	case strictjson.Array:
		var found []string
		plain := true
		err := s.Array(func(int) error {
			k, err := s.Kind()
			if err != nil {
				return err
			}
			var key string
			switch k {
			case strictjson.String:
				key, err = s.String()
			case strictjson.Number:
				key, err = s.Number()
			default:
				plain = false
				return s.keys(n, names)
			}
			if err == nil {
				err = s.outer.opts.Meter.Charge(32)
			}
			found = append(found, key)
			return err
		})
		if err == nil && plain && len(found) == n && *names == nil {
			*names = found
		}
		return err
	}
	return s.Skip()
}
