package models

// createTargets are the ops that make tensors from numbers.
var createTargets = []atenOp{}
