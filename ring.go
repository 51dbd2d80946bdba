package weir

// ring is a queue that grows with what it holds and shrinks again. The zero value is ready.
type ring[T any] struct {
	buf     []T // a power of two long
	head, n int
}

// at returns the i-th oldest element. 0 <= i < r.n.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		r.resize(max(1, 2*r.n))
	}
	r.n++
	*r.at(r.n - 1) = v
}

// pop removes the oldest element.
func (r *ring[T]) pop() {
	var none T
	*r.at(0) = none
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	if len(r.buf) >= 16 && r.n <= len(r.buf)/8 {
		r.resize(len(r.buf) / 4)
	}
}

// remove removes the i-th oldest element.
func (r *ring[T]) remove(i int) {
	for ; i > 0; i-- {
		*r.at(i) = *r.at(i - 1)
	}
	r.pop()
}

func (r *ring[T]) resize(size int) {
	buf := make([]T, size)
	for i := range r.n {
		buf[i] = *r.at(i)
	}
	r.buf, r.head = buf, 0
}
