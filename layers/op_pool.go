package layers

var poolOps = []OpDef{}
