package exported

import (
	"bytes"
	"strings"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/strictjson"
)

// What the values of a graph cost on the heap, slices and maps not counted.
const (
	nodeBytes     = 200
	argumentBytes = 64
	namedBytes    = 88
	metaBytes     = 144
	symIntBytes   = 16
)

// graphModule reads the graph, its signature and what is known of its modules. old is the signature of a file that
// has one of the oldest form.
func (d *decoder) graphModule(p *Program) (old *oldSignature, err error) {
	signed := false
	err = d.Object(func(key string) (err error) {
		switch key {
		case "graph":
			p.Graph, err = d.graph()
		case "signature":
			signed = true
			old, err = d.signature(p)
		case "module_call_graph":
			p.ModuleCalls, err = list(d, 48, d.moduleCall)
		case "treespec_namedtuple_fields":
			err = d.namedTuples()
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case p.Graph == nil:
		return nil, d.Errorf(fault.ErrFormat, "the graph module has no graph")
	case !signed:
		return nil, d.Errorf(fault.ErrFormat, "the graph module has no signature")
	}
	return old, nil
}

func (d *decoder) namedTuples() error {
	return d.Object(func(name string) error {
		return d.Object(func(key string) (err error) {
			if key == "field_names" {
				if err := d.charge(1, mapEntryBytes+24); err != nil {
					return err
				}
				d.named[name], err = d.strings()
			}
			return err
		})
	})
}

func (d *decoder) graph() (*Graph, error) {
	g := &Graph{}
	if err := d.charge(1, 512); err != nil {
		return nil, err
	}
	err := d.Object(func(key string) (err error) {
		switch key {
		case "inputs":
			g.Inputs, err = d.arguments()
		case "outputs":
			g.Outputs, err = d.arguments()
		case "nodes":
			g.Nodes, err = list(d, nodeBytes, d.node)
		case "tensor_values":
			g.TensorValues, err = dict(d, 8, d.tensorMeta)
		case "sym_int_values":
			g.SymInts, err = dict(d, 16, d.symInt)
		case "sym_float_values":
			g.SymFloats, err = dict(d, 16, d.symFloat)
		case "sym_bool_values":
			g.SymBools, err = dict(d, 16, d.symBool)
		case "custom_obj_values":
			g.CustomObjs, err = dict(d, 16, d.customObjClass)
		case "is_single_tensor_return":
			g.SingleTensorReturn, err = d.Bool()
		}
		return err
	})
	return g, err
}

func (d *decoder) customObjClass() (string, error) {
	_, class, err := d.customObj()
	return class, err
}

func (d *decoder) node() (n Node, err error) {
	err = d.Object(func(key string) (err error) {
		switch key {
		case "target":
			n.Target, err = d.String()
		case "name":
			n.Name, err = d.optionalString()
		case "inputs":
			n.Inputs, err = list(d, namedBytes, d.namedArgument)
		case "outputs":
			n.Outputs, err = d.arguments()
		case "metadata":
			err = d.metadata(&n)
		case "is_hop_single_tensor_return":
			if null, err := d.IsNull(); err != nil || null {
				return err
			}
			single, err := d.Bool()
			if n.Returns = ReturnsTuple; single {
				n.Returns = ReturnsTensor
			}
			return err
		}
		return err
	})
	if err == nil && n.Target == "" {
		err = d.Errorf(fault.ErrFormat, "a node without a target")
	}
	return n, err
}

func (d *decoder) namedArgument() (a NamedArgument, err error) {
	given := false
	err = d.Object(func(key string) (err error) {
		switch key {
		case "name":
			a.Name, err = d.String()
		case "arg":
			given = true
			a.Arg, err = d.argument()
		case "kind":
			var kind int64
			if kind, err = d.optionalInt(0); err == nil && kind >= int64(Positional) && kind <= int64(Keyword) {
				a.Kind = ArgumentKind(kind)
			}
		}
		return err
	})
	if err == nil && !given {
		err = d.Errorf(fault.ErrFormat, "an argument without a value")
	}
	return a, err
}

// metadata keeps of a node's metadata what optimem uses.
func (d *decoder) metadata(n *Node) error {
	return d.Object(func(key string) (err error) {
		switch key {
		case "nn_module_stack":
			n.Modules, err = d.moduleStack()
		case "stack_trace":
			n.Source, err = d.source()
		case "source_fn_stack":
			n.SourceFn, err = d.sourceFn()
		}
		return err
	})
}

// stringOrSkip reads a string into memory used again; ok is false for a value that is none.
func (d *decoder) stringOrSkip() (text []byte, ok bool, err error) {
	k, err := d.Kind()
	if err != nil {
		return nil, false, err
	}
	if k != strictjson.String {
		return nil, false, d.Skip()
	}
	text, err = d.Text()
	return text, err == nil, err
}

// moduleStack reads "key,path,class" entries that are separated by semicolons. Brackets within an entry hide commas.
func (d *decoder) moduleStack() ([]Frame, error) {
	text, ok, err := d.stringOrSkip()
	if err != nil || !ok || len(text) == 0 {
		return nil, err
	}
	if stack, ok := d.stacks[string(text)]; ok {
		return stack, nil
	}
	entries := strings.Count(string(text), ";") + 1
	if err := d.charge(1, int64(len(text))+int64(entries)*48+mapEntryBytes+40); err != nil {
		return nil, err
	}
	whole := string(text)
	stack := make([]Frame, 0, entries)
	for entry := range strings.SplitSeq(whole, ";") {
		parts := splitOutsideBrackets(entry)
		if len(parts) != 3 {
			return nil, d.Errorf(
				fault.ErrFormat, "the module stack entry %s is not a key, a path and a class", quote(entry),
			)
		}
		stack = append(stack, Frame{Key: parts[0], Path: parts[1], Class: parts[2]})
	}
	d.stacks[whole] = stack
	return stack, nil
}

func splitOutsideBrackets(entry string) []string {
	parts := make([]string, 0, 3)
	depth, start := 0, 0
	for i := range len(entry) {
		switch entry[i] {
		case '[', '(':
			depth++
		case ']', ')':
			depth--
		case ',':
			if depth == 0 && len(parts) < 3 {
				parts = append(parts, entry[start:i])
				start = i + 1
			}
		}
	}
	return append(parts, entry[start:])
}

// source reads a Python stack trace and keeps the innermost line outside PyTorch itself.
func (d *decoder) source() (*Source, error) {
	text, ok, err := d.stringOrSkip()
	if err != nil || !ok {
		return nil, err
	}
	line := lastUserFrame(text)
	if len(line) == 0 {
		return nil, nil
	}
	if s, ok := d.places[string(line)]; ok {
		return s, nil
	}
	if err := d.charge(1, int64(len(line))+mapEntryBytes+80); err != nil {
		return nil, err
	}
	whole := string(line)
	s := parseFrame(whole)
	d.places[whole] = s
	return s, nil
}

const (
	framePrefix   = "File \""
	maxFrameBytes = 1 << 10
)

// lastUserFrame returns the last frame of a stack trace whose file is not PyTorch's, else the last one, else nothing.
// A frame begins with a line `File "…", line N, in f`, mostly indented, and mostly has a line of code.
func lastUserFrame(trace []byte) []byte {
	var last []byte
	end := len(trace) // of the frame that the lines seen so far belong to
	for rest := trace; len(rest) > 0; {
		i := bytes.LastIndexByte(rest[:len(rest)-1], '\n') + 1
		line := bytes.TrimLeft(rest[i:], " ")
		start := len(rest) - len(line)
		rest = rest[:i]
		if !bytes.HasPrefix(line, []byte(framePrefix)) {
			continue
		}
		frame := trace[start:end]
		end = i
		if len(frame) > maxFrameBytes {
			frame = bytes.ToValidUTF8(frame[:maxFrameBytes], nil)
		}
		if last == nil {
			last = frame
		}
		file, _, _ := bytes.Cut(frame[len(framePrefix):], []byte{'"'})
		if !bytes.Contains(file, []byte("/torch/")) && !bytes.HasPrefix(file, []byte("<eval_with_key>")) {
			return frame
		}
	}
	return last
}

func parseFrame(frame string) *Source {
	s := &Source{}
	head, code, _ := strings.Cut(frame, "\n")
	s.Code, _, _ = strings.Cut(strings.TrimSpace(code), "\n")
	file, rest, _ := strings.Cut(strings.TrimPrefix(head, framePrefix), `"`)
	s.File = file
	rest, s.Func, _ = strings.Cut(strings.TrimPrefix(rest, ", line "), ", in ")
	for _, c := range []byte(rest) {
		if c < '0' || c > '9' || s.Line > 1<<32 {
			break
		}
		s.Line = s.Line*10 + int64(c-'0')
	}
	return s
}

// sourceFn reads "name,function" entries that are separated by semicolons and returns the last function.
func (d *decoder) sourceFn() (string, error) {
	k, err := d.Kind()
	if err != nil || k != strictjson.String {
		return "", err
	}
	all, err := d.String()
	last := all[strings.LastIndexByte(all, ';')+1:]
	_, fn, _ := strings.Cut(last, ",")
	return fn, err
}

func (d *decoder) moduleCall() (c ModuleCall, err error) {
	err = d.Object(func(key string) (err error) {
		switch key {
		case "fqn":
			c.FQN, err = d.String()
		case "signature":
			if null, err := d.IsNull(); err != nil || null {
				return err
			}
			c.Signature, err = d.callSignature()
		}
		return err
	})
	return c, err
}

func (d *decoder) callSignature() (*CallSignature, error) {
	s := &CallSignature{}
	if err := d.charge(1, 128); err != nil {
		return nil, err
	}
	err := d.Object(func(key string) (err error) {
		switch key {
		case "inputs":
			s.Inputs, err = d.arguments()
		case "outputs":
			s.Outputs, err = d.arguments()
		case "in_spec":
			err = d.treeSpec(&s.In)
		case "out_spec":
			err = d.treeSpec(&s.Out)
		case "forward_arg_names":
			s.ArgNames, err = d.strings()
		}
		return err
	})
	return s, err
}
