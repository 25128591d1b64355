package models

var indexTargets = []atenOp{}
