package overload

// step is what happens at an event.
type step uint8

const (
	arrives step = iota // a new request
	reaches             // a request reaches the pool, after the delay
	retries             // a client asks again
	givesUp             // a client leaves, while the work goes on
	changes             // the pool gets faster or slower
	ends                // the work is done
)

// event is a step at an instant.
type event struct {
	at    float64
	order uint64 // of events at one instant
	step  step
	of    *Request
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

// events is a heap, the next event first.
type events []event

func (h *events) push(e event) {
	*h = append(*h, e)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].before(&s[up]) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *events) pop() event {
	s := *h
	first, last := s[0], len(s)-1
	s[0], s[last] = s[last], event{}
	s = s[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if right := down + 1; right < last && s[right].before(&s[down]) {
			down = right
		}
		if !s[down].before(&s[i]) {
			break
		}
		s[i], s[down] = s[down], s[i]
		i = down
	}
	*h = s
	return first
}
