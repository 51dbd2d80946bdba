package limits

// places has the last place of each key. The first few keys are compared, and more are in a map.
type places[K comparable] struct {
	few [4]struct {
		key K
		at  int
	}
	n    int // of few
	many map[K]int
}

// last returns the place that was noted last for key, or -1.
func (p *places[K]) last(key K) int {
	for i := range p.n {
		if p.few[i].key == key {
			return p.few[i].at
		}
	}
	if p.many != nil { // to search a nil map takes 80 ns, for which its key is checked
		if at, ok := p.many[key]; ok {
			return at
		}
	}
	return -1
}

// note notes the place of key.
func (p *places[K]) note(key K, at int) {
	for i := range p.n {
		if p.few[i].key == key {
			p.few[i].at = at
			return
		}
	}
	switch {
	case p.n < len(p.few):
		p.few[p.n].key, p.few[p.n].at = key, at
		p.n++
		return
	case p.many == nil:
		p.many = make(map[K]int)
	}
	p.many[key] = at
}
