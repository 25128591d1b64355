package aten

import (
	"strings"
	"testing"

	"github.com/optimem/optimem/loader/script"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/tensor"
)

// resolved are calls and the overloads that TorchScript of PyTorch 2.15 takes them for. The variables are tensors: x of
// 3×4 floats, y of four dimensions, c of bools, i of integers, s without dimensions.
var resolved = []struct{ call, overload string }{
	{`torch.add(x, x)`, "aten::add.Tensor"},
	{`torch.add(x, 1)`, "aten::add.Scalar"},
	{`torch.add(x, 1.5, alpha=2)`, "aten::add.Scalar"},
	{`torch.mul(x, 2.0)`, "aten::mul.Scalar"},
	{`torch.div(x, 2, rounding_mode="floor")`, "aten::div.Scalar_mode"},
	{`torch.div(x, x, rounding_mode="trunc")`, "aten::div.Tensor_mode"},
	{`torch.pow(x, 2)`, "aten::pow.Tensor_Scalar"},
	{`torch.pow(2, x)`, "aten::pow.Scalar"},
	{`torch.pow(x, x)`, "aten::pow.Tensor_Tensor"},
	{`torch.remainder(x, 3)`, "aten::remainder.Scalar"},
	{`torch.eq(x, 1)`, "aten::eq.Scalar"},
	{`torch.clamp(x, 0, 1)`, "aten::clamp"},
	{`torch.clamp(x, x, None)`, "aten::clamp.Tensor"},
	{`torch.sum(x)`, "aten::sum"},
	{`torch.sum(x, [1])`, "aten::sum.dim_IntList"},
	{`torch.sum(x, [1], dtype=6)`, "aten::sum.dim_IntList"},
	{`torch.sum(x, dtype=6)`, "aten::sum"},
	{`torch.mean(x)`, "aten::mean"},
	{`torch.mean(x, [0], True)`, "aten::mean.dim"},
	{`torch.std(x)`, "aten::std"},
	{`torch.std(x, [1])`, "aten::std.dim"},
	{`torch.std(x, True)`, "aten::std"},
	{`torch.std(x, [1], correction=0)`, "aten::std.correction"},
	{`torch.var(x, [1], True, True)`, "aten::var.dim"},
	{`torch.max(x)`, "aten::max"},
	{`torch.max(x, 1)`, "aten::max.dim"},
	{`torch.max(x, 1, True)`, "aten::max.dim"},
	{`torch.max(x, x)`, "aten::max.other"},
	{`torch.all(x)`, "aten::all"},
	{`torch.all(x, 1)`, "aten::all.dim"},
	{`torch.any(x, 0, True)`, "aten::any.dim"},
	{`torch.prod(x, 1)`, "aten::prod.dim_int"},
	{`torch.argsort(x, 1)`, "aten::argsort"},
	{`torch.argsort(x, stable=True)`, "aten::argsort.stable"},
	{`torch.sort(x, 1)`, "aten::sort"},
	{`torch.sort(x, stable=True, dim=0)`, "aten::sort.stable"},
	{`torch.where(c, x, x)`, "aten::where.self"},
	{`torch.where(c, x, 1.0)`, "aten::where.ScalarOther"},
	{`torch.where(c, 1.0, x)`, "aten::where.ScalarSelf"},
	{`torch.where(c, 1, 0)`, "aten::where.Scalar"},
	{`torch.split(x, 2)`, "aten::split.Tensor"},
	{`torch.split(x, [1, 2], 1)`, "aten::split.sizes"},
	{`torch.tensor_split(x, 2)`, "aten::tensor_split.sections"},
	{`torch.tensor_split(x, [1, 2])`, "aten::tensor_split.indices"},
	{`torch.squeeze(x)`, "aten::squeeze"},
	{`torch.squeeze(x, 0)`, "aten::squeeze.dim"},
	{`torch.squeeze(x, [0, 1])`, "aten::squeeze.dims"},
	{`torch.masked_fill(x, c, 1)`, "aten::masked_fill.Scalar"},
	{`torch.masked_fill(x, c, s)`, "aten::masked_fill.Tensor"},
	{`torch.lerp(x, x, 0.5)`, "aten::lerp.Scalar"},
	{`torch.lerp(x, x, x)`, "aten::lerp.Tensor"},
	{`torch.arange(5)`, "aten::arange"},
	{`torch.arange(1, 5)`, "aten::arange.start"},
	{`torch.arange(1, 5, 2)`, "aten::arange.start_step"},
	{`torch.conv2d(y, y)`, "aten::conv2d"},
	{`torch.conv2d(y, y, None, [1, 1], [0, 0])`, "aten::conv2d"},
	{`torch.conv2d(y, y, None, [1, 1], "same")`, "aten::conv2d.padding"},
	{`torch.scatter(x, 1, i, x)`, "aten::scatter.src"},
	{`torch.scatter(x, 1, i, 2.0)`, "aten::scatter.value"},
	{`torch.index_fill(x, 1, i, 2.0)`, "aten::index_fill.int_Scalar"},
	{`torch.repeat_interleave(x, 2)`, "aten::repeat_interleave.self_int"},
	{`torch.repeat_interleave(x, i)`, "aten::repeat_interleave.self_Tensor"},
	{`torch.isin(x, 2)`, "aten::isin.Tensor_Scalar"},
	{`torch.bitwise_and(i, 1)`, "aten::bitwise_and.Scalar"},
	{`torch.bitwise_and(i, i)`, "aten::bitwise_and.Tensor"},
	{`torch.floor_divide(x, 2)`, "aten::floor_divide.Scalar"},
	{`torch.rsub(x, 1)`, "aten::rsub.Scalar"},
	{`torch.movedim(x, 0, 1)`, "aten::movedim.int"},
	{`torch.movedim(x, [0, 1], [1, 0])`, "aten::movedim.intlist"},
	{`torch.meshgrid([x, x])`, "aten::meshgrid"},
	{`torch.softmax(x, 1)`, "aten::softmax.int"},
	{`torch.gt(x, s)`, "aten::gt.Tensor"},
	{`torch.round(x, decimals=2)`, "aten::round.decimals"},
	{`torch.eye(3)`, "aten::eye"},
	{`torch.eye(3, 4)`, "aten::eye.m"},
	{`torch.median(x, 1)`, "aten::median.dim"},
	{`torch.bucketize(x, x)`, "aten::bucketize.Tensor"},
	{`torch.linspace(0, 1, 5)`, "aten::linspace"},
	// A flag is a number and never a tensor (PyTorch 2.11).
	{`torch.max(x, True)`, "aten::max.dim"},
	{`torch.softmax(x, True)`, "aten::softmax.int"},
	{`torch.eq(x, True)`, "aten::eq.Scalar"},
	{`torch.dropout(x, True, False)`, "aten::dropout"},
	{`torch.repeat_interleave(x, True)`, "aten::repeat_interleave.self_int"},
	{`torch.repeat_interleave(x, 2, True)`, "aten::repeat_interleave.self_int"},
	{`torch.index_fill(x, True, i, s)`, "aten::index_fill.int_Tensor"},
	{`torch.scatter(x, True, i, 2.0)`, "aten::scatter.value"},
}

