package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
)

func TestHealth(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/-/healthz", r.URL.Path)
		w.WriteHeader(status)
		_, _ = w.Write([]byte("says so\n"))
	}))
	health := func() (code int, out, errs string) {
		var stdout, stderr bytes.Buffer
		code = run([]string{"health", "--admin", strings.TrimPrefix(s.URL, "http://")}, nil, &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	code, out, _ := health()
	assert.Equal(t, cli.ExitOK, code)
	assert.Equal(t, "says so\n", out)
	status = http.StatusServiceUnavailable
	code, _, errs := health()
	assert.Equal(t, cli.ExitFailure, code)
	assert.Contains(t, errs, "/-/healthz answers 503 Service Unavailable: says so")
	s.Close()
	code, _, errs = health()
	assert.Equal(t, cli.ExitFailure, code)
	assert.Contains(t, errs, "Give it as --admin HOST:PORT")
}
