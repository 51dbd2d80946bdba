package weir

// ring is a queue that grows with what it holds and shrinks again. The zero value is ready.
type ring[T any] struct {
	buf     []T // a power of two long
	head, n int
}

// at returns the i-th oldest element. 0 <= i < r.n.
func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

// newest returns the newest element, or nil.
func (r *ring[T]) newest() *T {
	if r.n == 0 {
		return nil
	}
	return r.at(r.n - 1)
}

// growth returns by how many elements the next push will grow the ring.
func (r *ring[T]) growth() int {
	if r.n < len(r.buf) {
		return 0
	}
	return max(1, r.n)
}

func (r *ring[T]) push(v T) {
	if n := r.growth(); n > 0 {
		r.resize(len(r.buf) + n)
	}
	r.n++
	*r.at(r.n - 1) = v
}

// pop removes the oldest element.
func (r *ring[T]) pop() {
	*r.at(0) = *new(T)
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	r.shrink()
}

// remove removes the i-th oldest element. It moves those newer than it.
func (r *ring[T]) remove(i int) {
	for ; i < r.n-1; i++ {
		*r.at(i) = *r.at(i + 1)
	}
	*r.at(i) = *new(T)
	r.n--
	r.shrink()
}

func (r *ring[T]) shrink() {
	if len(r.buf) >= 16 && r.n <= len(r.buf)/8 {
		r.resize(len(r.buf) / 4)
	}
}

func (r *ring[T]) resize(size int) {
	buf := make([]T, size)
	for i := range r.n {
		buf[i] = *r.at(i)
	}
	r.buf, r.head = buf, 0
}
