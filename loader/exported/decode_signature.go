package exported

import (
	"github.com/optimem/optimem/loader/internal/fault"
)

// specBytes is what one entry of a signature costs.
const specBytes = 128

var inputKinds = map[string]InputKind{
	"user_input": UserInput, "parameter": Parameter, "buffer": Buffer, "tensor_constant": TensorConstant,
	"custom_obj": CustomObject, "token": InputToken, "constant_input": ConstantInput,
}

var outputKinds = map[string]OutputKind{
	"user_output": UserOutput, "loss_output": LossOutput, "buffer_mutation": BufferMutation,
	"parameter_mutation": ParameterMutation, "user_input_mutation": UserInputMutation,
	"gradient_to_parameter": GradientToParameter, "gradient_to_user_input": GradientToUserInput, "token": OutputToken,
}

// signature reads the signature into p, or returns that of a file of the oldest form.
func (d *decoder) signature(p *Program) (old *oldSignature, err error) {
	found := oldSignature{}
	isOld := false
	err = d.Object(func(key string) (err error) {
		switch key {
		case "input_specs":
			p.Signature.Inputs, err = list(d, specBytes, d.inputSpec)
		case "output_specs":
			p.Signature.Outputs, err = list(d, specBytes, d.outputSpec)
		case "inputs_to_parameters":
			isOld = true
			found.parameters, err = dict(d, 16, d.String)
		case "inputs_to_buffers":
			isOld = true
			found.buffers, err = dict(d, 16, d.String)
		case "buffers_to_mutate":
			isOld = true
			found.mutations, err = dict(d, 16, d.String)
		}
		return err
	})
	if err != nil || !isOld {
		return nil, err
	}
	return &found, nil
}

func (d *decoder) inputSpec() (s InputSpec, err error) {
	err = d.union(func(tag string) error {
		kind, known := inputKinds[tag]
		if !known {
			return d.Errorf(fault.ErrUnsupported, "the unknown kind of input %s", quote(tag))
		}
		s = InputSpec{Kind: kind, Persistent: kind == Buffer}
		given := false
		err := d.Object(func(key string) (err error) {
			switch key {
			case "arg":
				given = true
				s.Arg, err = d.specArgument(kind == UserInput, kind == CustomObject)
			case "value":
				given = true
				s.Arg, err = d.argument()
			case "persistent":
				s.Persistent, err = d.Bool()
			case "parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name", "name":
				s.Target, err = d.String()
			}
			return err
		})
		if err == nil && !given {
			err = d.Errorf(fault.ErrFormat, "an input without an argument")
		}
		return err
	})
	return s, err
}

func (d *decoder) outputSpec() (s OutputSpec, err error) {
	err = d.union(func(tag string) error {
		kind, known := outputKinds[tag]
		if !known {
			return d.Errorf(fault.ErrUnsupported, "the unknown kind of output %s", quote(tag))
		}
		s = OutputSpec{Kind: kind}
		given := false
		err := d.Object(func(key string) (err error) {
			switch key {
			case "arg":
				given = true
				s.Arg, err = d.specArgument(kind == UserOutput, false)
			case "parameter_name", "buffer_name", "user_input_name":
				s.Target, err = d.String()
			}
			return err
		})
		if err == nil && !given {
			err = d.Errorf(fault.ErrFormat, "an output without an argument")
		}
		return err
	})
	return s, err
}

// specArgument reads the argument of a spec: any, a custom object, or a bare name.
func (d *decoder) specArgument(any, custom bool) (a Argument, err error) {
	switch {
	case any:
		return d.argument()
	case custom:
		a.Tag = CustomObj
		a.Name, a.Data, err = d.customObjData()
	default:
		a.Tag = Tensor
		a.Name, err = d.tensorArgument()
	}
	return a, err
}

// An oldSignature is the signature of files of PyTorch 2.1: maps from the names of the graph's inputs and outputs.
type oldSignature struct {
	parameters, buffers, mutations map[string]string
}

// specs turns the maps into lists in the graph's order.
func (o *oldSignature) specs(g *Graph) (s Signature) {
	for _, a := range g.Inputs {
		spec := InputSpec{Kind: UserInput, Arg: a}
		if name, ok := o.parameters[a.Name]; ok && a.Tag == Tensor {
			spec.Kind, spec.Target = Parameter, name
		} else if name, ok := o.buffers[a.Name]; ok && a.Tag == Tensor {
			spec.Kind, spec.Target, spec.Persistent = Buffer, name, true
		}
		s.Inputs = append(s.Inputs, spec)
	}
	for i, a := range g.Outputs {
		spec := OutputSpec{Kind: UserOutput, Arg: a}
		if name, ok := o.mutations[a.Name]; ok && a.Tag == Tensor && i < len(o.mutations) {
			spec.Kind, spec.Target = BufferMutation, name
		}
		s.Outputs = append(s.Outputs, spec)
	}
	return s
}
