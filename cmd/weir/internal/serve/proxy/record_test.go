package proxy

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheAccessLogCannotBeForged checks that a client cannot write lines of the log or control the
// reader's terminal, and that the log does not contain the query.
func TestTheAccessLogCannotBeForged(t *testing.T) {
	hostile := "a\r\nfake=line \x1b[31m\u202e\" msg=x"
	for _, handler := range []func(io.Writer) slog.Handler{
		func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
		func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
	} {
		var log bytes.Buffer
		cfg := by(t, config(t, "1/1d"), "path")
		cfg.Access, cfg.LogKey = slog.New(handler(&log)), true
		s := serve(t, cfg)
		status(t, "GET", s.front.URL+"/"+url.PathEscape(hostile)+"?secret=42")
		s.inFlight.Wait()
		line := strings.TrimSuffix(log.String(), "\n")
		assert.NotContains(t, line, "\n")
		assert.NotContains(t, line, "\x1b")
		assert.NotContains(t, line, "\u202e")
		assert.NotContains(t, line, "secret")
		assert.Contains(t, line, "fake=line", "it is there, but as part of a value")
	}
}

// A denied request costs little, so that the line about it must not cost much.
func TestTheAccessLogCutsLongPaths(t *testing.T) {
	cfg := config(t, "1/1d")
	log := jsonLog(&cfg.Access)
	s := serve(t, cfg)
	status(t, "GET", s.front.URL+"/"+strings.Repeat("a", maxLogged-1))
	status(t, "GET", s.front.URL+"/"+strings.Repeat("b", maxLogged))
	s.inFlight.Wait()
	assert.Contains(t, log.String(), `"/`+strings.Repeat("a", maxLogged-1)+`"`)
	assert.Contains(t, log.String(), `"/`+strings.Repeat("b", maxLogged-1)+`…"`)
}

func TestKeysAreLoggedOnlyIfAsked(t *testing.T) {
	for _, asked := range []bool{false, true} {
		cfg := by(t, config(t, "1/1d"), "header:Authorization")
		cfg.LogKey = asked
		log := jsonLog(&cfg.Access)
		s := serve(t, cfg)
		status(t, "GET", s.front.URL, "Authorization", "Bearer hunter2")
		s.inFlight.Wait()
		assert.Equal(t, asked, strings.Contains(log.String(), "hunter2"))
	}
}

func TestTheAccessLogSaysWhatWasDecided(t *testing.T) {
	cfg := config(t, "1/1d")
	log := jsonLog(&cfg.Access)
	s := serve(t, cfg)
	status(t, "GET", s.front.URL+"/a")
	status(t, "POST", s.front.URL+"/b")
	s.inFlight.Wait()
	var got []map[string]any
	for d := json.NewDecoder(log); d.More(); {
		var line map[string]any
		require.NoError(t, d.Decode(&line))
		got = append(got, line)
	}
	require.Len(t, got, 2)
	for i, want := range []map[string]any{
		{"method": "GET", "path": "/a", "status": 200., "outcome": "admitted", "policy": "1/1d",
			"client": "127.0.0.1",
			"source": "local", "strategy": "sliding window", "limit": 1., "period": "24h0m0s", "counted": 1.,
			"remaining": 0.},
		{"method": "POST", "path": "/b", "status": 429., "outcome": "denied", "policy": "1/1d",
			"client": "127.0.0.1", "source": "local"},
	} {
		for k, v := range want {
			assert.Equal(t, v, got[i][k], k)
		}
		assert.Positive(t, got[i]["bytes"])
		assert.NotContains(t, got[i], "key")
	}
}
