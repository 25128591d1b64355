package pickle

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/optimem/optimem/loader/internal/fault"
)

func loadString(t testing.TB, s string) any {
	t.Helper()
	report := scanString(t, s, testOptions())
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	v, err := report.Load(echo)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestObject(t *testing.T) {
	o, ok := AsObject(loadString(t, "\x80\x04cm\nC\nK\x07\x85\x81(K\x01K\x02e(U\x01kK\x03u}U\x01aK\x04s}U\x01bK\x05s\x86b."))
	if !ok {
		t.Fatal("no object")
	}
	if o.Class() != (Global{"m", "C"}) {
		t.Error(o.Class())
	}
	if diff := cmp.Diff([]any{7}, o.Args()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]any{1, 2}, o.Items()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Entry{{Key: "k", Value: 3}}, o.Entries()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Entry{{Key: "a", Value: 4}, {Key: "b", Value: 5}}, o.Attrs()); diff != "" {
		t.Error(diff)
	}
}

// TestArgumentsAreNotShared: gopickle appends NEWOBJ_EX's keywords to a slice that two objects may share.
func TestArgumentsAreNotShared(t *testing.T) {
	v := loadString(t, "\x80\x04cm\nC\nq\x000(K\x01K\x02tq\x010h\x00h\x01}U\x01aK\x01s\x92h\x00h\x01}U\x01aK\x02s\x92\x86.")
	pair, _ := Tuple(v)
	for i, it := range pair {
		o, _ := AsObject(it)
		keywords, _ := Dict(o.Args()[2])
		if len(keywords) != 1 || keywords[0].Value != i+1 {
			t.Errorf("object %d has keywords %v", i, keywords)
		}
	}
}

func TestPythonDataRefusesWrongArguments(t *testing.T) {
	for _, data := range []string{
		"ccollections\nOrderedDict\nK\x01\x85R.",
		"ccollections\nOrderedDict\n]]N\x86a\x85R.",
		"ccollections\nOrderedDict\n]K\x01aK\x02a\x85R.",
		"ccollections\nOrderedDict\n](]K\x01la\x85R.",
		"ccollections\ndefaultdict\nK\x01\x85R.",
		"cbuiltins\nset\n]]a\x85R.",
		"cbuiltins\nset\nK\x01\x85R.",
		"cbuiltins\ncomplex\nU\x01a\x85R.",
		"cbuiltins\nslice\n)R.",
		"cbuiltins\nbytearray\nK\x05\x85R.",
		"c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00utf-7\x86R.",
		"c_codecs\nencode\nX\x03\x00\x00\x00\xe2\x82\xacX\x06\x00\x00\x00latin1\x86R.",
		"ccopy_reg\n_reconstructor\nNNN\x87R.",
		"ccopyreg\n__newobj__\n)R.",
	} {
		report := scanString(t, data, testOptions())
		if err := report.Err(); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		var f *fault.Error
		v, err := report.Load(echo)
		if !errors.As(err, &f) || !errors.Is(err, fault.ErrFormat) || f.Offset != int64(len(data)-2) {
			t.Errorf("%q: got %v, %v", data, v, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, tc := range []struct {
		module, name string
		want         bool
	}{
		{"os", "system", true},
		{"posix", "system", true},
		{"builtins", "eval", true},
		{"__builtin__", "getattr", true},
		{"builtins", "type", true},
		{"builtins", "dict", false},
		{"__builtin__", "set", false},
		{"_pickle", "loads", true},
		{"importlib.machinery", "SourceFileLoader", true},
		{"operator", "methodcaller", true},
		{"_operator", "attrgetter", true},
		{"functools", "partial", true},
		{"torch.hub", "load", true},
		{"torch", "load", true},
		{"torch", "hub.load", true},
		{"torch.storage", "_load_from_bytes", true},
		{"torch.serialization", "os.system", true},
		{"random", "_os.system", true},
		{"random", "_os", true},
		{"m", "C.__init__.__globals__", true},
		{"m", "__builtins__", true},
		{"uuid", "_get_command_stdout", true},
		{"numpy.testing._private.utils", "runstring", true},
		{"numpy.f2py.crackfortran", "getlincoef", true},
		{"numpy", "load", true},
		{"copyreg", "add_extension", true},
		{"types", "CodeType", true},
		{"collections", "namedtuple", true},
		{"ossaudiodev", "open", false},
		{"models.os", "Net", false},
		{"__main__", "Net", false},
		{"models", "Outer.Inner", false},
		{"torch.nn.modules.conv", "Conv2d", false},
		{"torch._utils", "_rebuild_tensor_v2", false},
		{"numpy.core.multiarray", "_reconstruct", false},
		{"numpy.random._pickle", "__randomstate_ctor", false},
		{"torchvision.models.resnet", "ResNet", false},
		{"torch._dynamo.eval_frame", "OptimizedModule", false},
		{"transformers.models.bert.modeling_bert", "BertModel", false},
		{"pathlib", "PosixPath", false},
		{"argparse", "Namespace", false},
		{"types", "SimpleNamespace", false},
	} {
		if got := isRefused(Global{tc.module, tc.name}); got != tc.want {
			t.Errorf("%s.%s: refused %v", tc.module, tc.name, got)
		}
	}
}
