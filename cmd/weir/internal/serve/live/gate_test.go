package live

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestManyAddressesDoNotLiftTheBoundOnGuesses guesses from more addresses than the Gate counts, in
// several minutes: those that it has no bucket for have ten tries together.
func TestManyAddressesDoNotLiftTheBoundOnGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := NewGate("right", slog.New(slog.NewTextHandler(new(bytes.Buffer), nil)))
		require.NoError(t, err)
		defer g.Close()
		h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		try := func(peer, token string) int {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = peer
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		time.Sleep(time.Until(time.Now().Truncate(guessesWithin).Add(guessesWithin)))
		for minute := range 3 {
			next := 0
			fresh := func() string {
				next++
				return fmt.Sprintf("[2001:db8:%x:%x::1]:1", minute, next)
			}
			for range maxGuessers {
				require.Equal(t, http.StatusUnauthorized, try(fresh(), "wrong"))
			}
			codes := make(map[int]int)
			for range 1000 {
				codes[try(fresh(), "wrong")]++
			}
			assert.Equal(t, map[int]int{http.StatusUnauthorized: maxGuesses,
				http.StatusTooManyRequests: 1000 - maxGuesses}, codes, "minute %d", minute)
			assert.Equal(t, http.StatusTooManyRequests, try(fresh(), "right"), "or it could be guessed")
			assert.Equal(t, http.StatusOK, try(fmt.Sprintf("[2001:db8:%x:1::1]:1", minute), "right"),
				"an address that is counted has its own tries")
			time.Sleep(guessesWithin)
		}
		for range 2 * maxGuesses {
			assert.Equal(t, http.StatusOK, try("192.0.2.1:1", "right"), "right tokens do not count")
		}
	})
}
