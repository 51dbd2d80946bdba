package limits

// places has the last place of each key. Few keys are compared, many are in a map.
type places[K comparable] struct {
	few  [4]K
	at   [4]int // of few
	n    int    // of few
	many map[K]int
}

// last returns the place that was noted last for key, or -1.
func (p *places[K]) last(key K) int {
	if p.many != nil {
		if at, ok := p.many[key]; ok {
			return at
		}
		return -1
	}
	if i := p.find(key); i < p.n {
		return p.at[i]
	}
	return -1
}

// note notes the place of key.
func (p *places[K]) note(key K, at int) {
	i := len(p.few)
	if p.many == nil {
		i = p.find(key)
	}
	switch {
	case i < len(p.few):
		p.few[i], p.at[i], p.n = key, at, max(p.n, i+1)
		return
	case p.many == nil:
		p.many = make(map[K]int)
		for i, key := range p.few {
			p.many[key] = p.at[i]
		}
	}
	p.many[key] = at
}

// find returns the index of key in few, or n.
func (p *places[K]) find(key K) int {
	for i := range p.n {
		if p.few[i] == key {
			return i
		}
	}
	return p.n
}
