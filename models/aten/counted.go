package aten

import (
	"slices"
	"strings"

	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
)

// hasCounted reports whether an argument of the call has a size that only data says, or is one.
func hasCounted(c *call.Call) bool {
	for _, v := range c.Args {
		switch v := v.(type) {
		case *cells.Ref:
			if v.IsCounted() {
				return true
			}
		case []*cells.Ref:
			if slices.ContainsFunc(v, (*cells.Ref).IsCounted) {
				return true
			}
		case *cells.Count:
			return true
		case []any:
			if slices.ContainsFunc(v, func(x any) bool { _, is := x.(*cells.Count); return is }) {
				return true
			}
		}
	}
	return false
}

// bareArgument returns an argument with the most that there can be in the place of what data says.
func bareArgument(v any) any {
	switch v := v.(type) {
	case *cells.Ref:
		return cells.Bare(v)
	case []*cells.Ref:
		list := make([]*cells.Ref, len(v))
		for i, r := range v {
			list[i] = cells.Bare(r)
		}
		return list
	case *cells.Count:
		return v.Most
	case []any:
		list := make([]int, len(v))
		for i, x := range v {
			switch x := x.(type) {
			case *cells.Count:
				list[i] = x.Most
			case int:
				list[i] = x
			default:
				return v
			}
		}
		return list
	}
	return v
}

// bareRun builds the call of everything that memory holds, with some arguments changed.
func bareRun(c *call.Call, t Target, changed map[string]any) ([]any, error) {
	args := make(map[string]any, len(c.Args))
	for name, v := range c.Args {
		args[name] = bareArgument(v)
	}
	for name, v := range changed {
		args[name] = v
	}
	at := c.Site
	at.Selects = false
	return t.Call(c.Builder, at, args)
}

// giveCounted gives results of which the first rows of a dimension count.
func giveCounted(c *call.Call, results []any, k *cells.Count, dim int) error {
	for i, v := range results {
		switch v := v.(type) {
		case *cells.Ref:
			if v != nil {
				results[i] = k.Of(v, dim)
			}
		case []*cells.Ref:
			list := make([]*cells.Ref, len(v))
			for j, r := range v {
				list[j] = k.Of(r, dim)
			}
			results[i] = list
		}
	}
	c.Set(results...)
	return nil
}

// ofCounted builds a call with arguments whose sizes only data says.
func (t Target) ofCounted(c *call.Call) error {
	if c.IsComplex() {
		return c.Unsupported("of complex numbers: %s", cells.SizeOfData)
	}
	if elementwise[t.schema.Target] {
		return t.eachCounted(c)
	}
	rule, ok := countedRules[call.BaseName(t.schema.Target)]
	if !ok {
		return c.Unsupported("of a tensor whose size depends on data: %s", cells.SizeOfData)
	}
	err := rule(c, t)
	if err == nil {
		err = c.Err
	}
	return err
}

// eachCounted computes each element by itself: with those behind the rows that count, too.
func (t Target) eachCounted(c *call.Call) error {
	var k *cells.Rows
	back := 0 // of the rows' dimension, counted from the end
	for _, p := range t.schema.Params {
		switch v := c.Args[p.Name].(type) {
		case *cells.Ref:
			if !v.IsCounted() {
				continue
			}
			if k != nil && (!k.Same(v.Rows().Count) || back != v.Rank()-v.Rows().Dim) {
				return c.Unsupported("of rows that are counted by themselves: %s", cells.SizeOfData)
			}
			k, back = v.Rows(), v.Rank()-v.Rows().Dim
		case *cells.Count, []any:
			return c.Unsupported("with a number of rows: %s", cells.SizeOfData)
		}
	}
	own, _ := c.Args["self"].(*cells.Ref)
	name := call.BaseName(t.schema.Target)
	if strings.HasSuffix(name, "_") && !strings.HasSuffix(name, "__") && !own.IsCounted() {
		return c.Unsupported("written into a tensor of another size: %s", cells.SizeOfData)
	}
	for _, p := range t.schema.Params {
		v, ok := c.Args[p.Name].(*cells.Ref)
		if ok && v != nil && !v.IsCounted() && v.Rank() >= back && v.Shape()[v.Rank()-back] != 1 {
			return c.Unsupported("of %v beside rows that data counts: %s", v.Shape(), cells.SizeOfData)
		}
	}
	before := len(c.Graph.Ops)
	results, err := bareRun(c, t, nil)
	if err != nil {
		return err
	}
	if other, ok := c.Args["other"].(*cells.Ref); ok && other.IsCounted() {
		if err := refuseFailing(c, before); err != nil {
			return err
		}
	}
	for i, v := range results {
		if r, ok := v.(*cells.Ref); ok {
			results[i] = k.Of(r, r.Rank()-back)
		}
	}
	c.Set(results...)
	return nil
}

// refuseFailing refuses ops since a place that fail because of a divisor, which may be one that does not count.
func refuseFailing(c *call.Call, since int) error {
	for _, op := range c.Graph.Ops[since:] {
		if failing[op.Kind] && cells.IsIntegral(c.Graph.Values[op.Out[0]].DType) {
			return c.Unsupported("a division of integers that a mask selects: %s", cells.SizeOfData)
		}
	}
	return nil
}
