package layers

var padOps = []OpDef{}
