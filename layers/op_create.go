package layers

// createOps make tensors from nothing, or keep a part of one.
var createOps = []OpDef{}
