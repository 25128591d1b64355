package layers

var sortOps = []OpDef{}
