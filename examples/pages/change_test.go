package pages

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

func Example_equalLimits() {
	limiter := newLimiter()
	defer limiter.Close()

	read := limiter.SlidingWindow().Limit(2, time.Minute)
	write := limiter.SlidingWindow().Limit(2, time.Minute) // equal: it is the same limit
	fmt.Println(read.Allow("ann"), write.Allow("ann"), read.Allow("ann"))

	upload := limiter.SlidingWindow().Limit(2, time.Minute).Named("upload") // counts for itself
	fmt.Println(upload.Allow("ann"))
	// Output:
	// true true false
	// true
}

// Setting is a limit that changes while the program runs.
type Setting struct{ limit atomic.Pointer[weir.Limit] }

// Set holds the calls that follow to n in a minute. With an error the old limit stays.
func (s *Setting) Set(limiter *weir.Limiter, n uint64) error {
	limit, err := weir.NewLimit(limiter.SlidingWindow(), n, time.Minute)
	if err != nil {
		return err
	}
	s.limit.Store(limit.Named("per user")) // the same name: what was counted still counts
	return nil
}

// Limit returns the limit of now.
func (s *Setting) Limit() *weir.Limit { return s.limit.Load() }

func Example_changeALimit() {
	ctx, limiter := context.Background(), newLimiter()
	defer limiter.Close()

	var perUser Setting
	for _, n := range []uint64{3, 5, 2} {
		if err := perUser.Set(limiter, n); err != nil {
			log.Fatal(err)
		}
		admitted := 0
		for perUser.Limit().Allow("ann") {
			admitted++
		}
		out, err := perUser.Limit().Peek(ctx, "ann")
		if err != nil {
			log.Fatal(err) // could not decide
		}
		fmt.Println("limit", n, "admits", admitted, "more; counted", out.TotalRequests)
	}
	// Output:
	// limit 3 admits 3 more; counted 3
	// limit 5 admits 2 more; counted 5
	// limit 2 admits 0 more; counted 5
}

// Paced passes requests on at the pace of a limit of LeakyBucket. Whoever finds its queue full gets
// 503 at once.
func Paced(limit *weir.Limit, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := limit.Take(r.Context(), "all", 1) // waits for its turn
		if err != nil || !out.Allowed() {
			http.Error(w, "too many wait", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func TestALongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer limiter.Close()
		start := time.Now()
		hello := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

		paced := limiter.LeakyBucket(20).Limit(10, time.Second) // 20 wait, and so none over 2 s
		handler := Paced(paced, hello)

		var mu sync.Mutex
		statuses, last := map[int]int{}, map[int]time.Duration{}
		for range 50 {
			go func() {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
				mu.Lock()
				defer mu.Unlock()
				statuses[w.Code]++
				last[w.Code] = max(last[w.Code], time.Since(start))
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, map[int]int{http.StatusOK: 21, http.StatusServiceUnavailable: 29}, statuses)
		assert.LessOrEqual(t, last[http.StatusOK], 2*time.Second)
		assert.Zero(t, last[http.StatusServiceUnavailable], "refused at once")
	})
}
