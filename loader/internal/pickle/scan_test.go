package pickle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/optimem/optimem/loader/internal/fault"
	"github.com/optimem/optimem/loader/internal/limit"
)

// testPolicy allows calls of data.*, refuses what isRefused refuses.
func testPolicy(g Global) Class {
	if g.Module == "data" {
		return Data
	}
	return PythonPolicy(g)
}

func testOptions() Options {
	return Options{Policy: testPolicy, Meter: limit.New(32 << 20), Persistent: true}
}

func scanString(t testing.TB, s string, o Options) *Report {
	t.Helper()
	report, err := Scan(strings.NewReader(s), 0, int64(len(s)), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// frame is the opcode that begins a frame of n bytes.
func frame(n uint64) string { return "\x95" + string(binary.LittleEndian.AppendUint64(nil, n)) }

// echo returns what it is called with.
var echo = Hooks{
	Persistent: func(id any) (any, error) { return id, nil },
	Reduce:     func(_ Global, args []any) (any, error) { return len(args), nil },
	Build:      func(any, any) error { return nil },
}

const (
	le4max = "\xff\xff\xff\xff"
	le8max = "\xff\xff\xff\xff\xff\xff\xff\x3f"
)

// TestScanRefuses lists what is wrong with pickles: the class and place of every problem.
func TestScanRefuses(t *testing.T) {
	type problem struct {
		class error
		at    int64
		msg   string
	}
	format := func(at int64, msg string) []problem { return []problem{{fault.ErrFormat, at, msg}} }
	unsafe := func(at int64, msg string) []problem { return []problem{{fault.ErrUnsafe, at, msg}} }
	tooMuch := func(at int64, msg string) []problem { return []problem{{fault.ErrLimit, at, msg}} }
	foreign := func(at int64, msg string) []problem { return []problem{{fault.ErrUnsupported, at, msg}} }

	for _, tc := range []struct {
		name, data string
		want       []problem
	}{
		// What makes the bare machine panic or take memory.
		{"empty", "", format(0, "truncated")},
		{"no STOP", "N", format(1, "truncated")},
		{"unknown opcode", "\xff", format(0, "unknown opcode 0xff")},
		{"zero byte", "\x00.", format(0, "unknown opcode 0x00")},
		{"BINBYTES8 of 2**62 bytes", "\x80\x04\x8e" + le8max + ".", format(2, "claims 4611686018427387903 bytes")},
		{"BINBYTES8 beyond int64",
			"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", format(2, "claims 18446744073709551615")},
		{"BINUNICODE8 of 2**62 bytes", "\x80\x04\x8d" + le8max + ".", format(2, "truncated: a value claims")},
		{"BYTEARRAY8 of 2**62 bytes", "\x80\x05\x96" + le8max + ".", format(2, "truncated: a value claims")},
		{"FRAME of 2**62 bytes", "\x80\x04\x95" + le8max + "N.", format(2, "truncated: a frame claims")},
		{"BINUNICODE of 4 GiB", "X" + le4max + "abc.", format(0, "claims 4294967295 bytes, 4 remain")},
		{"BINBYTES of 4 GiB", "B" + le4max + ".", format(0, "claims 4294967295")},
		{"BINSTRING of -1 bytes", "T" + le4max + ".", format(0, "claims 4294967295")},
		{"SHORT_BINUNICODE past the end", "\x80\x04\x8c\x09abc.", format(2, "claims 9 bytes, 4 remain")},
		{"LONG4 of 4 GiB", "\x80\x02\x8b" + le4max + ".", format(2, "an integer claims 4294967295")},
		{"LONG1 past the end", "\x80\x02\x8a\x05ab.", format(2, "an integer claims 5 bytes, 3 remain")},
		{"LONG1 of 65 bytes", "\x80\x02\x8a\x41" + strings.Repeat("x", 65) + ".", tooMuch(2, "integer of 65 bytes")},
		{"argument cut off", "J\x01\x02", format(0, "truncated")},
		{"line cut off", "I12", format(0, "truncated")},
		{"GLOBAL cut off", "cos\nsys", format(0, "truncated")},
		{"odd DICT", "(Nd.", format(2, "a key without a value")},
		{"odd SETITEMS", "}(Nu.", format(3, "a key without a value")},
		{"GET of nothing", "h\x05.", format(0, "memo index 5 was never put")},
		{"text GET of nothing", "g7\n.", format(0, "memo index 7 was never put")},
		{"GET in a gap", "NNNNq\x03h\x00.", format(6, "memo index 0 was never put")},
		{"LONG_BINPUT of 2**32-1", "Nr" + le4max + ".", format(1, "memo index 4294967295 after 1 opcodes")},
		{"PUT beyond the opcodes", "Np2\n.", format(1, "memo index 2 after 1 opcodes")},
		{"negative PUT", "Np-1\n.", format(1, "is not a memo index")},
		{"PUT that is no number", "Np0x0\n.", format(1, "is not a memo index")},
		{"PUT of nothing", "q\x00.", format(0, "stack underflow")},

		// The stack.
		{"STOP without a value", ".", format(0, "stack underflow: '.' needs 1 values, 0 are there")},
		{"STOP with two values", "NN.", format(2, "STOP with 2 values and 0 marks")},
		{"STOP inside a MARK", "N(N.", format(3, "STOP with 2 values and 1 marks")},
		{"POP of nothing", "0.", format(0, "no MARK")},
		{"POP_MARK without MARK", "N1.", format(1, "no MARK")},
		{"DUP of nothing", "(2.", format(1, "stack underflow")},
		{"TUPLE without MARK", "Nt.", format(1, "no MARK")},
		{"TUPLE1 across a MARK", "N(\x85.", format(2, "stack underflow")},
		{"TUPLE2 of one", "N\x86.", format(1, "stack underflow")},
		{"APPENDS on nothing", "(Ne.", format(2, "nothing below the MARK")},
		{"APPENDS across a MARK", "]((Ne.", format(4, "nothing below the MARK")},
		{"REDUCE of one", "N\x85R.", format(2, "stack underflow")},

		// Types. SETITEM on what is no dict was CVE-2026-24747.
		{"SETITEM on a tuple", ")NNs.", format(3, "items are added to a tuple")},
		{"SETITEMS on a list", "](NNu.", format(4, "items are added to a list")},
		{"SETITEM on a rebuilt value", "cdata\nf\n)RNNs.", unsafe(12, "items are added to a rebuilt value")},
		{"APPEND on a dict", "}Na.", format(2, "items are added to a dict")},
		{"APPEND on an OrderedDict", "ccollections\nOrderedDict\n)RNa.", format(28, "items are added to a mapping")},
		{"APPENDS on a string", "U\x01a(Ne.", format(5, "items are added to a str")},
		{"ADDITEMS on a list", "\x80\x04](N\x90.", format(5, "items are added to a list")},
		{"list as key", "}]Ns.", format(3, "a list is a dict's key")},
		{"dict as key", "(}Nd.", format(3, "a dict is a dict's key")},
		{"bytearray in a set",
			"\x80\x05\x8f(\x96\x00\x00\x00\x00\x00\x00\x00\x00\x90.", format(13, "a bytearray is in a set")},
		{"list in a frozenset", "\x80\x04(]\x91.", format(4, "a list is in a set")},
		{"BUILD on a list", "]}b.", format(2, "BUILD changes a list")},
		{"BUILD on a class", "cm\nC\n}b.", unsafe(6, "BUILD changes m.C")},
		{"arguments that are no tuple", "cdata\nf\n]R.", format(9, "a list for the arguments")},
		{"call of an int", "K\x01)R.", format(3, "an int is called")},
		{"call of a rebuilt value", "cdata\nf\n)R)R.", unsafe(11, "a rebuilt value is called")},
		{"NEWOBJ of a string", "\x80\x02U\x01a)\x81.", format(6, "a str is called")},
		{"NEWOBJ_EX with a tuple of keywords", "\x80\x04cm\nC\n))\x92.", format(9, "a tuple for keywords")},

		// Names.
		{"os.system", "cos\nsystem\n(U\x02idtR.", unsafe(0, "refused global os.system")},
		{"named only", "cbuiltins\neval\n.", unsafe(0, "refused global builtins.eval")},
		{"STACK_GLOBAL", "\x80\x04\x8c\x02os\x8c\x06system\x93.", unsafe(14, "refused global os.system")},
		{"STACK_GLOBAL from the memo", "\x80\x04\x8c\x05posix\x94\x8c\x06system\x940h\x00h\x01\x93.", []problem{
			{fault.ErrUnsafe, 24, "refused global posix.system"}, {fault.ErrFormat, 25, "STOP with 2 values"}}},
		{"STACK_GLOBAL of computed names", "\x80\x04cdata\nf\n)R\x8c\x01x\x93.", unsafe(15, "not plain strings")},
		{"STACK_GLOBAL of bytes", "\x80\x04C\x02osC\x06system\x93.", unsafe(14, "not plain strings")},
		{"STACK_GLOBAL in protocol 2", "\x80\x02X\x01\x00\x00\x00mX\x01\x00\x00\x00C\x93.", []problem{
			{fault.ErrFormat, 14, "belongs to protocol 4"}, {fault.ErrUnsafe, 14, "not plain strings"}}},
		{"INST", "(ios\nsystem\n.", []problem{{fault.ErrUnsafe, 1, "refused global os.system"}}},
		{"INST of a class", "(im\nC\n.", unsafe(1, "m.C is called")},
		{"OBJ of a class", "(cm\nC\no.", unsafe(6, "m.C is called")},
		{"REDUCE of a class", "cm\nC\n)R.", unsafe(6, "m.C is called")},
		{"REDUCE of a type that is only named", "cbuiltins\nint\n)R.", unsafe(15, "only naming it is allowed")},
		{"extension code", "\x80\x02\x82\x01.", unsafe(2, "an extension code")},
		{"out-of-band buffer", "\x80\x05\x97.", foreign(2, "out-of-band buffer")},
		{"GLOBAL without a name", "cos\n\n.", format(0, "is not the name")},
		{"GLOBAL with a blank", "cos \nsystem\n.", format(0, "is not the name")},
		{"GLOBAL with an empty component", "ctorch..os\nsystem\n.", format(0, "is not the name")},
		{"GLOBAL with a long name", "c" + strings.Repeat("m", 600) + "\nC\n.", format(0, "is not the name")},
		{"several", "cos\nsystem\n0cnt\nsystem\n0cm\nC\n)R]b.", []problem{
			{fault.ErrUnsafe, 0, "os.system"}, {fault.ErrUnsafe, 12, "nt.system"}, {fault.ErrUnsafe, 30, "m.C is called"}}},
		{"the same twice", "cos\nsystem\n0cos\nsystem\n.", unsafe(0, "os.system")},

		// Text.
		{"INT in hexadecimal", "I0x10\n.", format(0, "is not an integer")},
		{"INT with an underscore", "I1_0\n.", format(0, "is not an integer")},
		{"INT with a blank", "I 1\n.", format(0, "is not an integer")},
		{"INT without digits", "I-\n.", format(0, "is not an integer")},
		{"LONG of an L", "LL\n.", format(0, "is not an integer")},
		{"LONG of many digits", "L" + strings.Repeat("9", 151) + "L\n.", tooMuch(0, "an integer of 151 digits")},
		{"FLOAT in hexadecimal", "F0x1p4\n.", format(0, "is not a number")},
		{"FLOAT beyond the range", "F1e999\n.", format(0, "is not a number")},
		{"FLOAT Infinity", "FInfinity\n.", format(0, "is not a number")},
		{"STRING without quotes", "Sabc\n.", format(0, "is not a quoted string")},
		{"STRING with one quote", "S'\n.", format(0, "is not a quoted string")},
		{"UNICODE with half an escape", "V\\u12\n.", format(0, "no character")},
		{"UNICODE with a surrogate", "V\\ud800\n.", format(0, "no character")},
		{"BINUNICODE that is not UTF-8", "X\x02\x00\x00\x00\xc3\x28.", format(0, "not UTF-8")},
		{"BINUNICODE with a surrogate", "X\x03\x00\x00\x00\xed\xa0\x80.", format(0, "not UTF-8")},
		{"long BINUNICODE that is not UTF-8",
			"X\x00\x00\x01\x00" + strings.Repeat("a", 65535) + "\xe2.", format(0, "not UTF-8")},
		{"endless line", "V" + strings.Repeat("a", 70_000) + "\n.", tooMuch(0, "a line is longer")},

		// Protocol and frames.
		{"protocol 6", "\x80\x06N.", foreign(0, "pickle protocol 6")},
		{"PROTO in the middle", "\x80\x02N\x80\x04.", format(3, "PROTO in the middle")},
		{"protocol 4 in 2", "\x80\x02\x8c\x01a.", format(2, "belongs to protocol 4 or 5, the file declares 2")},
		{"frame in a frame", "\x80\x04" + frame(11) + frame(1) + "N.", format(11, "a frame begins inside a frame")},
		{"opcode across a frame",
			"\x80\x04" + frame(2) + "\x8c\x05abcde.", format(11, "crosses the end of its frame")},
		{"STOP before the end of a frame", "\x80\x04" + frame(4) + "N.NN", format(12, "STOP comes 2 bytes before")},

		// Nesting.
		{"201 marks",
			strings.Repeat("(", 201) + "N" + strings.Repeat("t", 201) + ".", tooMuch(200, "nested deeper than 200")},
		{"tuples without marks", ")" + strings.Repeat("\x85", 300) + ".", tooMuch(200, "nested deeper than 200")},
		{"lists in lists",
			strings.Repeat("]", 300) + strings.Repeat("a", 299) + ".", tooMuch(500, "nested deeper than 200")},
		{"states in states", strings.Repeat("cm\nC\n)\x81", 300) + strings.Repeat("b", 299) + ".",
			tooMuch(2298, "nested deeper than 200")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report := scanString(t, tc.data, testOptions())
			if len(report.Problems) != len(tc.want) {
				t.Fatalf("problems %v, want %d", report.Problems, len(tc.want))
			}
			for i, got := range report.Problems {
				want := tc.want[i]
				if !errors.Is(got, want.class) || got.Offset != want.at || !strings.Contains(got.Msg, want.msg) {
					t.Errorf("problem %d: %v: %v\nwant %v: …%s… (at byte %d)", i, got.Class, got, want.class, want.msg, want.at)
				}
			}
			if _, err := report.Load(echo); !errors.Is(err, tc.want[0].class) {
				t.Errorf("load gave %v", err)
			}
		})
	}
}

var twentyKeys, twentyItems = func() (data, text string) {
	var texts []string
	for i := range 20 {
		data += fmt.Sprintf("K%cI%d\n", rune(i+30), 3*i)
		texts = append(texts, fmt.Sprintf("int %d: int %d", i+30, 3*i))
	}
	return data, "{" + strings.Join(texts, ", ") + "}"
}()

// TestScanAccepts lists unusual pickles that are sound, with what they mean.
func TestScanAccepts(t *testing.T) {
	for _, tc := range []struct{ name, data, want string }{
		{"POP pops a MARK", "N(0.", "None"},
		{"POP_MARK", "N(NN1.", "None"},
		{"DUP of a list", "]2Na\x86.", "([None], [None])"},
		{"memo from 1", "Nq\x010h\x01.", "None"},
		{"memo put twice", "K\x01q\x00K\x02q\x00\x86h\x00\x86.", "((int 1, int 2), int 2)"},
		{"MEMOIZE counts indexes", "\x80\x04K\x01q\x000K\x02q\x000K\x03\x940h\x00h\x01\x86.", "(int 2, int 3)"},
		{"the last duplicate wins", "}(U\x01aK\x01U\x01bK\x02U\x01aK\x03u.", "{str 61: int 3, str 62: int 2}"},
		{"keys that are equal", "}(K\x01K\x01I01\nK\x02F1.0\nK\x03u.", "{int 1: int 3}"},
		{"NEWOBJ of a class", "\x80\x02cm\nC\n)\x81}b.", "object C"},
		{"OBJ of data", "(cdata\nf\nNNo.", "result 2"},
		{"INST of data", "(NNNidata\nf\n.", "result 3"},
		{"NEWOBJ of data", "cdata\nf\nN\x85\x81.", "result 1"},
		{"BUILD on a rebuilt value", "cdata\nf\n)R}b.", "result 0"},
		{"persistent id", "U\x01aQ.", "result a"},
		{"persistent id in text", "Pkey one\n.", "result key one"},
		{"STACK_GLOBAL", "\x80\x04\x8c\x04data\x8c\x01f\x93N\x85R.", "result 1"},
		{"STACK_GLOBAL from the memo",
			"\x80\x04\x8c\x04data\x94\x8c\x01f\x94\x93h\x00h\x01\x93N\x85R\x86.", "(global f, result 1)"},
		{"BINBYTES8", "\x80\x04\x8e\x02\x00\x00\x00\x00\x00\x00\x00ab.", "bytes 6162"},
		{"BINUNICODE8", "\x80\x04\x8d\x02\x00\x00\x00\x00\x00\x00\x00ab.", "str 6162"},
		{"LONG1 with spare bytes", "\x80\x02\x8a\x0a\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00.", "int 5"},
		{"LONG4", "\x80\x02\x8b\x01\x00\x00\x00\xfe.", "int -2"},
		{"LONG1 of -2**63", "\x80\x02\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.", "int -9223372036854775808"},
		{"LONG1 of -2**71", "\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x80.", "int -2361183241434822606848"},
		{"a new class's name", "carray\n_array_reconstructor\n.", "global _array_reconstructor"},
		{"empty frame", "\x80\x04" + frame(0) + "N.", "None"},
		{"value between frames", "\x80\x04" + frame(1) + "NC\x01a" + frame(2) + "\x86.", "(None, bytes 61)"},
		{"bytes in a set", "\x80\x04\x8f(C\x01aC\x00\x90.", "set {bytes 61, bytes }"},
		{"a set twice the same", "\x80\x04(K\x01I01\nF1.0\nU\x01a\x91.", "set {int 1, str 61}"},
		{"DICT with items", "(U\x01aK\x01U\x01bK\x02U\x01aK\x03d.", "{str 61: int 3, str 62: int 2}"},
		{"a dict of twenty", "}(" + twentyKeys + twentyKeys + "u.", twentyItems},
		{"set subclass by NEWOBJ", "\x80\x04cm\nC\n)\x81(K\x01\x90.", "object C"},
		{"OrderedDict that holds itself",
			"ccollections\nOrderedDict\n)Rq\x00U\x01ah\x00s.", "mapping {str 61: mapping"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			report := scanString(t, tc.data, testOptions())
			if err := report.Err(); err != nil {
				t.Fatal(err)
			}
			if report.End != int64(len(tc.data)) {
				t.Errorf("end %d of %d", report.End, len(tc.data))
			}
			v, err := report.Load(echo)
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(v, 0); !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestUses(t *testing.T) {
	report := scanString(t, "(cdata\nf\n)Rcm\nC\n)\x81cm\nC\ncm\nD\ncbuiltins\nexec\nt.", testOptions())
	want := []Use{
		{Global{"data", "f"}, Data, 1, true, false},
		{Global{"m", "C"}, Inert, 11, false, true},
		{Global{"m", "D"}, Inert, 23, false, false},
		{Global{"builtins", "exec"}, Refused, 28, false, false},
	}
	if len(report.Globals) != len(want) {
		t.Fatalf("%v", report.Globals)
	}
	for i, g := range report.Globals {
		if g != want[i] {
			t.Errorf("%+v, want %+v", g, want[i])
		}
	}
	if report.Ops != 12 || report.Protocol != 0 {
		t.Errorf("%d opcodes, protocol %d", report.Ops, report.Protocol)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	var b strings.Builder
	for i := range 500 {
		b.WriteString("cos\nf" + strings.Repeat("x", i) + "\n0")
	}
	report := scanString(t, b.String(), testOptions())
	if len(report.Problems) != maxProblems {
		t.Errorf("%d problems", len(report.Problems))
	}
	report = scanString(t, strings.Repeat("]}b0", 1000)+"N.", testOptions())
	if len(report.Problems) != 1 || report.Ops != 4002 {
		t.Errorf("%v after %d opcodes", report.Problems, report.Ops)
	}
}

func TestPersistentIDsNeedLeave(t *testing.T) {
	o := testOptions()
	o.Persistent = false
	if err := scanString(t, "U\x01aQ.", o).Err(); !errors.Is(err, fault.ErrFormat) {
		t.Errorf("got %v", err)
	}
}

// shifty is a file that changes: reads after the first see another version.
type shifty struct {
	versions []string
	reads    int
}

func (s *shifty) ReadAt(p []byte, off int64) (int, error) {
	v := s.versions[min(s.reads, len(s.versions)-1)]
	s.reads++
	return strings.NewReader(v).ReadAt(p, off)
}

// TestFileThatChanges gives the machine other bytes than the scan saw.
func TestFileThatChanges(t *testing.T) {
	for _, tc := range []struct {
		name, scanned, loaded string
		class                 error
	}{
		{"refused call", "cdata\nff\n)R.", "cos\nsystem)R.", fault.ErrFormat},
		{"refused name", "cdata\nfun\n.", "cos\nsystem\n.", fault.ErrUnsafe},
		{"shorter", "NN\x86.", "NN", fault.ErrFormat},
		{"other memo", "Nq\x00Nq\x01h\x00\x87.", "Nq\x00Nq\x01h\x01\x87.", fault.ErrFormat},
		{"later STOP", "N.", "NN\x86.", fault.ErrFormat},
		{"wrong type", "](NNe.", "](NNu.", fault.ErrFormat},
	} {
		f := &shifty{versions: []string{tc.scanned, tc.loaded}}
		report, err := Scan(f, 0, int64(len(tc.scanned)), testOptions())
		if err != nil || report.Err() != nil {
			t.Fatal(tc.name, err, report.Err())
		}
		if v, err := report.Load(echo); !errors.Is(err, tc.class) {
			t.Errorf("%s: got %v, %v", tc.name, v, err)
		}
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestReadErrorsAreNotProblems(t *testing.T) {
	broken := errors.New("disk on fire")
	report, err := Scan(failing{broken}, 0, 100, testOptions())
	if !errors.Is(err, broken) || len(report.Problems) != 0 {
		t.Errorf("got %v, %v", err, report.Problems)
	}
	// A file that is shorter than it was said to be is malformed.
	report, err = Scan(failing{io.EOF}, 0, 100, testOptions())
	if err != nil || !errors.Is(report.Err(), fault.ErrFormat) {
		t.Errorf("got %v, %v", err, report.Err())
	}
}

func TestHookErrors(t *testing.T) {
	report := scanString(t, "NNcdata\nf\n)R\x87.", testOptions())
	for _, tc := range []struct {
		err   error
		class error
	}{
		{errors.New("no"), fault.ErrFormat},
		{fault.New(fault.ErrUnsupported, -1, "sparse"), fault.ErrUnsupported},
	} {
		_, err := report.Load(Hooks{Reduce: func(Global, []any) (any, error) { return nil, tc.err }})
		var f *fault.Error
		if !errors.As(err, &f) || !errors.Is(err, tc.err) || !errors.Is(err, tc.class) || f.Offset != 11 {
			t.Errorf("got %v", err)
		}
	}
	_, err := report.Load(Hooks{Reduce: func(Global, []any) (any, error) { panic("mistake") }})
	if !errors.Is(err, fault.ErrFormat) || !strings.Contains(err.Error(), "mistake") {
		t.Errorf("got %v", err)
	}
	if _, err := report.Load(Hooks{}); !errors.Is(err, fault.ErrUnsupported) {
		t.Errorf("without a hook: %v", err)
	}
}

// TestReadsLittle: legacy files have weights behind short pickles, which should stay unread.
func TestReadsLittle(t *testing.T) {
	data := append([]byte("\x80\x02K\x01."), make([]byte, 1<<20)...)
	counted := &counter{r: bytes.NewReader(data)}
	report, err := Scan(counted, 0, int64(len(data)), testOptions())
	if err != nil || report.End != 5 {
		t.Fatal(err, report.End)
	}
	if counted.n > minWindowBytes {
		t.Errorf("read %d bytes", counted.n)
	}
}

type counter struct {
	r io.ReaderAt
	n int
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.n += n
	return n, err
}
