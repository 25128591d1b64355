package models

// attentionTargets let positions look at each other.
var attentionTargets = []atenOp{}
