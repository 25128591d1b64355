package layers

// linearOps are products of matrices.
var linearOps = []OpDef{}
