package exported

// A Signature says what the inputs and outputs of the program's graph are, in the graph's order.
type Signature struct {
	Inputs  []InputSpec
	Outputs []OutputSpec
}

// An InputKind says where an input of the graph comes from.
type InputKind uint8

// The kinds of input.
const (
	UserInput InputKind = iota
	Parameter
	Buffer
	TensorConstant
	CustomObject
	InputToken
	ConstantInput
)

// An InputSpec is one input of the graph.
type InputSpec struct {
	Kind InputKind
	// Arg is the graph's input; of a ConstantInput, the constant.
	Arg Argument
	// Target is the parameter, buffer or constant by its full path, the argument's name of a ConstantInput.
	Target string
	// Persistent says of a buffer that it is in the state dict; others are among the constants.
	Persistent bool
}

// An OutputKind says what an output of the graph is for.
type OutputKind uint8

// The kinds of output.
const (
	UserOutput OutputKind = iota
	LossOutput
	BufferMutation
	ParameterMutation
	UserInputMutation
	GradientToParameter
	GradientToUserInput
	OutputToken
)

// An OutputSpec is one output of the graph.
type OutputSpec struct {
	Kind OutputKind
	Arg  Argument
	// Target is the buffer, parameter or input that is written, "" for outputs of the user.
	Target string
}

// A ModuleCall describes how one module is called.
type ModuleCall struct {
	// FQN is the module's path, "" for the program's root.
	FQN string
	// Signature is nil where it was not asked to be kept.
	Signature *CallSignature
}

// A CallSignature maps the arguments and results of a call, which may be nested, to flat lists of values.
type CallSignature struct {
	Inputs, Outputs []Argument
	// In describes a tuple of the positional arguments (a tuple) and the keyword arguments (a dict), Out the result.
	In, Out *TreeSpec
	// ArgNames are the names of the parameters of forward, nil where not recorded.
	ArgNames []string
}
