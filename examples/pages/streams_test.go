package pages

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir"
)

func TestStreamsAtOneTime(t *testing.T) {
	limiter := newLimiter()
	defer limiter.Close()
	writing, end := make(chan struct{}), make(chan struct{})
	generate := func(w http.ResponseWriter) {
		writing <- struct{}{}
		<-end
		w.WriteHeader(http.StatusOK)
	}

	streams := limiter.InFlight().Limit(2)
	answer := func(w http.ResponseWriter, r *http.Request) {
		held, err := streams.Hold(r.Context(), r.Header.Get("User"))
		if denied := (*weir.DeniedError)(nil); errors.As(err, &denied) {
			http.Error(w, "two answers are under way", http.StatusTooManyRequests)
			return
		}
		if err != nil {
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		defer held.Release(r.Context()) // also if generate panics
		generate(w)
	}

	ask := func(user string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("User", user)
		answer(w, r)
		return w.Code
	}
	statuses := make(chan int)
	start := func(user string) {
		go func() { statuses <- ask(user) }()
		<-writing
	}
	start("ann")
	start("ann")
	assert.Equal(t, http.StatusTooManyRequests, ask("ann"))
	start("bob") // has his own
	for range 3 {
		end <- struct{}{}
		assert.Equal(t, http.StatusOK, <-statuses)
	}
	start("ann")
	end <- struct{}{}
	assert.Equal(t, http.StatusOK, <-statuses)
}
