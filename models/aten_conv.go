package models

var convTargets = []atenOp{}
