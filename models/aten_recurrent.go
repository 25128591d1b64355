package models

// recurrentTargets walk a sequence with a state.
var recurrentTargets = []atenOp{}
