package layers

// attentionOps let positions look at each other.
var attentionOps = []OpDef{}
