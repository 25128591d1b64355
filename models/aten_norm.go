package models

var normTargets = []atenOp{}
