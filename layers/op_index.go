package layers

var indexOps = []OpDef{}
