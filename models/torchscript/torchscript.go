// Package torchscript evaluates the code of a TorchScript archive for inputs of known shapes: control flow, lists,
// dictionaries and calls of submodules disappear, and what is left are the ops that were called.
//
// It knows the language and PyTorch's functions on numbers and lists. It does not know what ops compute: a
// [layers.Recorder] does.
package torchscript
