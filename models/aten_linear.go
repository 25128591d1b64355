package models

// linearTargets are products of matrices.
var linearTargets = []atenOp{}