// refused are calls that TorchScript of PyTorch 2.11 refuses: what stands behind the "*" of a schema is given by name alone.
var refused = []string{
	`torch.div(x, x, "floor")`,
	`torch.round(x, 2)`,
	`torch.sum(x, [1], True, 6)`,
	`torch.std(x, [1], 0)`,
	`torch.bucketize(x, x, True)`,
	`torch.mean(x, [0], True, 6)`,
	`torch.matmul(x, x, x)`,
	`torch.matmul(x, True)`,
}

// TestResolve holds the overloads of calls against PyTorch's.
func TestResolve(t *testing.T) {
	for _, c := range resolved {
		got, err := resolveText(t, c.call)
		if err != nil {
			t.Errorf("%s: %v", c.call, err)
			continue
		}
		want := "torch.ops." + strings.Replace(c.overload, "::", ".", 1)
		if strings.Count(want, ".") == 3 {
			want += ".default"
		}
		if got.schema.Target != want {
			t.Errorf("%s is %s, want %s", c.call, got.schema.Target, want)
		}
	}
	for _, call := range refused {
		if got, err := resolveText(t, call); err == nil {
			t.Errorf("%s is %s, which PyTorch refuses", call, got.schema.Target)
		}
	}
}

// resolveText resolves a call of torch's with the variables x, y, c, i and s.
func resolveText(t *testing.T, text string) (Target, error) {
	t.Helper()
	rank := func(d tensor.DType, shape ...int) *cells.Ref {
		return cells.NewRef(nil, tensor.Contiguous(shape...), d)
	}
	vars := map[string]*cells.Ref{
		"x": rank(tensor.Float32, 3, 4), "y": rank(tensor.Float32, 1, 1, 2, 2), "c": rank(tensor.Bool, 3, 4),
		"i": rank(tensor.Int64, 3, 4), "s": rank(tensor.Float32),
	}
	call := parseCall(t, text)
	var args []any
	for _, a := range call.Args {
		args = append(args, plainValue(t, vars, a))
	}
	named := make(map[string]any)
	for _, k := range call.Keywords {
		named[k.Name] = plainValue(t, vars, k.Value)
	}
	name := call.Func.(*script.Path).Name
	return Resolve("aten::"+strings.TrimPrefix(name, "torch."), args, named)
}

// TestByPosition: a call that names its overload takes no more by position than the schema has in front of its "*", as
// torch.ops.aten.add.Tensor does.
func TestByPosition(t *testing.T) {
	x := cells.NewRef(nil, tensor.Contiguous(3), tensor.Float32)
	if _, err := Resolve("aten::add.Tensor", []any{x, x}, map[string]any{"alpha": 2}); err != nil {
		t.Error(err)
	}
	if _, err := Resolve("aten::add.Tensor", []any{x, x, 2}, nil); err == nil {
		t.Error("alpha is taken by position")
	}
}

// parseCall parses one call.
func parseCall(t *testing.T, text string) *script.Call {
	t.Helper()
	src := "def f() -> Tensor:\n  return " + text + "\n"
	p, err := script.Parse(func(yield func(string, string) bool) { yield("__torch__.py", src) }, script.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Functions["__torch__.f"].Body[0].(*script.Return).Value.(*script.Call)
}

func plainValue(t *testing.T, vars map[string]*cells.Ref, x script.Expr) any {
	t.Helper()
	switch x := x.(type) {
	case *script.Name:
		return vars[x.Name]
	case *script.Int:
		return int(x.Value)
	case *script.Float:
		return x.Value
	case *script.Bool:
		return x.Value
	case *script.String:
		return x.Value
	case *script.None:
		return nil
	case *script.List:
		list := make([]any, len(x.Elems))
		for i, e := range x.Elems {
			list[i] = plainValue(t, vars, e)
		}
		return List(list)
	}
	t.Fatalf("a %T among arguments", x)
	return nil
}
