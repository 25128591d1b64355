package listing

import (
	"hash/maphash"
	"iter"
	"strings"

	"github.com/optimem/optimem/loader"
)

// Bounds of a module tree that is derived from tensors' names, which may come from a hostile file. What lies deeper
// counts in the deepest module kept.
const (
	maxModules     = 50_000
	maxModuleDepth = 40
	maxModulePath  = 1 << 10
)

// scriptConstants begins the names of tensors that belong to the code of a TorchScript archive and to no module.
const scriptConstants = "CONSTANTS."

// NoModule is in place of a module where there is none.
const NoModule = int32(-1)

// A module is one node of the tree: what its parameters and buffers and those below it take.
type module struct {
	path, class                       string
	count                             count
	parent, firstChild, last, sibling int32
}

// name is the last part of the path.
func (m *module) name() string { return m.path[strings.LastIndexByte(m.path, '.')+1:] }

// A Tree is modules, by numbers in the order of first mention; the first, 0, is the root.
type Tree struct {
	modules []module
	byPath  map[string]int32
}

// NewTree returns a tree with nothing but a root.
func NewTree() *Tree {
	return &Tree{
		modules: []module{{parent: NoModule, firstChild: NoModule, last: NoModule, sibling: NoModule}},
		byPath:  map[string]int32{"": 0},
	}
}

// At returns the module with the given path, made with all that are above it where they are new.
func (t *Tree) At(path string) int32 {
	if m, ok := t.byPath[path]; ok && len(path) <= maxModulePath {
		return m
	}
	current := int32(0)
	for end, depth := 0, 1; end < len(path) && depth <= maxModuleDepth; depth++ {
		if dot := strings.IndexByte(path[end:], '.'); dot >= 0 {
			end += dot
		} else {
			end = len(path)
		}
		next, ok := t.child(current, path[:end])
		if !ok {
			break
		}
		current = next
		end++
	}
	return current
}

func (t *Tree) child(parent int32, path string) (int32, bool) {
	if len(path) > maxModulePath {
		return NoModule, false
	}
	if m, ok := t.byPath[path]; ok {
		return m, true
	}
	if len(t.modules) >= maxModules {
		return NoModule, false
	}
	m := int32(len(t.modules))
	t.modules = append(t.modules,
		module{path: path, parent: parent, firstChild: NoModule, last: NoModule, sibling: NoModule})
	t.byPath[path] = m
	if p := &t.modules[parent]; p.firstChild == NoModule {
		p.firstChild, p.last = m, m
	} else {
		t.modules[p.last].sibling = m
		p.last = m
	}
	return m, true
}

// Len is how many modules there are, the root one of them.
func (t *Tree) Len() int { return len(t.modules) }

// Path is the path of a module.
func (t *Tree) Path(m int32) string { return t.modules[m].path }

// Parent is the module that one is in, [NoModule] for the root.
func (t *Tree) Parent(m int32) int32 { return t.modules[m].parent }

// Children yields the modules that are in one, in order.
func (t *Tree) Children(m int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for c := t.modules[m].firstChild; c != NoModule && yield(c); c = t.modules[c].sibling {
		}
	}
}

// Walk visits the tree from m, parents first, in order.
func (t *Tree) Walk(m int32, visit func(m int32, depth int)) { t.walkBelow(m, 0, visit) }

func (t *Tree) walkBelow(m int32, depth int, visit func(m int32, depth int)) {
	visit(m, depth)
	for child := range t.Children(m) {
		t.walkBelow(child, depth+1, visit)
	}
}

