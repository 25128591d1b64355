package models

var reductionTargets = []atenOp{}
