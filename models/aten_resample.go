package models

var resampleTargets = []atenOp{}
