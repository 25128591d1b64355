package layers

import "strconv"

// containerClasses are those that hold other modules, and those that do nothing.
var containerClasses = Classes{
	"torch.nn.modules.container.Sequential":                 Unary((*Trace).Each),
	"torch.nn.modules.container.ModuleList":                 {Forward: noForward},
	"torch.nn.modules.container.ModuleDict":                 {Forward: noForward},
	"torch.nn.modules.container.ParameterList":              {Forward: noForward},
	"torch.nn.modules.container.ParameterDict":              {Forward: noForward},
	"torch.nn.parallel.data_parallel.DataParallel":          wrapper,
	"torch.nn.parallel.distributed.DistributedDataParallel": wrapper,
	"torch.optim.swa_utils.AveragedModel":                   wrapper,
	"torch.nn.modules.linear.Identity": {Forward: func(_ *Trace, _ *Module, args ...any) any {
		if len(args) == 0 {
			return nil
		}
		return args[0]
	}},
	"torch.nn.modules.dropout.Dropout":             Unary(same),
	"torch.nn.modules.dropout.Dropout1d":           Unary(same),
	"torch.nn.modules.dropout.Dropout2d":           Unary(same),
	"torch.nn.modules.dropout.Dropout3d":           Unary(same),
	"torch.nn.modules.dropout.AlphaDropout":        Unary(same),
	"torch.nn.modules.dropout.FeatureAlphaDropout": Unary(same),
}

// wrapper is the class of modules that pass their arguments on to the one that they hold.
var wrapper = Class{Forward: func(t *Trace, m *Module, args ...any) any { return t.ChildOf(m, "module", args...) }}

// noForward is of modules that only hold others: their owner runs those.
func noForward(_ *Trace, m *Module, _ ...any) any {
	fail("a %s is not run itself", m.Class)
	return nil
}

func same(_ *Trace, _ *Module, x Tensor) Tensor { return x }

// Sequential is torch.nn.Sequential: its children run one after the other and are named 0, 1, ….
//
//go:noinline
func Sequential(children ...*Module) *Module { return numbered("Sequential", children) }

// ModuleList is torch.nn.ModuleList.
func ModuleList(children ...*Module) *Module { return numbered("ModuleList", children) }

func numbered(class string, children []*Module) *Module {
	m := &Module{Class: "torch.nn.modules.container." + class}
	for i, c := range children {
		m.Add(strconv.Itoa(i), c)
	}
	return m
}

// Identity is torch.nn.Identity.
func Identity() *Module { return &Module{Class: "torch.nn.modules.linear.Identity"} }

// Dropout is torch.nn.Dropout, which does nothing when a model is evaluated.
//
//go:noinline
func Dropout(p float64) *Module {
	return New("torch.nn.modules.dropout.Dropout", map[string]any{"p": p})
}
