package models

// castTargets are the ops that change a tensor's dtype, or would change its device or memory format.
var castTargets = []atenOp{}
