package models

var poolTargets = []atenOp{}
