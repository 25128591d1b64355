// Package aten translates the overloads of PyTorch's ops to ops of package graph.
//
// A [Target] is an overload with its schema and its translation; [Lookup] finds one by the name in an exported program,
// [Resolve] by arguments, as TorchScript and modules need. Arithmetic on numbers ([OnNumbers]) is evaluated while the
// graph is built and adds no op. What a call means is in the packages below, by kind: elements, views, products,
// signals. Here is what concerns all of them: complex arguments, sizes that only data says, and what a mask selects.
//
//	target, err := aten.Resolve("aten::add", []any{x, 1}, nil)
//	args, err := target.Bind([]any{x, 1}, nil)
//	results, err := target.Call(builder, call.Site{}, args)
//
// It does not know files, devices or plans.
package aten

import (
	"fmt"
	"slices"
	"strings"

	"github.com/optimem/optimem/models/aten/call"
	"github.com/optimem/optimem/models/aten/cells"
	"github.com/optimem/optimem/models/aten/elements"
	"github.com/optimem/optimem/models/aten/products"
	"github.com/optimem/optimem/models/aten/signals"
	"github.com/optimem/optimem/models/aten/views"
)

// A Target is an overload whose schema is parsed.
type Target struct {
	schema call.Schema
	build  func(c *call.Call) error
}

// targets holds every overload that a program may call, by its name in an exported program.
var targets = func() map[string]Target {
	all := make(map[string]Target)
	for _, family := range [][]call.Overload{
		elements.Targets, views.Targets, products.Targets, signals.Targets, complexTargets, sizedTargets,
		detectorTargets,
	} {
		for _, op := range family {
			s := call.ParseSchema(op.Schema)
			if _, dup := all[s.Target]; dup {
				panic("BUG: " + s.Target + " is defined twice")
			}
			all[s.Target] = Target{schema: s, build: op.Build}
		}
	}
	return all
}()

// Lookup returns the overload that an exported program calls by a name.
func Lookup(name string) (Target, bool) {
	t, ok := targets[name]
	return t, ok
}

// OnNumbers returns what an operator on numbers computes.
func OnNumbers(name string) (func(args []any) (any, error), bool) {
	f, ok := scalarTargets[name]
	return f, ok
}

// Position returns the place of a parameter, −1 where there is none of that name.
func (t Target) Position(name string) int {
	return slices.IndexFunc(t.schema.Params, func(p call.Param) bool { return p.Name == name })
}

// Bind returns what each parameter is given, by name or by position, else its default.
func (t Target) Bind(args []any, named map[string]any) (map[string]any, error) {
	bound := make(map[string]any, len(t.schema.Params))
	for i, p := range t.schema.Params {
		v, given := named[p.Name]
		if !given && i < len(args) {
			v, given = args[i], true
		}
		switch {
		case given:
			bound[p.Name] = v
		case p.Required:
			return nil, fmt.Errorf("argument %s is missing", p.Name)
		default:
			bound[p.Name] = p.Value
		}
	}
	return bound, nil
}

// Call builds a call at a place of a program and returns its results. [Target.Bind] gives the arguments.
func (t Target) Call(b *cells.Builder, at call.Site, args map[string]any) ([]any, error) {
	c := &call.Call{Builder: b, Site: at, Schema: t.schema, Args: args}
	if err := t.run(c); err != nil {
		return nil, err
	}
	return c.Results, nil
}

// Table returns what there is to say of each overload and each op known by name: "yes", "yes, on numbers", or that it
// is refused and why. It is what OPS.md is made of.
func Table() map[string]string {
	rows := make(map[string]string)
	for name, why := range cells.Refusals {
		rows["torch.ops."+name] = "refused: " + why
	}
	for name := range scalarTargets {
		rows[name] = "yes, on numbers"
	}
	for name := range targets {
		if !strings.HasPrefix(name, "torch.ops.optimem.") { // which no program calls
			rows[name] = "yes"
		}
	}
	return rows
}