// modulesOf derives the tree of ckpt: from the pickled modules or the program where the file has them, else from the
// names of its state dict.
func modulesOf(ckpt *loader.Checkpoint, dicts []loader.StateDict, t *tally) *Tree {
	tree := NewTree()
	owner := nameOwner(dicts)
	if ckpt.Module != nil {
		owner = tree.addPickled(ckpt.Module)
	}
	tree.addProgram(ckpt.Program)
	moduleOf := make([]int32, len(ckpt.Weights))
	scripted := ckpt.Program != nil && ckpt.Program.Script != nil
	for i, w := range ckpt.Weights {
		moduleOf[i] = NoModule
		if scripted && strings.HasPrefix(w.Name, scriptConstants) {
			continue
		}
		if path, ok := owner(w.Name); ok {
			moduleOf[i] = tree.At(path)
		}
	}
	// The modules that have counted a view of the storage at hand.
	seen := make(map[int32]bool)
	for k, i := range t.order {
		if k > 0 && t.storage[i] != t.storage[t.order[k-1]] {
			clear(seen)
		}
		for m := moduleOf[i]; m != NoModule; m = tree.modules[m].parent {
			add := t.own[i]
			if seen[m] {
				add = t.fresh[i]
			}
			seen[m] = true
			tree.modules[m].count = tree.modules[m].count.plus(add)
		}
	}
	return tree
}

// nameOwner returns a function that takes the path of the module that owns a tensor from the tensor's name, false where
// it is in no module. The place of the only state dict and the prefix of all its names
// are not part of the module's path; where a file has several state dicts they are.
func nameOwner(dicts []loader.StateDict) func(name string) (string, bool) {
	parent := func(name string) string { return name[:max(strings.LastIndexByte(name, '.'), 0)] }
	switch len(dicts) {
	case 0:
		return func(name string) (string, bool) { return parent(name), true }
	case 1:
		prefix := dicts[0].Prefix
		if dicts[0].Path != "" {
			prefix = dicts[0].Path + "." + prefix
		}
		return func(name string) (string, bool) {
			rest, ok := strings.CutPrefix(name, prefix)
			return parent(rest), ok
		}
	}
	paths := make(map[string]bool, len(dicts))
	for _, d := range dicts {
		paths[d.Path] = true
	}
	return func(name string) (string, bool) {
		ok := paths[""]
		for i := 0; i < min(len(name), maxModulePath) && !ok; i++ {
			ok = name[i] == '.' && paths[name[:i]]
		}
		return parent(name), ok
	}
}

// addPickled adds the tree of a whole pickled module and returns the owner of each of its tensors.
func (t *Tree) addPickled(root *loader.Module) func(name string) (string, bool) {
	owners := make(map[string]string)
	var add func(m *loader.Module)
	add = func(m *loader.Module) {
		if n := t.At(m.Path); t.modules[n].path == m.Path {
			t.modules[n].class = m.Class
		}
		for _, members := range [][]loader.Member{m.Params, m.Buffers} {
			for _, member := range members {
				if _, ok := owners[member.Weight]; !ok {
					owners[member.Weight] = m.Path
				}
			}
		}
		for _, child := range m.Children {
			add(child)
		}
	}
	add(root)
	return func(name string) (string, bool) {
		path, ok := owners[name]
		return path, ok
	}
}

// numbered reports whether a module is an element of a list, as the layers of a model are.
func (m *module) numbered() bool { return strings.Trim(m.name(), "0123456789") == "" }

// likeness returns for every module a number that is equal for modules with the same class, sizes and likewise equal
// children: the layers of a transformer.
func (t *Tree) likeness() []uint64 {
	seed := maphash.MakeSeed()
	type face struct {
		class string
		count count
		below uint64
	}
	type link struct {
		name string
		like uint64
		next uint64
	}
	likeness := make([]uint64, len(t.modules))
	below := make([]uint64, len(t.modules))
	// Children come after their parents, so going backwards every child is done before its parent.
	for m := len(t.modules) - 1; m >= 0; m-- {
		this := &t.modules[m]
		likeness[m] = maphash.Comparable(seed, face{this.class, this.count, below[m]})
		if this.parent != NoModule {
			below[this.parent] = maphash.Comparable(seed, link{this.name(), likeness[m], below[this.parent]})
		}
	}
	return likeness
}
