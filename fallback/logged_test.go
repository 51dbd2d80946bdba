package fallback_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
)

// records is a handler that keeps what is logged.
type records struct {
	slog.Handler
	mu   sync.Mutex
	list []slog.Record // guarded by mu
}

func (h *records) Enabled(context.Context, slog.Level) bool { return true }

func (h *records) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, r)
	return nil
}

// attrs returns the attributes of a record as texts.
func attrs(r slog.Record) map[string]string {
	all := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { all[a.Key] = a.Value.String(); return true })
	return all
}

// Without OnChange a breaker that opens is a warning with its error, and one that closes a line: at
// most one a second, with how many were left out; probes are none. With OnChange there is no line.
func TestChangesOfABreakerAreLogged(t *testing.T) {
	was := slog.Default()
	defer slog.SetDefault(was)
	for _, onChange := range []func(fallback.Change){nil, func(fallback.Change) {}} {
		log := new(records)
		slog.SetDefault(slog.New(log))
		synctest.Test(t, func(t *testing.T) {
			cfg := with(fallback.Config{OnChange: onChange, ProbeInterval: 100 * time.Millisecond,
				Partition: func(string) string { return "a" }})
			s := newServer(func() weir.Strategy { return local(t) })
			f := newFallback(t, s, local(t), cfg)
			turn := func() { // opens and closes
				s.fails(errDown)
				ask(t, f, hundred)
				require.Equal(t, fallback.Open, f.Stats().State)
				time.Sleep(150 * time.Millisecond) // in the bubble
				ask(t, f, hundred)                 // a probe, which fails
				synctest.Wait()
				s.fails(nil)
				time.Sleep(150 * time.Millisecond)
				ask(t, f, hundred)
				synctest.Wait()
				require.Equal(t, fallback.Closed, f.Stats().State)
			}
			turn()
			turn()
			time.Sleep(2 * time.Second)
			turn()
		})
		if onChange != nil {
			assert.Empty(t, log.list)
			continue
		}
		require.Len(t, log.list, 2)
		for i, r := range log.list {
			assert.Equal(t, slog.LevelWarn, r.Level)
			assert.Equal(t, "fallback: the breaker opened", r.Message)
			want := map[string]string{"error": errDown.Error(), "partition": "a"}
			if i > 0 {
				want["not_logged"] = "3"
			}
			assert.Equal(t, want, attrs(r))
		}
	}
}

// A breaker that closes more than a second after it opened is a line too.
func TestABreakerThatClosesIsLogged(t *testing.T) {
	was, log := slog.Default(), new(records)
	defer slog.SetDefault(was)
	slog.SetDefault(slog.New(log))
	synctest.Test(t, func(t *testing.T) {
		s := newServer(func() weir.Strategy { return local(t) })
		f := newFallback(t, s, local(t), tripAtOnce)
		s.fails(errDown)
		ask(t, f, hundred)
		s.fails(nil)
		time.Sleep(2 * time.Second) // in the bubble
		ask(t, f, hundred)
		synctest.Wait()
	})
	require.Len(t, log.list, 2)
	assert.Equal(t, slog.LevelInfo, log.list[1].Level)
	assert.Equal(t, "fallback: the breaker closed", log.list[1].Message)
	assert.Empty(t, attrs(log.list[1]))
}
