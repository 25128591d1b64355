package pickle

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/optimem/optimem/loader/internal/limit"
)

// stateDict writes a state dict of n tensors as torch.save does: protocol 2, everything memoized.
func stateDict(n int) []byte {
	var b bytes.Buffer
	memo := 0
	put := func() {
		if memo < 256 {
			b.Write([]byte{'q', byte(memo)})
		} else {
			b.Write([]byte{'r', byte(memo), byte(memo >> 8), byte(memo >> 16), 0})
		}
		memo++
	}
	str := func(s string) {
		b.Write([]byte{'X', byte(len(s)), 0, 0, 0})
		b.WriteString(s)
		put()
	}
	names := make(map[string]int)
	named := func(key string, write func()) {
		if i, ok := names[key]; ok {
			b.Write([]byte{'h', byte(i)})
			return
		}
		names[key] = memo
		write()
	}
	global := func(s string) { named("c"+s, func() { b.WriteString("c" + s); put() }) }
	b.WriteString("\x80\x02")
	global("collections\nOrderedDict\n")
	b.WriteString(")R")
	put()
	b.WriteByte('(')
	for i := range n {
		str(fmt.Sprintf("model.layers.%d.self_attn.q_proj.weight", i))
		global("torch._utils\n_rebuild_tensor_v2\n")
		b.WriteString("((")
		named("storage", func() { str("storage") })
		global("torch\nFloatStorage\n")
		str(fmt.Sprint(i))
		named("cpu", func() { str("cpu") })
		b.WriteString("J\x00\x00\x01\x00t")
		put()
		b.WriteString("QK\x00M\x00\x01M\x00\x01\x86")
		put()
		b.WriteString("M\x00\x01K\x01\x86")
		put()
		b.WriteByte(0x89)
		global("collections\nOrderedDict\n")
		b.WriteString(")R")
		put()
		b.WriteByte('t')
		put()
		b.WriteByte('R')
		put()
	}
	b.WriteString("u.")
	return b.Bytes()
}

func tensorPolicy(g Global) Class {
	switch g.String() {
	case "torch._utils._rebuild_tensor_v2", "torch.FloatStorage":
		return Data
	}
	return PythonPolicy(g)
}

// tensorHooks count what a loader would build.
func tensorHooks(tensors *int) Hooks {
	return Hooks{
		Persistent: func(id any) (any, error) {
			t, ok := Tuple(id)
			if !ok || len(t) != 5 {
				return nil, fmt.Errorf("not a storage: %v", ok)
			}
			key, _ := String(t[2])
			return key, nil
		},
		Reduce: func(g Global, args []any) (any, error) {
			if len(args) != 6 {
				return nil, fmt.Errorf("%d arguments", len(args))
			}
			*tensors++
			return args[0], nil
		},
	}
}

func BenchmarkStateDict10k(b *testing.B) {
	data := stateDict(10_000)
	b.SetBytes(int64(len(data)))
	opts := func() Options { return Options{Policy: tensorPolicy, Meter: limit.New(32 << 20), Persistent: true} }
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		var ops int64
		for b.Loop() {
			r, err := Scan(bytes.NewReader(data), 0, int64(len(data)), opts())
			if err != nil || r.Err() != nil {
				b.Fatal(err, r.Err())
			}
			ops = r.Ops
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(ops), "ns/opcode")
	})
	b.Run("scan and load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			o := opts()
			r, err := Scan(bytes.NewReader(data), 0, int64(len(data)), o)
			if err != nil || r.Err() != nil {
				b.Fatal(err, r.Err())
			}
			tensors := 0
			v, err := r.Load(tensorHooks(&tensors))
			if err != nil || tensors != 10_000 {
				b.Fatal(err, tensors)
			}
			if d, ok := Dict(v); !ok || len(d) != 10_000 {
				b.Fatal(len(d))
			}
			b.ReportMetric(float64(o.Meter.Used())/10_000, "charged-B/tensor")
		}
	})
}
