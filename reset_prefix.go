package weir

import "context"

// prefixReset is a reset of a prefix under way.
type prefixReset struct {
	ctx         context.Context
	prefix      string
	progress    func(seen, reset int)
	seen, reset int
}

// progressEvery is how many states are looked at between two calls of progress.
const progressEvery = 1 << 11

// next reports whether to go on.
func (p *prefixReset) next() bool {
	if p.progress != nil {
		p.progress(p.seen, p.reset)
	}
	return p.ctx.Err() == nil
}
