package layers

// recurrentOps walk a sequence with a state.
var recurrentOps = []OpDef{}
